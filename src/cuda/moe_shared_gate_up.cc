#include "cuda/context.h"
#include "cuda/swiglu.h"

namespace glint::cuda {

Status MoeSharedGateUp(const StepContext& c) {
  return GateUp(c, c.layer->moe.shared_gate, c.layer->moe.shared_up, plan::Slot::kSharedHidden);
}

}  // namespace glint::cuda
