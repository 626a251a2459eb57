// Lever ffn.fused, serving ffn.gate_up.
#include "cpu/stages.h"
#include "cpu/swiglu.h"

namespace glint::cpu {

void FfnFused(const StepContext& c) {
  GateUpFused(c, c.layer->dense.gate, c.layer->dense.up, c.Floats(plan::Slot::kFfnHidden));
}

}  // namespace glint::cpu
