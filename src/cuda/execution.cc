#include "cuda/execution.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "cuda/best.h"
#include "cuda/ranges.h"
#include "cuda/status.h"
#include "plan/check_pass.h"

namespace glint::cuda {

using plan::Batch;
using plan::Pass;
using plan::Plan;
using plan::Slot;
using plan::Step;

namespace {

uint64_t Aligned(uint64_t bytes) { return (bytes + 255) / 256 * 256; }

// Waits for the device, as the host is about to read or to rewrite memory it uses.
Status CopyNow(const Context& context, void* to, const void* from, int64_t bytes, cudaMemcpyKind kind,
               std::string_view what) {
  if (bytes <= 0) return {};
  Status status = Check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), kind, context.stream()), what);
  return status.ok() ? context.Wait() : status;
}

}  // namespace

Status BatchMemory::Reserve(const Device& device, int64_t rows, int64_t segments, int64_t wanted, bool best,
                            bool final_out, bool hidden_in) {
  const auto d = static_cast<uint64_t>(device.hp.hidden), vocab = static_cast<uint64_t>(device.hp.vocab_size);
  const auto n = static_cast<uint64_t>(rows), of_wanted = static_cast<uint64_t>(wanted);
  segments_at_ = Aligned(n * sizeof(RowView));
  wanted_at_ = segments_at_ + Aligned(static_cast<uint64_t>(segments) * sizeof(SegmentView));
  arrived_at_ = wanted_at_ + Aligned(of_wanted * sizeof(int32_t));
  hidden_at_ = arrived_at_ + Aligned(sizeof(uint32_t));
  in_bytes_ = hidden_at_ + (hidden_in ? Aligned(n * d * sizeof(float)) : 0);
  best_at_ = in_bytes_;
  logits_at_ = best_at_ + (best ? Aligned(of_wanted * sizeof(int32_t)) : 0);
  final_at_ = logits_at_ + Aligned(of_wanted * vocab * sizeof(float));
  const uint64_t bytes = final_at_ + (final_out ? n * d * sizeof(float) : 0);
  const DeviceBatch before = view_;
  if (bytes > device_.bytes()) {
    device_ = {};
    host_ = {};
    auto on_device = DeviceMemory::Take(*device.context, bytes, "a batch and its logits");
    if (!on_device.ok()) return on_device.status();
    auto on_host = PinnedMemory::Take(bytes, "a batch and its logits");
    if (!on_host.ok()) return on_host.status();
    device_ = std::move(*on_device);
    host_ = std::move(*on_host);
  }
  std::byte* const at = device_.data();
  view_.rows = reinterpret_cast<const RowView*>(at);
  view_.segments = reinterpret_cast<const SegmentView*>(at + segments_at_);
  view_.wanted = reinterpret_cast<const int32_t*>(at + wanted_at_);
  view_.arrived = reinterpret_cast<uint32_t*>(at + arrived_at_);
  view_.hidden_in = hidden_in ? reinterpret_cast<const float*>(at + hidden_at_) : nullptr;
  view_.best = best ? reinterpret_cast<int32_t*>(host_.data() + best_at_) : nullptr;
  view_.logits = reinterpret_cast<float*>(at + logits_at_);
  view_.final_out = final_out ? reinterpret_cast<float*>(at + final_at_) : nullptr;
  if (std::memcmp(&before, &view_, sizeof(view_)) != 0) ++moves_;
  return {};
}

Status BatchMemory::Fill(const Device& device, const Batch& batch) {
  auto* const rows = reinterpret_cast<RowView*>(host_.data());
  auto* const segments = reinterpret_cast<SegmentView*>(host_.data() + segments_at_);
  for (size_t s = 0; s < batch.segments.size(); ++s) {
    const plan::Segment& segment = batch.segments[s];
    const LayerState* const layers = static_cast<const SequenceState*>(segment.state)->layers();
    segments[s] = {layers, segment.position, segment.first_row, segment.rows};
    for (int r = segment.first_row; r < segment.first_row + segment.rows; ++r)
      rows[r] = {layers, segment.position + r - segment.first_row, batch.tokens[static_cast<size_t>(r)],
                 static_cast<int32_t>(s)};
  }
  std::copy(batch.wanted.begin(), batch.wanted.end(), reinterpret_cast<int32_t*>(host_.data() + wanted_at_));
  *reinterpret_cast<uint32_t*>(host_.data() + arrived_at_) = 0;
  if (view_.hidden_in != nullptr) {
    std::memcpy(host_.data() + hidden_at_, batch.hidden_in,
                sizeof(float) * batch.tokens.size() * static_cast<size_t>(device.hp.hidden));
  }
  return Check(cudaMemcpyAsync(device_.data(), host_.data(), in_bytes_, cudaMemcpyHostToDevice,
                               device.context->stream()),
               "copying a batch to the GPU");
}

