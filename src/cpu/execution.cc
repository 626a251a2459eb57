#include "cpu/execution.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "cpu/stages.h"
#include "cpu/state.h"
#include "plan/best.h"
#include "plan/check_pass.h"

namespace glint::cpu {

using plan::Batch;
using plan::Plan;
using plan::Slot;
using plan::Step;

Device::Device(const model::HParams& hparams, const model::Weights& bound, int threads,
               const BackendOptions& chosen)
    : hp(hparams), weights(bound), options(chosen), pool(std::max(1, threads)) {
  per_worker.resize(static_cast<size_t>(pool.threads()));
  scratch.set_poison(options.poison);
  for (Scratch& s : per_worker) s.set_poison(options.poison);
}

Status CheckPass(const Device& device, const Plan& plan, const Batch& batch) {
  const auto ours = [](const plan::GridSequence& state) {
    return dynamic_cast<const SequenceState*>(&state) != nullptr;
  };
  if (Status status = plan::CheckPass(device.hp, plan, batch, ours, "CPU"); !status.ok()) return status;
  for (const Step& step : plan.steps) {
    if (step.lever != nullptr && Replacement(*step.lever) == nullptr) {
      return {Code::kInternal, fmt::format("lever '{}' is not one of the CPU's", step.lever->name)};
    }
  }
  return {};
}

Batch WithLogits(const model::HParams& hp, Batch batch, std::vector<float>& memory) {
  if (batch.logits != nullptr || batch.wanted.empty()) return batch;
  const size_t wanted = batch.wanted.size() * static_cast<size_t>(hp.vocab_size);
  if (memory.size() < wanted) memory.resize(wanted);
  batch.logits = memory.data();
  return batch;
}

PassRunner::PassRunner(Device& device, const Plan& plan, const Batch& batch, std::byte* buffers)
    : device_(device), plan_(plan), batch_(batch), buffers_(buffers) {
  if (device.options.poison) std::memset(buffers_, 0xff, plan.buffers.total_bytes);
  for (const plan::Segment& s : batch.segments) {
    segments_.push_back({static_cast<SequenceState*>(s.state), s.position, s.first_row, s.rows});
  }
}

void PassRunner::Run(const Step& step) {
  const StageFunction function = step.lever != nullptr ? Replacement(*step.lever) : Canonical(step.stage);
  const StepContext context{device_.hp,
                            device_.weights,
                            step,
                            plan_.pass,
                            LayerOf(step),
                            batch_,
                            segments_,
                            rows(),
                            HowFor(step),
                            plan_.buffers.places,
                            buffers_,
                            device_.scratch,
                            device_.per_worker,
                            device_.options.share_all ? 0 : kWorthSharing};
  if (device_.options.poison) Poison(step);
  function(context);
}

void* PassRunner::Find(Slot slot) const {
  if (slot == Slot::kLogits) return batch_.logits;
  const auto& place = plan_.buffers.places[static_cast<size_t>(slot)];
  return place.bytes == 0 ? nullptr : buffers_ + place.offset;
}

int64_t PassRunner::RowsOf(Slot slot) const {
  return slot == Slot::kLogits ? static_cast<int64_t>(batch_.wanted.size()) : rows();
}

void PassRunner::FindBest() {
  if (batch_.best == nullptr) return;
  for (size_t i = 0; i < batch_.wanted.size(); ++i) {
    const float* const logits = batch_.logits + static_cast<int64_t>(i) * device_.hp.vocab_size;
    batch_.best[i] = plan::BestId({logits, static_cast<size_t>(batch_.usable_vocab)});
  }
}

void PassRunner::Advance() {
  for (const SegmentView& s : segments_) s.state->Advance(plan_.pass, s.rows);
}

// What a step only writes holds NaN before it, whoever used the bytes last.
void PassRunner::Poison(const Step& step) {
  for (const Slot slot : step.out) {
    const auto& place = plan_.buffers.places[static_cast<size_t>(slot)];
    if (std::find(step.in.begin(), step.in.end(), slot) != step.in.end() || place.bytes == 0) continue;
    std::memset(buffers_ + place.offset, 0xff, place.bytes);
  }
}

const model::Layer* PassRunner::LayerOf(const Step& step) const {
  if (step.layer < 0) return nullptr;
  return step.layer < device_.hp.layers ? &device_.weights.layers[step.layer]
                                        : &device_.weights.nextn[0].block;
}

How PassRunner::HowFor(const Step& step) const {
  How how{&ScalarKernels(), nullptr, false};
  const Kernels* by_name[3] = {nullptr, nullptr, nullptr};
  for (const plan::Lever* m : step.modifiers) {
    if (m->name == "simd.avx2") by_name[2] = Avx2Kernels();
    if (m->name == "simd.avx512")
      by_name[0] = Avx512VbmiKernels() != nullptr ? Avx512VbmiKernels() : Avx512Kernels();
    if (m->name == "simd.neon") by_name[1] = NeonKernels();
    if (m->name == "threads" && device_.pool.threads() > 1) how.pool = &device_.pool;
    if (m->name == "batch") how.batched = true;
    if (m->name == "act.int8") how.one_digit = true;
  }
  for (const Kernels* kernels : by_name) {
    if (kernels == nullptr) continue;
    how.kernels = kernels;
    break;
  }
  return how;
}

namespace {

class Execution final : public plan::Execution {
 public:
  Execution(Device& device, const Plan& plan, const Batch& batch, Pages buffers)
      : device_(device),
        plan_(plan),
        buffers_(std::move(buffers)),
        runner_(device, plan, WithLogits(device.hp, batch, logits_), buffers_.data()) {}

