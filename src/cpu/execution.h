// A pass carried out on the CPU: the code that runs one step of a plan, for Backend::Run and for executions step by step.
#pragma once
#include <memory>
#include <vector>

#include "base/thread_pool.h"
#include "cpu/backend.h"
#include "cpu/context.h"

namespace glint::cpu {

// What all passes of a backend share. One pass at a time uses it.
struct Device {
  Device(const model::HParams& hparams, const model::Weights& bound, int threads,
         const BackendOptions& chosen);
  const model::HParams& hp;
  const model::Weights& weights;
  const BackendOptions options;
  ThreadPool pool;
  Scratch scratch;
  std::vector<Scratch> per_worker;
};

// The engine has checked what a user can get wrong; this guards the memory against our own mistakes.
Status CheckPass(const Device& device, const plan::Plan& plan, const plan::Batch& batch);

// The batch with `memory` for its logits, if the caller has none for those it wants.
plan::Batch WithLogits(const model::HParams& hp, plan::Batch batch, std::vector<float>& memory);

// A checked pass over buffers that are the caller's: plan.buffers.total_bytes of them. Plan, batch and device must outlive it.
class PassRunner {
 public:
  PassRunner(Device& device, const plan::Plan& plan, const plan::Batch& batch, std::byte* buffers);
  int64_t rows() const { return static_cast<int64_t>(batch_.tokens.size()); }
  void Run(const plan::Step& step);
  // Where the slot lies; null if the plan has none.
  void* Find(plan::Slot slot) const;
  // Rows of the slot there: logits have but the wanted ones.
  int64_t RowsOf(plan::Slot slot) const;
  // After the last step: the batch's `best`, if it wants it.
  void FindBest();
  // The states have absorbed the rows.
  void Advance();

 private:
  void Poison(const plan::Step& step);
  const model::Layer* LayerOf(const plan::Step& step) const;
  How HowFor(const plan::Step& step) const;

  Device& device_;
  const plan::Plan& plan_;
  const plan::Batch batch_;
  std::byte* const buffers_;
  std::vector<SegmentView> segments_;
};

// Checks, and takes buffers for a pass of its own.
Result<std::unique_ptr<plan::Execution>> BeginExecution(Device& device, const plan::Plan& plan,
                                                        const plan::Batch& batch);

}  // namespace glint::cpu
