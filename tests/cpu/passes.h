// Runs a small model through the CPU backend the way an engine does.
#pragma once
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "cpu/backend.h"
#include "plan/plan.h"
#include "tests/support/small_model.h"

namespace glint::test {

struct Conditions {
  int threads = 1;
  plan::LeverChoice choice;
  bool poison = true;
  bool keep_all = false;
};

inline Conditions Canonical() { return {1, {{}, {"all"}}, true, false}; }

class Runner {
 public:
  Runner(const SmallModel& m, Conditions conditions, int max_rows = 512)
      : model_(m),
        conditions_(std::move(conditions)),
        max_rows_(max_rows),
        backend_(cpu::MakeBackend(m.hp, m.weights, conditions_.threads, {conditions_.poison, true})) {}

  plan::Backend& backend() { return *backend_; }

  plan::Plan Plan(plan::Pass pass, int rows) {
    plan::PlanRequest request;
    request.hparams = &model_.hp;
    request.weights = &model_.weights;
    request.levers = backend_->levers();
    request.choice = conditions_.choice;
    request.pass = pass;
    request.rows = rows;
    request.keep_all = conditions_.keep_all;
    auto plan = plan::MakePlan(request);
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    return std::move(plan.value());
  }

  std::unique_ptr<plan::SequenceState> State(int64_t capacity = 512) {
    auto state = backend_->NewState(capacity, true);
    EXPECT_TRUE(state.ok()) << state.status().message();
    return std::move(state.value());
  }

  // Logits of all rows; the final rows go to `final` where given.
  std::vector<float> Trunk(plan::SequenceState& state, std::span<const int32_t> tokens,
                           std::vector<float>* final = nullptr, const plan::Observer& observer = {}) {
    return Run(plan::Pass::kTrunk, state, state.position(), tokens, nullptr, final, observer);
  }
  std::vector<float> Mtp(plan::SequenceState& state, std::span<const int32_t> next, const float* hidden,
                         std::vector<float>* final = nullptr, const plan::Observer& observer = {}) {
    return Run(plan::Pass::kMtp, state, state.mtp_position(), next, hidden, final, observer);
  }

  // The tokens in chunks of `chunk`, logits and final rows appended.
  struct Output {
    std::vector<float> logits, final;
    bool operator==(const Output&) const = default;
  };
  Output TrunkInChunks(plan::SequenceState& state, std::span<const int32_t> tokens, size_t chunk) {
    Output out;
    for (size_t at = 0; at < tokens.size(); at += chunk) {
      std::vector<float> final;
      const auto logits = Trunk(state, tokens.subspan(at, std::min(chunk, tokens.size() - at)), &final);
      out.logits.insert(out.logits.end(), logits.begin(), logits.end());
      out.final.insert(out.final.end(), final.begin(), final.end());
    }
    return out;
  }

 private:
  std::vector<float> Run(plan::Pass pass, plan::SequenceState& state, int64_t position,
                         std::span<const int32_t> tokens, const float* hidden, std::vector<float>* final,
                         const plan::Observer& observer) {
    const auto rows = static_cast<int>(tokens.size());
    const auto plan = Plan(pass, rows);
    const plan::Segment segment{&state, position, 0, rows};
    std::vector<int32_t> wanted(tokens.size());
    for (int i = 0; i < rows; ++i) wanted[i] = i;
    std::vector<float> logits(tokens.size() * static_cast<size_t>(model_.hp.vocab_size));
    if (final != nullptr) final->resize(tokens.size() * static_cast<size_t>(model_.hp.hidden));
    plan::Batch batch;
    batch.tokens = tokens;
    batch.segments = {&segment, 1};
    batch.hidden_in = hidden;
    batch.wanted = wanted;
    batch.logits = logits.data();
    batch.final_out = final != nullptr ? final->data() : nullptr;
    const Status status = backend_->Run(plan, batch, observer);
    EXPECT_TRUE(status.ok()) << status.message();
    return logits;
  }

  const SmallModel& model_;
  Conditions conditions_;
  int max_rows_;
  std::unique_ptr<plan::Backend> backend_;
};

}  // namespace glint::test
