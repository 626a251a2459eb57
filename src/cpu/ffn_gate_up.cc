#include "cpu/stages.h"
#include "cpu/swiglu.h"

namespace glint::cpu {

void FfnGateUp(const StepContext& c) {
  GateUp(c, c.layer->dense.gate, c.layer->dense.up, c.Floats(plan::Slot::kFfnHidden));
}

}  // namespace glint::cpu
