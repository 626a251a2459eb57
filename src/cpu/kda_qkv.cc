#include "cpu/stages.h"

namespace glint::cpu {

void KdaQkv(const StepContext& c) {
  const int64_t width = c.hp.kda_width();
  float* const u = c.Floats(plan::Slot::kU);  // [rows][3][H * K]
  Operand x(c, c.how, c.Floats(plan::Slot::kX), c.hp.hidden, c.rows, c.scratch);
  x.Times(c.layer->kda.q, 0, u, 3 * width);
  x.Times(c.layer->kda.k, 0, u + width, 3 * width);
  x.Times(c.layer->kda.v, 0, u + 2 * width, 3 * width);
}

}  // namespace glint::cpu
