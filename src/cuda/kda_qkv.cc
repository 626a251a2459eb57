#include "cuda/kda.h"
#include "cuda/product.h"

namespace glint::cuda {

Status KdaQkvOf(const StepContext& c, float* u) {
  const int64_t width = c.hp.kda_width();
  Operand x(c, c.Floats(plan::Slot::kX), c.hp.hidden, c.rows, c.hp.hidden);
  const auto& w = c.layer->kda;
  return x.TimesAll({{&w.q, u, 3 * width}, {&w.k, u + width, 3 * width}, {&w.v, u + 2 * width, 3 * width}});
}

Status KdaQkv(const StepContext& c) { return KdaQkvOf(c, c.Floats(plan::Slot::kU)); }

}  // namespace glint::cuda
