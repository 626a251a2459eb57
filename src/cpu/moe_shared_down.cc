#include "cpu/stages.h"

namespace glint::cpu {

void MoeSharedDown(const StepContext& c) {
  Operand(c, c.how, c.Floats(plan::Slot::kSharedHidden), c.hp.shared_ffn, c.rows, c.scratch)
      .Times(c.layer->moe.shared_down, 0, c.Floats(plan::Slot::kSharedOut), c.hp.hidden);
}

}  // namespace glint::cpu
