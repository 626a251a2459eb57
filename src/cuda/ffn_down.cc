#include "cuda/product.h"

namespace glint::cuda {

Status FfnDown(const StepContext& c) {
  Operand x(c, c.Floats(plan::Slot::kFfnHidden), c.hp.dense_ffn, c.rows, c.hp.dense_ffn);
  return x.Times(c.layer->dense.down, c.Floats(plan::Slot::kBranch), c.hp.hidden);
}

}  // namespace glint::cuda
