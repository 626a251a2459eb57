// The state of sequences in device memory (plan/grid_sequence.h), as the kernels see it.
#pragma once
#include <memory>

#include "cuda/context.h"
#include "cuda/memory.h"
#include "plan/grid_sequence.h"

namespace glint::cuda {

class SequenceState final : public plan::GridSequence {
 public:
  // poison: memory that holds nothing of the sequence is NaN at any time between passes. For tests; slow.
  static Result<std::unique_ptr<SequenceState>> Create(std::shared_ptr<const Context> context,
                                                       const plan::StateLayout& layout, bool poison = false);
  // Device addresses of all layers' parts, in device memory: [layers + 1].
  const LayerState* layers() const;
  const Context& context() const;

 private:
  SequenceState(const plan::StateLayout& layout, std::unique_ptr<plan::StateMemory> memory, bool poison)
      : GridSequence(layout, std::move(memory), poison) {}
  std::unique_ptr<plan::GridSequence> Over(std::unique_ptr<plan::StateMemory> memory) const override;
};

}  // namespace glint::cuda
