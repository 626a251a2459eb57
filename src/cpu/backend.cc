#include "cpu/backend.h"

#include <fmt/core.h>

#include <limits>

#include "cpu/execution.h"
#include "cpu/state.h"

namespace glint::cpu {
namespace {

using plan::Batch;
using plan::Plan;
using plan::Slot;
using plan::Step;

class Backend final : public plan::Backend {
 public:
  Backend(const model::HParams& hp, const model::Weights& weights, int threads, const BackendOptions& options)
      : device_(hp, weights, threads, options) {}

  std::string_view name() const override { return "cpu"; }
  std::span<const plan::Lever> levers() const override { return Levers(); }

  uint64_t StateBytes(int64_t capacity, bool mtp) const override {
    if (capacity > kMostTokens) return std::numeric_limits<uint64_t>::max();
    return StateLayout(device_.hp, capacity, mtp).bytes();
  }

  Result<std::unique_ptr<plan::SequenceState>> NewState(int64_t capacity, bool mtp) override {
    if (capacity < 1 || capacity > kMostTokens) {
      return Status(Code::kBadInput,
                    fmt::format("a sequence of {} tokens; 1 to {} are possible", capacity, kMostTokens));
    }
    if (mtp && device_.weights.nextn.empty()) {
      return Status(Code::kBadInput, "this model has no MTP block (or was loaded without it)");
    }
    auto state = SequenceState::Create(StateLayout(device_.hp, capacity, mtp));
    if (!state.ok()) return state.status();
    return std::unique_ptr<plan::SequenceState>(std::move(*state));
  }

  Status Run(const Plan& plan, const Batch& batch, const plan::Observer& observer) override {
    if (auto status = CheckPass(device_, plan, batch); !status.ok()) return status;
    if (batch.tokens.empty()) return {};
    if (buffers_.bytes() < plan.buffers.total_bytes) {
      auto pages = Pages::Reserve(plan.buffers.total_bytes);
      if (!pages.ok()) return pages.status();
      buffers_ = std::move(*pages);
    }
    PassRunner runner(device_, plan, batch, buffers_.data());
    for (const Step& step : plan.steps) {
      runner.Run(step);
      if (observer) observer({plan, step, static_cast<int>(runner.rows()), &Find, &runner});
    }
    runner.Advance();
    return {};
  }

  Result<std::unique_ptr<plan::Execution>> Begin(const Plan& plan, const Batch& batch) override {
    return BeginExecution(device_, plan, batch);
  }

 private:
  // Positions are int32 in the selected lists.
  static constexpr int64_t kMostTokens = std::numeric_limits<int32_t>::max();

  static const void* Find(const void* runner, Slot slot) {
    return static_cast<const PassRunner*>(runner)->Find(slot);
  }

  Device device_;
  Pages buffers_;
};

}  // namespace

std::unique_ptr<plan::Backend> MakeBackend(const model::HParams& hp, const model::Weights& weights,
                                           int threads, const BackendOptions& options) {
  return std::make_unique<Backend>(hp, weights, threads, options);
}

}  // namespace glint::cpu
