#include "engine/profile.h"

#include <gtest/gtest.h>

#include <numeric>

#include "engine/random.h"
#include "engine/session_impl.h"
#include "glint/session.h"
#include "plan/edits.h"
#include "tests/engine/reference.h"

namespace glint::engine {
namespace {

std::vector<int32_t> RandomIds(const Model& model, size_t n) {
  std::vector<int32_t> ids(n);
  for (size_t i = 0; i < n; ++i)
    ids[i] = static_cast<int32_t>(Draw64(1, i) % static_cast<uint64_t>(model.usable_vocab()));
  return ids;
}

Model Stories() { return test::MustOpen(GLINT_SOURCE_DIR "/models/stories/stories.gguf", {.threads = 2}); }

ProfileOptions Quick(int64_t depth) {
  ProfileOptions options;
  options.depth = depth;
  options.prompt_rows = 24;
  options.decode_tokens = 3;
  options.repetitions = 1;
  options.limits = false;
  return options;
}

// Every stage of the model left out, one after another, prompts and decoding: no bad read (run under a sanitizer), and no trace of it left.
// Repeating what can be repeated leaves the logits' bits: MeasureProfile fails otherwise.
TEST(Profile, EveryStageOfEveryModelCanBePriced) {
  for (const std::string name : {"stories", "micro"}) {
    SCOPED_TRACE(name);
    const Model model =
        name == "stories" ? Stories() : test::MustOpen(test::ModelPath(name, "hf"), {.threads = 2});
    auto options = Quick(37);
    options.ablate = options.repeat = {"all"};
    const auto report = MeasureProfile(model, RandomIds(model, 64), options);
    ASSERT_TRUE(report.ok()) << report.status().message();
    ASSERT_EQ(report->phases.size(), 2u);
    for (const PhaseProfile& phase : report->phases) {
      SCOPED_TRACE(phase.name);
      const auto stages = plan::StagesOf(*phase.plan);
      ASSERT_EQ(phase.ablated.size(), stages.size());
      ASSERT_EQ(phase.repeated.size(), stages.size());
      for (size_t i = 0; i < stages.size(); ++i) {
        EXPECT_EQ(phase.ablated[i].stage, stages[i]);
        EXPECT_EQ(phase.ablated[i].refused, "");
        EXPECT_GT(phase.ablated[i].bytes.total(), 0);
        EXPECT_EQ(phase.repeated[i].refused.empty(), plan::Idempotent(stages[i])) << plan::Name(stages[i]);
      }
    }
  }
}

TEST(Profile, AddsUpAndTellsWhatWasMeasured) {
  const Model model = Stories();
  auto options = Quick(32);
  options.repetitions = 3;
  options.per_layer = true;
  const auto report = MeasureProfile(model, RandomIds(model, 56), options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->read_bandwidth(), 0);
  EXPECT_NE(report->no_limits, "");
  const auto& prefill = report->phases[0];
  const auto& decode = report->phases[1];
  EXPECT_EQ(prefill.name, "prefill");
  EXPECT_EQ(prefill.rows, 24);
  EXPECT_EQ(prefill.shapes.size(), 1u);
  EXPECT_EQ(decode.name, "decode");
  EXPECT_EQ(decode.shapes.size(), 3u);
  EXPECT_EQ(decode.shapes[2].position, 34);
  for (const auto* phase : {&prefill, &decode}) {
    SCOPED_TRACE(phase->name);
    const auto& p = phase->profile;
    double sum = p.rest + p.outside + p.clock;
    int calls = 0;
    for (const auto& row : p.rows) sum += row.seconds.median, calls += row.calls;
    EXPECT_NEAR(sum, p.total.median, 1e-9);
    EXPECT_GT(p.clock, 0);
    EXPECT_EQ(calls, static_cast<int>(phase->plan->steps.size()));
    EXPECT_GT(p.untimed.median, 0);
    EXPECT_EQ(phase->typical.size(), phase->shapes.size());
    EXPECT_EQ(phase->typical[0].steps.size(), phase->plan->steps.size());
  }
  // Decoding reads what the model says a token does (but for what is not weights).
  EXPECT_EQ(decode.profile.bytes.weights, static_cast<double>(model.weight_bytes_per_token()));
  // A prompt's rows choose more experts than one row does, and at most all.
  const auto& hp_used = prefill.experts;
  EXPECT_GT(*std::max_element(hp_used.begin(), hp_used.end()), 1);
  EXPECT_GT(prefill.profile.bytes.weights, decode.profile.bytes.weights);
}

// The profile times the passes of a real session: what they compute is what anybody's would.
TEST(Profile, TimedPassesLeaveASessionAsUntimedOnesDo) {
  const Model model = Stories();
  const auto ids = RandomIds(model, 20);
  auto plain = Session::Create(model, {.context = 64}), timed = Session::Create(model, {.context = 64});
  ASSERT_TRUE(plain.ok() && timed.ok());
  size_t passes = 0;
  timed->impl().timer = [&](std::vector<plan::StepTime> times, double whole) {
    ++passes;
    double last = 0;
    for (const auto& t : times) {
      EXPECT_GE(t.start, last - 1e-12);
      last = t.start + t.seconds + t.clock;
    }
    EXPECT_LE(last, whole);
  };
  const auto vocab = static_cast<size_t>(model.vocab_size());
  std::vector<float> want(ids.size() * vocab), got(ids.size() * vocab);
  ASSERT_TRUE(plain->Append(ids, LogitRows::kAll, want).ok());
  for (size_t i = 0; i < ids.size(); i += 5) {
    ASSERT_TRUE(timed
                    ->Append(std::span(ids).subspan(i, 5), LogitRows::kAll,
                             std::span(got).subspan(i * vocab, 5 * vocab))
                    .ok());
  }
  EXPECT_EQ(passes, 4u);
  EXPECT_EQ(got, want);
}

TEST(Profile, RefusesWhatCannotBeMeasured) {
  const Model model = Stories();
  const auto ids = RandomIds(model, 100);
  const auto message = [&](const ProfileOptions& options, std::span<const int32_t> of) {
    const auto report = MeasureProfile(model, of, options);
    EXPECT_FALSE(report.ok());
    return report.ok() ? "" : report.status().message();
  };
  EXPECT_NE(message(Quick(80), ids).find("100 tokens to fill the context with; 104 are needed"),
            std::string::npos);
  EXPECT_NE(message(Quick(4090), ids).find("made for 4096"), std::string::npos);
  auto options = Quick(8);
  options.repeat = {"mtp.input"};
  EXPECT_NE(message(options, ids).find("mtp.input is not in this pass"), std::string::npos);
  auto bad = ids;
  bad[3] = -1;
  EXPECT_NE(message(Quick(8), bad).find("token 3"), std::string::npos);
  options = Quick(8);
  options.progress = [](const std::string& what) {
    return [what](uint64_t, uint64_t) { return what != "timing decode"; };
  };
  EXPECT_EQ(message(options, ids), "interrupted");
}

}  // namespace
}  // namespace glint::engine
