#include "cpu/stages.h"

namespace glint::cpu {

void KdaQkv(const StepContext& c) {
  const int64_t width = c.hp.kda_width();
  float* const u = c.Floats(plan::Slot::kU);  // [rows][3][H * K]
  Operand x(c, c.how, c.Floats(plan::Slot::kX), c.hp.hidden, c.rows, c.scratch);
  const auto& w = c.layer->kda;
  Products(c.Sharing(3 * width * c.hp.hidden * c.rows),
           std::array{x.By(w.q, u, 3 * width), x.By(w.k, u + width, 3 * width),
                      x.By(w.v, u + 2 * width, 3 * width)});
}

}  // namespace glint::cpu
