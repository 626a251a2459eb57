// A pass carried out on the GPU: the code that enqueues one step of a plan, for Backend::Run and for executions step by step.
#pragma once
#include <memory>
#include <vector>

#include "cuda/backend.h"
#include "cuda/context.h"
#include "cuda/digits.h"
#include "cuda/memory.h"
#include "cuda/state.h"
#include "cuda/tables.h"
#include "cuda/weights.h"

namespace glint::cuda {

// What all passes of a backend share. One pass at a time uses it.
struct Device {
  const model::HParams& hp;
  const model::Weights& weights;
  const BackendOptions options;
  std::shared_ptr<const Context> context;
  std::shared_ptr<const DeviceWeights> on_device;
  std::shared_ptr<const DeviceTables> tables;
  DeviceMemory scratch;        // grows to what the largest plan so far wants
  uint64_t scratch_moves = 0;  // how often its address changed
};

// The batch of a pass in device memory, at addresses that stay the same as long as it does not grow: a captured graph refers to them.
class BatchMemory {
 public:
  // Room for a batch of that many rows, segments and wanted rows.
  Status Reserve(const Device& device, int64_t rows, int64_t segments, int64_t wanted, bool best,
                 bool final_out, bool hidden_in);
  // Enqueues the copies of what the caller's batch says.
  Status Fill(const Device& device, const plan::Batch& batch);
  const DeviceBatch& view() const { return view_; }
  // Counts how often addresses inside changed: the memory grew, or was divided otherwise.
  uint64_t moves() const { return moves_; }
  // After the pass: enqueues the copies of logits and final rows to the host, waits, and hands them and the choices to the caller.
  Status Return(const Device& device, const plan::Batch& batch, bool with_logits = true,
                bool with_final = true, bool with_best = true);

 private:
  PinnedMemory host_;
  DeviceMemory device_;
  DeviceBatch view_;
  uint64_t moves_ = 0;
  uint64_t in_bytes_ = 0;  // of the part that travels to the device
  uint64_t segments_at_ = 0, wanted_at_ = 0, arrived_at_ = 0, hidden_at_ = 0, best_at_ = 0, logits_at_ = 0,
           final_at_ = 0;
};

Status CheckPass(const Device& device, const plan::Plan& plan, const plan::Batch& batch);
// Scratch for the plan's widest step over the batch's sequences.
Status ReserveScratch(Device& device, const plan::Plan& plan, const plan::Batch& batch);

// What a pass's buffers take, with the digits of its slots behind them.
uint64_t PassBytes(const Device& device, const plan::Plan& plan);

// A checked pass over buffers that are the caller's: PassBytes of device memory. All references must outlive it.
class PassRunner {
 public:
  PassRunner(Device& device, const plan::Plan& plan, const plan::Batch& batch, const DeviceBatch& on_device,
             std::byte* buffers);
  int64_t rows() const { return static_cast<int64_t>(batch_.tokens.size()); }
  int64_t capacity() const { return capacity_; }  // of the largest sequence
  Status Start();                                 // before the first step
  Status Run(const plan::Step& step);
  // Where the slot lies in device memory; null if the plan has none.
  void* Find(plan::Slot slot) const;
  // Somebody else is about to write the slot.
  void Forget(plan::Slot slot) { digits_.Forget(slot); }
  // Rows of the slot there: logits have but the wanted ones.
  int64_t RowsOf(plan::Slot slot) const;
  int64_t BytesOf(plan::Slot slot) const { return 4 * RowsOf(slot) * plan::Width(slot, device_.hp); }
  // After the last step: enqueues what finds the batch's `best`, if it wants it.
  Status FindBest();
  // The states have absorbed the rows.
  void Advance();

 private:
  Status Poison(const plan::Step& step);
  const model::Layer* LayerOf(const plan::Step& step) const;

  Device& device_;
  const plan::Plan& plan_;
  const plan::Batch& batch_;
  const DeviceBatch& on_device_;
  std::byte* const buffers_;
  SlotDigits digits_;
  int64_t capacity_ = 0;
};

// Checks, and takes buffers for a pass of its own.
Result<std::unique_ptr<plan::Execution>> BeginExecution(Device& device, const plan::Plan& plan,
                                                        const plan::Batch& batch);

}  // namespace glint::cuda
