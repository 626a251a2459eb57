#include "cuda/product.h"

namespace glint::cuda {

Status DsaOut(const StepContext& c) {
  const int64_t width = c.hp.heads * c.hp.v_head_dim;
  Operand x(c, c.Floats(plan::Slot::kAttended), width, c.rows, width);
  return x.Times(c.layer->dsa.out, c.Floats(plan::Slot::kBranch), c.hp.hidden);
}

}  // namespace glint::cuda
