#include "cpu/swiglu.h"

namespace glint::cpu {

void GateUp(const StepContext& c, const model::Matrix& gate, const model::Matrix& up, float* hidden) {
  const int64_t width = gate.rows;
  float* const g = c.scratch.Floats(0, c.rows * width);
  Operand x(c, c.how, c.Floats(plan::Slot::kX), c.hp.hidden, c.rows, c.scratch);
  const ProductOf by_gate = x.By(gate, g, width), by_up = x.By(up, hidden, width);
  // As in the routed experts' stage: of some outputs both products and the activation.
  c.Parallel(width, c.Share(width, 2 * gate.columns * c.rows, 32), [&](int64_t begin, int64_t end, Scratch&) {
    ProductRange(c.how, by_gate, begin, end, up.Row(0, begin));
    ProductRange(c.how, by_up, begin, end, gate.Row(0, end));
    for (int64_t r = 0; r < c.rows; ++r) {
      float* const h = hidden + r * width + begin;
      c.how.kernels->swiglu(g + r * width + begin, h, c.hp.swiglu_limit, h, end - begin);
    }
  });
}

}  // namespace glint::cpu
