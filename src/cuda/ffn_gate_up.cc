#include "cuda/context.h"
#include "cuda/swiglu.h"

namespace glint::cuda {

Status FfnGateUp(const StepContext& c) {
  return GateUp(c, c.layer->dense.gate, c.layer->dense.up, plan::Slot::kFfnHidden);
}

}  // namespace glint::cuda
