#include "cpu/stages.h"

namespace glint::cpu {

void DsaOut(const StepContext& c) {
  Operand(c, c.how, c.Floats(plan::Slot::kAttended), c.hp.heads * c.hp.v_head_dim, c.rows, c.scratch)
      .Times(c.layer->dsa.out, 0, c.Floats(plan::Slot::kBranch), c.hp.hidden);
}

}  // namespace glint::cpu
