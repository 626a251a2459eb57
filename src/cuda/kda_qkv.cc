#include "cuda/product.h"

namespace glint::cuda {

Status KdaQkv(const StepContext& c) {
  const int64_t width = c.hp.kda_width();
  float* const u = c.Floats(plan::Slot::kU);  // [rows][3][H * K]
  Operand x(c, c.Floats(plan::Slot::kX), c.hp.hidden, c.rows, c.hp.hidden);
  const auto& w = c.layer->kda;
  return x.TimesAll({{&w.q, u, 3 * width}, {&w.k, u + width, 3 * width}, {&w.v, u + 2 * width, 3 * width}});
}

}  // namespace glint::cuda
