#include "cpu/stages.h"
#include "cpu/swiglu.h"

namespace glint::cpu {

void MoeSharedGateUp(const StepContext& c) {
  GateUp(c, c.layer->moe.shared_gate, c.layer->moe.shared_up, c.Floats(plan::Slot::kSharedHidden));
}

}  // namespace glint::cpu
