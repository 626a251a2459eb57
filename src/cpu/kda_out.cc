#include "cpu/stages.h"

namespace glint::cpu {

void KdaOut(const StepContext& c) {
  Operand(c, c.how, c.Floats(plan::Slot::kMixedNormed), c.hp.kda_width(), c.rows, c.scratch)
      .Times(c.layer->kda.out, 0, c.Floats(plan::Slot::kBranch), c.hp.hidden);
}

}  // namespace glint::cpu
