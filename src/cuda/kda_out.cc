#include "cuda/product.h"

namespace glint::cuda {

Status KdaOut(const StepContext& c) {
  Operand x(c, c.Floats(plan::Slot::kMixedNormed), c.hp.kda_width(), c.rows, c.hp.kda_width());
  return x.Times(c.layer->kda.out, c.Floats(plan::Slot::kBranch), c.hp.hidden);
}

}  // namespace glint::cuda
