#include "cpu/backend.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>

#include "cpu/execution.h"
#include "cpu/limits.h"
#include "cpu/state.h"

namespace glint::cpu {
namespace {

using plan::Batch;
using plan::Plan;
using plan::Slot;
using plan::Step;

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Seconds that a reading takes, one after another: the fastest of some batches, so that nobody's interruption is in it.
double ClockCost() {
  static const double cost = [] {
    constexpr int kBatches = 32, kReadings = 64;
    double least = 1;
    for (int batch = 0; batch < kBatches; ++batch) {
      const double begin = Seconds();
      double end = begin;
      for (int i = 0; i < kReadings; ++i) end = Seconds();
      least = std::min(least, (end - begin) / kReadings);
    }
    return least;
  }();
  return cost;
}

class Backend final : public plan::Backend {
 public:
  Backend(const model::HParams& hp, const model::Weights& weights, int threads, const BackendOptions& options)
      : device_(hp, weights, threads, options) {}

  std::string_view name() const override { return "cpu"; }
  std::span<const plan::Lever> levers() const override { return Levers(); }

  uint64_t StateBytes(int64_t capacity, bool mtp) const override {
    return plan::StateBytes(device_.hp, capacity, mtp);
  }

  Result<std::unique_ptr<plan::SequenceState>> NewState(int64_t capacity, bool mtp) override {
    const auto layout = plan::NewStateLayout(device_.hp, !device_.weights.nextn.empty(), capacity, mtp);
    if (!layout.ok()) return layout.status();
    auto state = SequenceState::Create(*layout, device_.options.poison);
    if (!state.ok()) return state.status();
    return std::unique_ptr<plan::SequenceState>(std::move(*state));
  }

  Status Run(const Plan& plan, const Batch& batch, const plan::Observer& observer) override {
    return Run(plan, batch, observer, {}, 0);
  }

  Status RunTimed(const Plan& plan, const Batch& batch, std::span<plan::StepTime> times,
                  double* whole) override {
    if (times.size() != plan.steps.size()) {
      return {Code::kInternal, fmt::format("room for {} times of {} steps", times.size(), plan.steps.size())};
    }
    (void)ClockCost();  // measured before anything is timed
    const double start = Seconds();
    auto status = Run(plan, batch, {}, times, start);
    *whole = Seconds() - start;
    return status;
  }

  Result<plan::Limits> MeasureLimits(const Progress& progress) override {
    return cpu::MeasureLimits(device_.pool, progress);
  }

  Result<std::unique_ptr<plan::Execution>> Begin(const Plan& plan, const Batch& batch) override {
    return BeginExecution(device_, plan, batch);
  }

 private:
  // times: empty, or one for each step, counted from `start`.
  Status Run(const Plan& plan, const Batch& batch, const plan::Observer& observer,
             std::span<plan::StepTime> times, double start) {
    if (auto status = CheckPass(device_, plan, batch); !status.ok()) return status;
    if (batch.tokens.empty()) return {};
    if (buffers_.bytes() < plan.buffers.total_bytes) {
      auto pages = Pages::ReserveLarge(plan.buffers.total_bytes);
      if (!pages.ok()) return pages.status();
      buffers_ = std::move(*pages);
    }
    PassRunner runner(device_, plan, WithLogits(device_.hp, batch, logits_), buffers_.data());
    // One reading between two steps ends one and begins the other, so that nothing is between them and each has one reading in it.
    double begin = times.empty() ? 0 : Seconds() - start;
    for (const Step& step : plan.steps) {
      runner.Run(step);
      if (!times.empty()) {
        const double end = Seconds() - start, clock = std::min(ClockCost(), end - begin);
        times[static_cast<size_t>(&step - plan.steps.data())] = {begin, end - begin - clock, clock};
        begin = end;
      }
      if (observer) observer({plan, step, static_cast<int>(runner.rows()), &Find, &runner});
    }
    runner.FindBest();
    runner.Advance();
    return {};
  }

  static const void* Find(const void* runner, Slot slot) {
    return static_cast<const PassRunner*>(runner)->Find(slot);
  }

  Device device_;
  Pages buffers_;
  std::vector<float> logits_;  // of callers that want no more than the best of them
};

}  // namespace

std::unique_ptr<plan::Backend> MakeBackend(const model::HParams& hp, const model::Weights& weights,
                                           int threads, const BackendOptions& options) {
  return std::make_unique<Backend>(hp, weights, threads, options);
}

}  // namespace glint::cpu