  Status RunStep(size_t step) override {
    if (step >= plan_.steps.size()) {
      return {Code::kInternal, fmt::format("step {} of a plan of {}", step, plan_.steps.size())};
    }
    runner_.Run(plan_.steps[step]);
    return {};
  }

  Status Read(Slot slot, void* out) const override {
    const void* from = runner_.Find(slot);
    if (from == nullptr) return Missing(slot);
    std::memcpy(out, from, Bytes(slot));
    return {};
  }

  Status Write(Slot slot, const void* in) override {
    void* to = runner_.Find(slot);
    if (to == nullptr) return Missing(slot);
    std::memcpy(to, in, Bytes(slot));
    return {};
  }

  Status CopySlot(const plan::Execution& from, Slot slot) override {
    const auto* other = dynamic_cast<const Execution*>(&from);
    if (other == nullptr || other->runner_.RowsOf(slot) != runner_.RowsOf(slot)) {
      return {Code::kInternal, fmt::format("'{}' of an execution of other rows", Name(slot))};
    }
    const void* source = other->runner_.Find(slot);
    return source == nullptr ? Missing(slot) : Write(slot, source);
  }

  Status Finish() override {
    runner_.FindBest();
    runner_.Advance();
    return {};
  }

 private:
  static Status Missing(Slot slot) {
    return {Code::kInternal, fmt::format("the plan keeps no '{}'", Name(slot))};
  }
  size_t Bytes(Slot slot) const {
    return static_cast<size_t>(4 * runner_.RowsOf(slot) * plan::Width(slot, device_.hp));
  }

  const Device& device_;
  const Plan& plan_;
  Pages buffers_;
  std::vector<float> logits_;  // where the caller has no memory for them
  PassRunner runner_;
};

}  // namespace

Result<std::unique_ptr<plan::Execution>> BeginExecution(Device& device, const Plan& plan,
                                                        const Batch& batch) {
  if (auto status = CheckPass(device, plan, batch); !status.ok()) return status;
  if (batch.tokens.empty()) return Status(Code::kInternal, "a pass of no rows");
  auto buffers = Pages::ReserveLarge(plan.buffers.total_bytes);
  if (!buffers.ok()) return buffers.status();
  return std::unique_ptr<plan::Execution>(new Execution(device, plan, batch, std::move(*buffers)));
}

}  // namespace glint::cpu