Status BatchMemory::Return(const Device& device, const Batch& batch, bool with_logits, bool with_final,
                           bool with_best) {
  const uint64_t logits =
      with_logits && batch.logits != nullptr
          ? sizeof(float) * batch.wanted.size() * static_cast<size_t>(device.hp.vocab_size)
          : 0;
  const uint64_t final_rows =
      with_final && batch.final_out != nullptr
          ? sizeof(float) * batch.tokens.size() * static_cast<size_t>(device.hp.hidden)
          : 0;
  const auto fetch = [&](uint64_t at, uint64_t bytes, std::string_view what) {
    if (bytes == 0) return Status();
    return Check(cudaMemcpyAsync(host_.data() + at, device_.data() + at, bytes, cudaMemcpyDeviceToHost,
                                 device.context->stream()),
                 what);
  };
  if (Status status = fetch(logits_at_, logits, "fetching logits"); !status.ok()) return status;
  if (Status status = fetch(final_at_, final_rows, "fetching final rows"); !status.ok()) return status;
  if (Status status = device.context->Wait(); !status.ok()) return status;
  if (with_best && batch.best != nullptr) std::copy_n(view_.best, batch.wanted.size(), batch.best);
  if (logits != 0) std::memcpy(batch.logits, host_.data() + logits_at_, logits);
  if (final_rows != 0) std::memcpy(batch.final_out, host_.data() + final_at_, final_rows);
  return {};
}

Status CheckPass(const Device& device, const Plan& plan, const Batch& batch) {
  const auto ours = [](const plan::GridSequence& state) {
    return dynamic_cast<const SequenceState*>(&state) != nullptr;
  };
  if (Status status = plan::CheckPass(device.hp, plan, batch, ours, "GPU"); !status.ok()) return status;
  for (const plan::Segment& s : batch.segments) {
    if (&static_cast<const SequenceState*>(s.state)->context() != device.context.get())
      return {Code::kInternal, "a sequence of another GPU's backend"};
  }
  for (const Step& step : plan.steps) {
    if (step.lever != nullptr && Replacement(*step.lever) == nullptr)
      return {Code::kInternal, fmt::format("lever '{}' is not one of the GPU's", step.lever->name)};
  }
  return {};
}

Status ReserveScratch(Device& device, const Plan& plan, const Batch& batch) {
  int64_t capacity = 0;
  for (const plan::Segment& s : batch.segments) capacity = std::max(capacity, s.state->capacity());
  const uint64_t bytes = ScratchBytes(device.hp, plan.max_rows, capacity);
  if (bytes <= device.scratch.bytes()) return {};
  device.scratch = {};
  auto memory = DeviceMemory::Take(*device.context, bytes, "the scratch memory of a pass");
  if (!memory.ok()) return memory.status();
  device.scratch = std::move(*memory);
  ++device.scratch_moves;
  return {};
}

uint64_t PassBytes(const Device& device, const Plan& plan) {
  return Aligned(plan.buffers.total_bytes) + SlotDigits::Bytes(device.hp, plan.max_rows);
}

PassRunner::PassRunner(Device& device, const Plan& plan, const Batch& batch, const DeviceBatch& on_device,
                       std::byte* buffers)
    : device_(device),
      plan_(plan),
      batch_(batch),
      on_device_(on_device),
      buffers_(buffers),
      digits_(device.hp, plan.max_rows, buffers + Aligned(plan.buffers.total_bytes)) {
  for (const plan::Segment& s : batch.segments) capacity_ = std::max(capacity_, s.state->capacity());
}

Status PassRunner::Start() {
  if (!device_.options.poison) return {};
  return Check(cudaMemsetAsync(buffers_, 0xff, PassBytes(device_, plan_), device_.context->stream()),
               "poisoning the buffers");
}

