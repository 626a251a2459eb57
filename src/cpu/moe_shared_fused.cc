// Lever moe.shared_fused, serving moe.shared_gate_up.
#include "cpu/stages.h"
#include "cpu/swiglu.h"

namespace glint::cpu {

void MoeSharedFused(const StepContext& c) {
  GateUpFused(c, c.layer->moe.shared_gate, c.layer->moe.shared_up, c.Floats(plan::Slot::kSharedHidden));
}

}  // namespace glint::cpu
