#include "cuda/product.h"

namespace glint::cuda {

Status MoeSharedDown(const StepContext& c) {
  Operand x(c, c.Floats(plan::Slot::kSharedHidden), c.hp.shared_ffn, c.rows, c.hp.shared_ffn);
  return x.Times(c.layer->moe.shared_down, c.Floats(plan::Slot::kSharedOut), c.hp.hidden);
}

}  // namespace glint::cuda