Status PassRunner::Run(const Step& step) {
  const Range range([&] {
    return fmt::format("{} {}", step.lever != nullptr ? step.lever->name : Name(step.stage), step.layer);
  });
  if (device_.options.poison) {
    if (Status status = Poison(step); !status.ok()) return status;
  }
  for (const Slot slot : step.out) digits_.Forget(slot);
  How how;
  for (const plan::Lever* m : step.modifiers) how.tensor_cores = how.tensor_cores || m->name == "mma";
  Scratch scratch(device_.scratch.data(), device_.scratch.bytes());
  const plan::StateLayout& layout = static_cast<const SequenceState*>(batch_.segments[0].state)->layout();
  const StepContext context{device_.hp,
                            device_.weights,
                            *device_.on_device,
                            *device_.tables,
                            step,
                            plan_.pass,
                            LayerOf(step),
                            rows(),
                            static_cast<int64_t>(batch_.segments.size()),
                            static_cast<int64_t>(batch_.wanted.size()),
                            capacity_,
                            on_device_,
                            how,
                            layout.conv_ring,
                            layout.raw_ring,
                            plan_.buffers.places,
                            buffers_,
                            scratch,
                            device_.context->device(),
                            device_.context->stream(),
                            device_.context->side(),
                            &digits_,
                            device_.context->device().compiled_major >= 9};
  return step.lever != nullptr ? Replacement(*step.lever)(context) : Canonical(step.stage)(context);
}

void* PassRunner::Find(Slot slot) const {
  if (slot == Slot::kLogits) return on_device_.logits;
  const auto& place = plan_.buffers.places[static_cast<size_t>(slot)];
  return place.bytes == 0 ? nullptr : buffers_ + place.offset;
}

int64_t PassRunner::RowsOf(Slot slot) const {
  return slot == Slot::kLogits ? static_cast<int64_t>(batch_.wanted.size()) : rows();
}

Status PassRunner::FindBest() {
  if (batch_.best == nullptr || batch_.wanted.empty()) return {};
  const auto rows = static_cast<int64_t>(batch_.wanted.size());
  Scratch scratch(device_.scratch.data(), device_.scratch.bytes());
  auto* const keys = scratch.Take<uint64_t>(BestKeys(rows));
  if (keys == nullptr) return {Code::kInternal, "no temporary memory for the best logits"};
  LaunchBest({on_device_.logits, rows, device_.hp.vocab_size, batch_.usable_vocab, keys, on_device_.arrived,
              on_device_.best},
             device_.context->stream());
  return Check(cudaGetLastError(), "launching the search for the best logits");
}

void PassRunner::Advance() {
  for (const plan::Segment& s : batch_.segments)
    static_cast<SequenceState*>(s.state)->Advance(plan_.pass, s.rows);
}

// What a step only writes holds NaN before it, whoever used the bytes last; so does all scratch.
Status PassRunner::Poison(const Step& step) {
  const cudaStream_t stream = device_.context->stream();
  Status status = Check(cudaMemsetAsync(device_.scratch.data(), 0xff, device_.scratch.bytes(), stream),
                        "poisoning scratch");
  for (const Slot slot : step.out) {
    const auto& place = plan_.buffers.places[static_cast<size_t>(slot)];
    if (!status.ok() || place.bytes == 0 || std::find(step.in.begin(), step.in.end(), slot) != step.in.end())
      continue;
    status = Check(cudaMemsetAsync(buffers_ + place.offset, 0xff, place.bytes, stream), "poisoning a slot");
  }
  return status;
}

const model::Layer* PassRunner::LayerOf(const Step& step) const {
  if (step.layer < 0) return nullptr;
  return step.layer < device_.hp.layers ? &device_.weights.layers[static_cast<size_t>(step.layer)]
                                        : &device_.weights.nextn[0].block;
}

namespace {

class Execution final : public plan::Execution {
 public:
  Execution(Device& device, const Plan& plan, const Batch& batch, BatchMemory batch_memory,
            DeviceMemory buffers)
      : device_(device),
        plan_(plan),
        batch_(batch),
        batch_memory_(std::move(batch_memory)),
        buffers_(std::move(buffers)),
        runner_(device, plan, batch_, batch_memory_.view(), buffers_.data()) {}

