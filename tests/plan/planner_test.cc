#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cstdlib>
#include <random>
#include <set>

#include "plan/buffers.h"
#include "plan/plan.h"
#include "plan/print.h"
#include "tests/support/small_model.h"

namespace glint::plan {
namespace {

using test::MakeSmall;
using test::SmallModel;

Lever Replace(std::string_view name, std::vector<Stage> covers, bool by_default = true) {
  return {name, Lever::Kind::kReplace, std::move(covers), true, 0, by_default, 1, 0, true, "a test's lever"};
}
Lever Modifier(std::string_view name, std::vector<Stage> covers) {
  return {name, Lever::Kind::kModifier, std::move(covers), true, 0, true, 1, 0, true, "a test's lever"};
}

class Planner : public testing::Test {
 protected:
  void SetUp() override { MakeSmall(model_, 1, false); }
  PlanRequest Request(std::span<const Lever> levers = {}, LeverChoice choice = {}) {
    PlanRequest r;
    r.hparams = &model_.hp;
    r.weights = &model_.weights;
    r.levers = levers;
    r.choice = std::move(choice);
    r.rows = 7;
    return r;
  }
  Plan Make(const PlanRequest& request) {
    auto plan = MakePlan(request);
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    return std::move(*plan);
  }
  SmallModel model_;
};

std::vector<std::string> Stages(const Plan& plan, int layer) {
  std::vector<std::string> names;
  for (const Step& s : plan.steps) {
    if (s.layer == layer) names.emplace_back(Name(s.stage));
  }
  return names;
}

using Names = std::vector<std::string>;

TEST_F(Planner, ListsTheStagesOfEachKindOfLayer) {
  const Plan plan = Make(Request());
  EXPECT_EQ(Stages(plan, 0),
            (Names{"hc.pre", "attn.norm", "kda.qkv", "kda.conv", "kda.gates", "kda.recur", "kda.norm",
                   "kda.out", "hc.post", "hc.pre", "ffn.norm", "ffn.gate_up", "ffn.down", "hc.post"}));
  EXPECT_EQ(Stages(plan, 1),
            (Names{"hc.pre", "attn.norm", "dsa.q", "dsa.kv", "dsa.index", "dsa.select", "dsa.attend",
                   "dsa.out", "hc.post", "hc.pre", "ffn.norm", "moe.route", "moe.gate_up", "moe.down",
                   "moe.shared_gate_up", "moe.shared_down", "moe.combine", "hc.post"}));
  EXPECT_EQ(Stages(plan, -1), (Names{"embed", "head.norm", "head.logits"}));

  PlanRequest request = Request();
  request.pass = Pass::kMtp;
  EXPECT_EQ(
      Stages(Make(request), 4),
      (Names{"mtp.input", "attn.norm", "dsa.q", "dsa.kv", "dsa.index", "dsa.select", "dsa.attend", "dsa.out",
             "residual", "ffn.norm", "moe.route", "moe.gate_up", "moe.down", "moe.shared_gate_up",
             "moe.shared_down", "moe.combine", "residual", "head.norm", "head.logits"}));
}

TEST_F(Planner, EveryStageHasItsOwnNameAndIsFoundByIt) {
  std::set<std::string_view> names;
  for (int i = 0; i < static_cast<int>(Stage::kCount); ++i) {
    const auto stage = static_cast<Stage>(i);
    EXPECT_TRUE(names.insert(Name(stage)).second) << Name(stage);
    Stage found{};
    EXPECT_TRUE(FindStage(Name(stage), &found));
    EXPECT_EQ(found, stage);
  }
  Stage none{};
  EXPECT_FALSE(FindStage("kda", &none));
}

TEST_F(Planner, MtpPassNeedsAnMtpBlock) {
  PlanRequest request = Request();
  request.pass = Pass::kMtp;
  model_.weights.nextn.clear();
  const auto plan = MakePlan(request);
  ASSERT_FALSE(plan.ok());
  EXPECT_NE(plan.status().message().find("MTP"), std::string::npos);
}

TEST_F(Planner, LaysALeverOverARunOfStages) {
  const std::vector<Lever> levers = {Replace("fuse", {Stage::kKdaConv, Stage::kKdaGates, Stage::kKdaRecur})};
  const Plan plan = Make(Request(levers));
  int laid = 0;
  for (const Step& s : plan.steps) {
    if (s.lever == nullptr) continue;
    ++laid;
    EXPECT_EQ(s.lever, levers.data());
    EXPECT_EQ(s.covers, levers[0].covers);
    EXPECT_EQ(s.in, (std::vector<Slot>{Slot::kU, Slot::kX}));
    // Only what somebody reads later comes out: the decays stay inside.
    EXPECT_EQ(s.out, (std::vector<Slot>{Slot::kOutGate, Slot::kMixed}));
    EXPECT_TRUE(s.advances_state);
  }
  EXPECT_EQ(laid, 2);
  EXPECT_EQ(plan.buffers.places[static_cast<size_t>(Slot::kDecay)].bytes, 0u);
  EXPECT_EQ(plan.levers, (std::vector<const Lever*>{levers.data()}));
}

// Runs like those between two sublayers: a lever with two of them, laid into the next layer where it says that it may.
TEST_F(Planner, LaysALeverWithTwoRunsAcrossLayers) {
  const std::vector<Stage> to_ffn = {Stage::kHcPost, Stage::kHcPre, Stage::kFfnNorm},
                           to_attn = {Stage::kHcPost, Stage::kHcPre, Stage::kAttnNorm};
  for (const bool across : {false, true}) {
    std::vector<Lever> levers = {Replace("between", to_ffn), Replace("other", {Stage::kAttnNorm})};
    levers[0].or_covers = to_attn;
    levers[0].across_layers = across;
    const Plan plan = Make(Request(levers));
    const auto layers = static_cast<int>(model_.hp.layers);
    int inside = 0, behind = 0;
    std::vector<Stage> seen;
    for (const Step& s : plan.steps) {
      seen.insert(seen.end(), s.covers.begin(), s.covers.end());
      if (s.lever != levers.data()) continue;
      (s.covers == to_ffn ? inside : behind) += 1;
      EXPECT_EQ(s.covers, s.site == Step::Site::kAttn ? to_ffn : to_attn);
      EXPECT_EQ(s.layer, s.site == Step::Site::kAttn ? inside - 1 : behind - 1);  // of the first stage
      EXPECT_EQ(s.in, (std::vector<Slot>{Slot::kStreams, Slot::kBranch, Slot::kPost, Slot::kComb}));
      EXPECT_EQ(s.out, (std::vector<Slot>{Slot::kStreams, Slot::kPost, Slot::kComb, Slot::kX}));
    }
    EXPECT_EQ(inside, layers);
    EXPECT_EQ(behind, across ? layers - 1 : 0);
    std::vector<Stage> canonical;
    for (const Step& s : Make(Request()).steps) canonical.push_back(s.stage);
    EXPECT_EQ(seen, canonical);
    EXPECT_TRUE(levers[0].Covers(Stage::kAttnNorm) && levers[0].Covers(Stage::kFfnNorm));
    EXPECT_FALSE(levers[0].Covers(Stage::kHeadNorm));
    // A stage of the second run is taken, too.
    const auto both = MakePlan(Request(levers, {{"between", "other"}, {}}));
    ASSERT_FALSE(both.ok());
    EXPECT_NE(both.status().message().find("attn.norm"), std::string::npos) << both.status().message();
  }
}

TEST_F(Planner, NeverLaysTwoLeversOverOneStage) {
  const std::vector<Lever> levers = {Replace("first", {Stage::kKdaConv, Stage::kKdaGates}),
                                     Replace("second", {Stage::kKdaGates, Stage::kKdaRecur})};
  for (const bool name_second : {false, true}) {
    LeverChoice choice;
    if (name_second) choice.with = {"second"};
    const Plan plan = Make(Request(levers, choice));
    const Lever* want = &levers[name_second ? 1 : 0];
    std::vector<Stage> seen;
    for (const Step& s : plan.steps) {
      EXPECT_TRUE(s.lever == nullptr || s.lever == want);
      if (s.layer == 0) seen.insert(seen.end(), s.covers.begin(), s.covers.end());
    }
    EXPECT_TRUE(std::is_sorted(seen.begin(), std::find(seen.begin(), seen.end(), Stage::kHcPost)));
    EXPECT_EQ(std::count(seen.begin(), seen.end(), Stage::kKdaGates), 1);
  }
  const auto both = MakePlan(Request(levers, {{"first", "second"}, {}}));
  ASSERT_FALSE(both.ok());
  EXPECT_EQ(both.status().code(), Code::kBadInput);
  EXPECT_NE(both.status().message().find("kda.gates"), std::string::npos) << both.status().message();
}

TEST_F(Planner, RefusesNamesItDoesNotKnowAndSaysWhichItDoes) {
  std::vector<Lever> levers = {Replace("fuse", {Stage::kKdaConv}), Modifier("fast", {Stage::kKdaQkv})};
  levers[1].available = false;
  const auto message = [&](LeverChoice choice) {
    const auto plan = MakePlan(Request(levers, std::move(choice)));
    EXPECT_FALSE(plan.ok());
    return plan.ok() ? std::string() : plan.status().message();
  };
  EXPECT_NE(message({{"fus"}, {}}).find("known levers: fuse, fast"), std::string::npos);
  EXPECT_NE(message({{}, {"Fuse"}}).find("known levers: fuse, fast"), std::string::npos);
  EXPECT_NE(message({{"all"}, {}}).find("known levers"), std::string::npos);
  EXPECT_NE(message({{"fast"}, {}}).find("not available"), std::string::npos);
  EXPECT_NE(message({{"fuse"}, {"fuse"}}).find("excluded"), std::string::npos);
  // An unavailable lever is left out by default, and may be excluded.
  EXPECT_TRUE(Make(Request(levers, {{}, {"fast"}})).levers == std::vector<const Lever*>{levers.data()});
}

TEST_F(Planner, HonoursTheChoice) {
  const std::vector<Lever> levers = {Replace("fuse", {Stage::kKdaConv}), Modifier("fast", {Stage::kKdaQkv}),
                                     Replace("quiet", {Stage::kKdaOut}, false)};
  const auto used = [&](LeverChoice choice) {
    Names names;
    for (const Lever* l : Make(Request(levers, std::move(choice))).levers) names.emplace_back(l->name);
    return names;
  };
  EXPECT_EQ(used({}), (Names{"fuse", "fast"}));
  EXPECT_EQ(used({{}, {"all"}}), Names{});
  EXPECT_EQ(used({{"quiet"}, {}}), (Names{"fuse", "fast", "quiet"}));
  EXPECT_EQ(used({{"fast"}, {"all"}}), Names{"fast"});
  EXPECT_EQ(used({{}, {"fuse"}}), Names{"fast"});
}

TEST_F(Planner, LeversApplyToTheirRowsOnly) {
  std::vector<Lever> levers = {Replace("wide", {Stage::kKdaConv}), Replace("narrow", {Stage::kKdaOut})};
  levers[0].min_rows = 8;
  levers[1].max_rows = 7;
  PlanRequest request = Request(levers);
  request.rows = 7;
  EXPECT_EQ(Make(request).levers, (std::vector<const Lever*>{&levers[1]}));
  request.rows = 8;
  EXPECT_EQ(Make(request).levers, (std::vector<const Lever*>{&levers[0]}));
}

TEST_F(Planner, EnvironmentStandsBehindTheChoice) {
  setenv("GLINT_WITH", "a,b,,c", 1);
  setenv("GLINT_WITHOUT", "d,all", 1);
  const auto plain = WithEnvironment({});
  EXPECT_EQ(plain.with, (Names{"a", "b", "c"}));
  EXPECT_EQ(plain.without, (Names{"d", "all"}));
  const auto choice = WithEnvironment({{"d", "e"}, {"b"}});
  EXPECT_EQ(choice.with, (Names{"a", "c", "d", "e"}));
  EXPECT_EQ(choice.without, (Names{"all", "b"}));
  EXPECT_EQ(WithEnvironment({{}, {"all"}}).with, Names{});
  unsetenv("GLINT_WITH");
  unsetenv("GLINT_WITHOUT");
  EXPECT_EQ(WithEnvironment({}).with, Names{});
}

// Every byte of every weight is counted once, the routed experts and the embedding with the share one row uses.
TEST_F(Planner, WeightBytesAddUpToTheModel) {
  uint64_t sum = 0;
  for (const Step& s : Make(Request()).steps) sum += s.weight_bytes;
  uint64_t want = 0;
  for (const auto& v : model_.floats) want += v.size() * sizeof(float);
  const auto& hp = model_.hp;
  want -= 4 * static_cast<uint64_t>((hp.vocab_size - 1) * hp.hidden);
  const auto moe_layers = static_cast<uint64_t>(std::count(hp.moe.begin(), hp.moe.end(), 1));
  const auto expert = 4 * static_cast<uint64_t>(3 * hp.expert_ffn * hp.hidden);
  want -= moe_layers * expert * static_cast<uint64_t>(hp.experts - hp.experts_used);
  uint64_t nextn = 0;  // not in the trunk
  {
    SmallModel trunk;
    MakeSmall(trunk, 1, false);
    trunk.floats.clear();
    trunk.weights = {};
    trunk.hp.nextn_layers = 0;
    trunk.Fill();
    uint64_t trunk_bytes = 0, all_bytes = 0;
    for (const auto& v : trunk.floats) trunk_bytes += v.size() * sizeof(float);
    for (const auto& v : model_.floats) all_bytes += v.size() * sizeof(float);
    nextn = all_bytes - trunk_bytes;
  }
  EXPECT_EQ(sum, want - nextn);
}

// An independent look at a layout: walk the steps, note who wrote each byte last, and demand that a step finds in its input
// slots the bytes of the step that wrote them last.
void CheckNothingIsOverwritten(const Plan& plan, bool keep_all) {
  const auto& places = plan.buffers.places;
  std::vector<int> owner(plan.buffers.total_bytes, -1);
  std::vector<int> writer(places.size(), -1);
  int stamp = 0;
  for (const Step& step : plan.steps) {
    for (const Slot slot : step.in) {
      const auto s = static_cast<size_t>(slot);
      ASSERT_GE(writer[s], 0) << Name(step.stage) << " reads " << Name(slot) << ", which nobody wrote";
      for (uint64_t b = places[s].offset; b < places[s].offset + places[s].bytes; ++b) {
        ASSERT_EQ(owner[b], writer[s])
            << Name(step.stage) << " layer " << step.layer << ": " << Name(slot) << " byte " << b;
      }
    }
    // An output may not lie on an input of the same step unless it is that slot.
    for (const Slot out : step.out) {
      const auto& o = places[static_cast<size_t>(out)];
      for (const Slot in : step.in) {
        const auto& i = places[static_cast<size_t>(in)];
        if (in == out) continue;
        ASSERT_TRUE(o.offset + o.bytes <= i.offset || i.offset + i.bytes <= o.offset || o.bytes == 0)
            << Name(step.stage) << ": " << Name(out) << " lies on " << Name(in);
      }
    }
    for (const Slot slot : step.out) {
      const auto s = static_cast<size_t>(slot);
      if (slot == Slot::kLogits) continue;
      ASSERT_GT(places[s].bytes, 0u) << Name(slot);
      ASSERT_EQ(places[s].offset % 64, 0u);
      ASSERT_LE(places[s].offset + places[s].bytes, plan.buffers.total_bytes);
      writer[s] = ++stamp;
      for (uint64_t b = places[s].offset; b < places[s].offset + places[s].bytes; ++b) owner[b] = stamp;
    }
    for (const Slot slot : step.out) {  // outputs of one step do not overlap either
      const auto s = static_cast<size_t>(slot);
      for (uint64_t b = places[s].offset; b < places[s].offset + places[s].bytes; ++b)
        ASSERT_EQ(owner[b], writer[s]);
    }
  }
  if (!keep_all) return;
  for (size_t a = 0; a < places.size(); ++a) {
    for (size_t b = a + 1; b < places.size(); ++b) {
      if (places[a].bytes == 0 || places[b].bytes == 0) continue;
      ASSERT_TRUE(places[a].offset + places[a].bytes <= places[b].offset ||
                  places[b].offset + places[b].bytes <= places[a].offset);
    }
  }
}

TEST_F(Planner, BuffersShareBytesOnlyWhereLivesDoNotOverlap) {
  const std::vector<Lever> levers = {Replace("fuse", {Stage::kKdaConv, Stage::kKdaGates, Stage::kKdaRecur}),
                                     Replace("moe", {Stage::kMoeGateUp, Stage::kMoeDown})};
  for (const Pass pass : {Pass::kTrunk, Pass::kMtp}) {
    uint64_t shared = 0;
    for (const bool keep_all : {false, true}) {
      for (const int rows : {1, 7, 100}) {
        for (const bool with_levers : {false, true}) {
          PlanRequest request =
              Request(with_levers ? std::span<const Lever>(levers) : std::span<const Lever>());
          request.pass = pass;
          request.rows = rows;
          request.keep_all = keep_all;
          const Plan plan = Make(request);
          CheckNothingIsOverwritten(plan, keep_all);
          if (HasFatalFailure()) return;
          if (rows == 100 && !with_levers) {
            if (keep_all) {
              EXPECT_LT(shared, plan.buffers.total_bytes / 3 * 2);  // sharing is worth something
            }
            shared = plan.buffers.total_bytes;
          }
        }
      }
    }
  }
}

TEST_F(Planner, PrintsForPeopleAndScripts) {
  const std::vector<Lever> levers = {Replace("fuse", {Stage::kKdaConv, Stage::kKdaGates}),
                                     Modifier("fast", {Stage::kKdaQkv})};
  const PlanRequest request = Request(levers);
  const Plan plan = Make(request);
  const std::string text = Describe(plan, request);
  for (const char* want : {"kda.conv kda.gates", "fuse", "fast", "dsa.attend", "layer 1", "streams"}) {
    EXPECT_NE(text.find(want), std::string::npos) << want << " in\n" << text;
  }
  // A modifier that is on every step is said once, above the table; "fast" is not.
  EXPECT_EQ(text.find("modifiers on every step"), std::string::npos) << text;
  std::vector<Stage> all;
  for (const Step& step : plan.steps) all.insert(all.end(), step.covers.begin(), step.covers.end());
  std::vector<Lever> more = levers;
  more.push_back(Modifier("wide", all));
  const PlanRequest wide_request = Request(more);
  const std::string wide_text = Describe(Make(wide_request), wide_request);
  const std::string said = "\nmodifiers on every step: wide\n";
  ASSERT_NE(wide_text.find(said), std::string::npos) << wide_text;
  const size_t table = wide_text.find(said) + said.size();
  const std::string steps = wide_text.substr(table, wide_text.find("\nlever ", table) - table);
  EXPECT_NE(steps.find("fast"), std::string::npos) << steps;
  EXPECT_EQ(steps.find("wide"), std::string::npos) << steps;
  const auto json = boost::json::parse(DescribeJson(plan, request)).as_object();
  EXPECT_EQ(json.at("steps").as_array().size(), plan.steps.size());
  EXPECT_EQ(json.at("levers").as_array().size(), 2u);
  EXPECT_EQ(json.at("buffer_bytes").to_number<uint64_t>(), plan.buffers.total_bytes);
  uint64_t weights = 0;
  for (const auto& step : json.at("steps").as_array())
    weights += step.at("weight_bytes").to_number<uint64_t>();
  EXPECT_EQ(json.at("weight_bytes").to_number<uint64_t>(), weights);
}

}  // namespace
}  // namespace glint::plan
