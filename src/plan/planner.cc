#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "plan/buffers.h"
#include "plan/plan.h"
#include "plan/weight_bytes.h"

namespace glint::plan {
namespace {

using Names = std::vector<std::string>;

bool Contains(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Builds the canonical steps of a pass.
class Builder {
 public:
  Builder(const model::HParams& hp, const model::Weights& weights, Pass pass)
      : hp_(hp), weights_(weights), pass_(pass) {}

  std::vector<Step> Trunk() {
    Add(Stage::kEmbed, -1);
    for (int layer = 0; layer < hp_.layers; ++layer) {
      Add(Stage::kHcPre, layer, Step::Site::kAttn);
      Add(Stage::kAttnNorm, layer);
      if (hp_.mixers[layer] == model::Mixer::kKda) {
        AddAll(layer, {Stage::kKdaQkv, Stage::kKdaConv, Stage::kKdaGates, Stage::kKdaRecur, Stage::kKdaNorm,
                       Stage::kKdaOut});
      } else {
        AddDsa(layer);
      }
      Add(Stage::kHcPost, layer, Step::Site::kAttn);
      Add(Stage::kHcPre, layer, Step::Site::kFfn);
      Add(Stage::kFfnNorm, layer);
      if (hp_.moe[layer] != 0) {
        AddMoe(layer);
      } else {
        AddAll(layer, {Stage::kFfnGateUp, Stage::kFfnDown});
      }
      Add(Stage::kHcPost, layer, Step::Site::kFfn);
    }
    AddAll(-1, {Stage::kHeadNorm, Stage::kHeadLogits});
    return std::move(steps_);
  }

  std::vector<Step> Mtp() {
    const auto block = static_cast<int>(hp_.layers);
    AddAll(block, {Stage::kMtpInput, Stage::kAttnNorm});
    AddDsa(block);
    AddAll(block, {Stage::kResidual, Stage::kFfnNorm});
    AddMoe(block);
    AddAll(block, {Stage::kResidual, Stage::kHeadNorm, Stage::kHeadLogits});
    return std::move(steps_);
  }

 private:
  void Add(Stage stage, int layer, Step::Site site = Step::Site::kNone) {
    Step step;
    step.stage = stage;
    step.covers = {stage};
    step.layer = layer;
    step.site = site;
    auto io = Io(stage, pass_);
    step.in = std::move(io.in);
    step.out = std::move(io.out);
    step.advances_state = io.advances_state;
    step.weight_bytes = WeightBytes(hp_, weights_, stage, layer, site);
    steps_.push_back(std::move(step));
  }
  void AddAll(int layer, std::initializer_list<Stage> stages) {
    for (const Stage stage : stages) Add(stage, layer);
  }
  void AddDsa(int layer) {
    AddAll(layer, {Stage::kDsaQ, Stage::kDsaKv, Stage::kDsaIndex, Stage::kDsaSelect, Stage::kDsaAttend,
                   Stage::kDsaOut});
  }
  void AddMoe(int layer) {
    AddAll(layer, {Stage::kMoeRoute, Stage::kMoeGateUp, Stage::kMoeDown, Stage::kMoeSharedGateUp,
                   Stage::kMoeSharedDown, Stage::kMoeCombine});
  }

  const model::HParams& hp_;
  const model::Weights& weights_;
  Pass pass_;
  std::vector<Step> steps_;
};

std::string Known(std::span<const Lever> levers) {
  std::vector<std::string_view> names;
  for (const Lever& lever : levers) names.push_back(lever.name);
  return fmt::format("known levers: {}", fmt::join(names, ", "));
}

Status CheckChoice(const LeverChoice& choice, std::span<const Lever> levers) {
  const auto find = [&](std::string_view name) {
    return std::find_if(levers.begin(), levers.end(), [&](const Lever& l) { return l.name == name; });
  };
  for (const auto& name : choice.with) {
    const auto lever = find(name);
    if (lever == levers.end()) {
      return {Code::kBadInput, fmt::format("no lever is called '{}' (given outright or by GLINT_WITH); {}",
                                           name, Known(levers))};
    }
    if (!lever->available) {
      return {Code::kBadInput,
              fmt::format("lever '{}' is not available on this machine ({})", name, lever->summary)};
    }
    if (Contains(choice.without, name)) {
      return {Code::kBadInput, fmt::format("lever '{}' is asked for and excluded at once", name)};
    }
  }
  for (const auto& name : choice.without) {
    if (name != "all" && find(name) == levers.end()) {
      return {Code::kBadInput,
              fmt::format("no lever is called '{}' (given outright or by GLINT_WITHOUT); {}; or 'all'", name,
                          Known(levers))};
    }
  }
  return {};
}

// Replaces the run of steps [first, first + count) by one step of the lever. Slots that nobody after the run
// reads stay inside the lever and get no buffer, unless it wants them.
void Replace(std::vector<Step>& steps, size_t first, size_t count, const Lever& lever) {
  const auto read_later = [&](Slot slot) {
    for (size_t i = first + count; i < steps.size(); ++i) {
      const Step& s = steps[i];
      if (std::find(s.in.begin(), s.in.end(), slot) != s.in.end()) return true;
      if (std::find(s.out.begin(), s.out.end(), slot) != s.out.end()) return false;
    }
    return false;
  };
  Step fused = steps[first];
  fused.lever = &lever;
  if (count > 1) {
    fused.covers.clear();
    std::vector<Slot> in, out;
    const auto add = [](std::vector<Slot>& list, Slot slot) {
      if (std::find(list.begin(), list.end(), slot) == list.end()) list.push_back(slot);
    };
    fused.advances_state = false;
    fused.weight_bytes = 0;
    for (size_t i = first; i < first + count; ++i) {
      fused.covers.push_back(steps[i].stage);
      for (const Slot slot : steps[i].in) {
        if (std::find(out.begin(), out.end(), slot) == out.end()) add(in, slot);
      }
      for (const Slot slot : steps[i].out) add(out, slot);
      fused.advances_state |= steps[i].advances_state;
      fused.weight_bytes += steps[i].weight_bytes;
    }
    if (!lever.keeps_inside) {
      out.erase(std::remove_if(out.begin(), out.end(),
                               [&](Slot slot) { return slot != Slot::kLogits && !read_later(slot); }),
                out.end());
    }
    fused.in = std::move(in);
    fused.out = std::move(out);
  }
  steps[first] = std::move(fused);
  steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(first) + 1,
              steps.begin() + static_cast<std::ptrdiff_t>(first + count));
}

// Whether the steps from `first` on are the run of the lever, canonical so far and in as many layers as it allows.
bool Matches(const std::vector<Step>& steps, size_t first, const Lever& lever,
             const std::vector<Stage>& run) {
  if (run.empty() || first + run.size() > steps.size()) return false;
  const int layer = steps[first].layer;
  for (size_t i = 0; i < run.size(); ++i) {
    const Step& s = steps[first + i];
    if (s.lever != nullptr || s.stage != run[i]) return false;
    if (s.layer != layer && !(lever.across_layers && s.layer == layer + 1)) return false;
  }
  return true;
}

}  // namespace

bool Lever::Covers(Stage stage) const {
  const auto has = [&](const std::vector<Stage>& run) {
    return std::find(run.begin(), run.end(), stage) != run.end();
  };
  return has(covers) || has(or_covers);
}

Result<Plan> MakePlan(const PlanRequest& request) {
  if (request.rows < 1)
    return Status(Code::kBadInput, fmt::format("a plan for {} rows; at least 1", request.rows));
  if (request.pass == Pass::kMtp && (request.hparams->nextn_layers == 0 || request.weights->nextn.empty())) {
    return Status(Code::kBadInput, "this model has no MTP block (or was loaded without it)");
  }
  if (auto status = CheckChoice(request.choice, request.levers); !status.ok()) return status;

  const bool none = Contains(request.choice.without, "all");
  const auto asked = [&](const Lever& lever) { return Contains(request.choice.with, lever.name); };
  const auto applies = [&](const Lever& lever) {
    return lever.available && request.rows >= lever.min_rows &&
           (lever.max_rows == 0 || request.rows <= lever.max_rows);
  };
  const auto wanted = [&](const Lever& lever) {
    if (!applies(lever)) return false;
    return asked(lever) || (lever.by_default && !none && !Contains(request.choice.without, lever.name));
  };

  // Two levers that the user named must not want the same stage; whichever won, one request would be ignored.
  for (const Lever& a : request.levers) {
    if (a.kind != Lever::Kind::kReplace || !asked(a) || !applies(a)) continue;
    for (const Lever& b : request.levers) {
      if (&a >= &b || b.kind != Lever::Kind::kReplace || !asked(b) || !applies(b)) continue;
      for (const std::vector<Stage>* run : {&a.covers, &a.or_covers}) {
        for (const Stage stage : *run) {
          if (!b.Covers(stage)) continue;
          return Status(Code::kBadInput, fmt::format("levers '{}' and '{}' both replace {}; ask for one",
                                                     a.name, b.name, Name(stage)));
        }
      }
    }
  }

  Builder builder(*request.hparams, *request.weights, request.pass);
  static std::atomic<uint64_t> plans{0};
  Plan plan;
  plan.id = ++plans;
  plan.pass = request.pass;
  plan.max_rows = request.rows;
  plan.steps = request.pass == Pass::kTrunk ? builder.Trunk() : builder.Mtp();

  // Levers by name first, then by default, each in table order.
  for (const bool by_name : {true, false}) {
    for (const Lever& lever : request.levers) {
      if (lever.kind != Lever::Kind::kReplace || !wanted(lever) || asked(lever) != by_name) continue;
      for (size_t i = 0; i < plan.steps.size(); ++i) {
        for (const std::vector<Stage>* run : {&lever.covers, &lever.or_covers})
          if (Matches(plan.steps, i, lever, *run)) Replace(plan.steps, i, run->size(), lever);
      }
    }
  }
  for (const Lever& lever : request.levers) {
    if (lever.kind != Lever::Kind::kModifier || !wanted(lever)) continue;
    for (Step& step : plan.steps) {
      const auto covered = [&](Stage stage) { return lever.Covers(stage); };
      if (std::any_of(step.covers.begin(), step.covers.end(), covered)) step.modifiers.push_back(&lever);
    }
  }
  for (const Lever& lever : request.levers) {
    const auto uses = [&](const Step& step) {
      return step.lever == &lever ||
             std::find(step.modifiers.begin(), step.modifiers.end(), &lever) != step.modifiers.end();
    };
    if (std::any_of(plan.steps.begin(), plan.steps.end(), uses)) plan.levers.push_back(&lever);
  }
  if (request.look_inside) {
    for (Step& step : plan.steps) {
      if (step.lever != nullptr) continue;
      if (step.stage == Stage::kDsaAttend) step.out.push_back(Slot::kMix);
      if (step.stage == Stage::kMtpInput) step.out.push_back(Slot::kJoined);
    }
  }
  plan.buffers = LayOut(plan.steps, *request.hparams, request.rows, request.keep_all);
  return plan;
}

LeverChoice WithEnvironment(LeverChoice choice) {
  const auto split = [](const char* variable) {
    Names names;
    const char* text = std::getenv(variable);
    std::string_view rest = text == nullptr ? "" : text;
    while (!rest.empty()) {
      const size_t comma = rest.find(',');
      if (comma != 0) names.emplace_back(rest.substr(0, comma));
      if (comma == std::string_view::npos) break;
      rest.remove_prefix(comma + 1);
    }
    return names;
  };
  // What the caller says outright wins over the environment.
  LeverChoice merged;
  for (auto& name : split("GLINT_WITH")) {
    if (!Contains(choice.without, name) && !Contains(choice.without, "all"))
      merged.with.push_back(std::move(name));
  }
  for (auto& name : split("GLINT_WITHOUT")) {
    if (!Contains(choice.with, name)) merged.without.push_back(std::move(name));
  }
  merged.with.insert(merged.with.end(), choice.with.begin(), choice.with.end());
  merged.without.insert(merged.without.end(), choice.without.begin(), choice.without.end());
  return merged;
}

}  // namespace glint::plan