  Status Start() { return runner_.Start(); }

  Status RunStep(size_t step) override {
    if (step >= plan_.steps.size()) {
      return {Code::kInternal, fmt::format("step {} of a plan of {}", step, plan_.steps.size())};
    }
    if (Status status = device_.context->Enter(); !status.ok()) return status;
    if (Status status = runner_.Run(plan_.steps[step]); !status.ok()) {
      (void)device_.context->Wait();  // what was launched still uses the scratch
      return status;
    }
    // Who goes step by step may look at the caller's memory as soon as a step has written it.
    const auto& covers = plan_.steps[step].covers;
    const auto done = [&](plan::Stage stage) {
      return std::find(covers.begin(), covers.end(), stage) != covers.end();
    };
    return batch_memory_.Return(device_, batch_, done(plan::Stage::kHeadLogits), done(plan::Stage::kHeadNorm),
                                false);
  }

  Status Read(Slot slot, void* out) const override {
    const void* from = runner_.Find(slot);
    if (from == nullptr) return Missing(slot);
    return CopyNow(*device_.context, out, from, runner_.BytesOf(slot), cudaMemcpyDeviceToHost,
                   "reading a slot");
  }

  Status Write(Slot slot, const void* in) override {
    void* to = runner_.Find(slot);
    if (to == nullptr) return Missing(slot);
    runner_.Forget(slot);
    return CopyNow(*device_.context, to, in, runner_.BytesOf(slot), cudaMemcpyHostToDevice, "writing a slot");
  }

  Status CopySlot(const plan::Execution& from, Slot slot) override {
    const auto* other = dynamic_cast<const Execution*>(&from);
    if (other == nullptr || other->runner_.RowsOf(slot) != runner_.RowsOf(slot)) {
      return {Code::kInternal, fmt::format("'{}' of an execution of other rows", Name(slot))};
    }
    const void* source = other->runner_.Find(slot);
    void* to = runner_.Find(slot);
    if (source == nullptr || to == nullptr) return Missing(slot);
    runner_.Forget(slot);
    return CopyNow(*device_.context, to, source, runner_.BytesOf(slot), cudaMemcpyDeviceToDevice,
                   "copying a slot");
  }

  Status Finish() override {
    if (Status status = device_.context->Enter(); !status.ok()) return status;
    if (Status status = runner_.FindBest(); !status.ok()) return status;
    if (Status status = batch_memory_.Return(device_, batch_, false, false, true); !status.ok())
      return status;
    runner_.Advance();
    return {};
  }

 private:
  static Status Missing(Slot slot) {
    return {Code::kInternal, fmt::format("the plan keeps no '{}'", Name(slot))};
  }

  Device& device_;
  const Plan& plan_;
  const Batch batch_;
  BatchMemory batch_memory_;
  DeviceMemory buffers_;
  PassRunner runner_;
};

}  // namespace

Result<std::unique_ptr<plan::Execution>> BeginExecution(Device& device, const Plan& plan,
                                                        const Batch& batch) {
  if (Status status = device.context->Enter(); !status.ok()) return status;
  if (Status status = CheckPass(device, plan, batch); !status.ok()) return status;
  if (batch.tokens.empty()) return Status(Code::kInternal, "a pass of no rows");
  if (Status status = ReserveScratch(device, plan, batch); !status.ok()) return status;
  BatchMemory batch_memory;
  Status status = batch_memory.Reserve(device, static_cast<int64_t>(batch.tokens.size()),
                                       static_cast<int64_t>(batch.segments.size()),
                                       static_cast<int64_t>(batch.wanted.size()), batch.best != nullptr,
                                       batch.final_out != nullptr, batch.hidden_in != nullptr);
  if (status.ok()) status = batch_memory.Fill(device, batch);
  if (!status.ok()) return status;
  auto buffers = DeviceMemory::Take(*device.context, PassBytes(device, plan), "the buffers of a pass");
  if (!buffers.ok()) return buffers.status();
  auto execution =
      std::make_unique<Execution>(device, plan, batch, std::move(batch_memory), std::move(*buffers));
  if (status = execution->Start(); !status.ok()) return status;
  return std::unique_ptr<plan::Execution>(std::move(execution));
}

}  // namespace glint::cuda
