#include "cpu/stages.h"

namespace glint::cpu {

void Residual(const StepContext& c) {
  float* const residual = c.Floats(plan::Slot::kResidual);
  const float* const branch = c.Floats(plan::Slot::kBranch);
  for (int64_t i = 0; i < c.rows * c.hp.hidden; ++i) residual[i] += branch[i];
}

}  // namespace glint::cpu
