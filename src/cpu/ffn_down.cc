#include "cpu/stages.h"

namespace glint::cpu {

void FfnDown(const StepContext& c) {
  Operand(c, c.how, c.Floats(plan::Slot::kFfnHidden), c.hp.dense_ffn, c.rows, c.scratch)
      .Times(c.layer->dense.down, 0, c.Floats(plan::Slot::kBranch), c.hp.hidden);
}

}  // namespace glint::cpu
