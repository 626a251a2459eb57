#include "cpu/swiglu.h"

namespace glint::cpu {

void GateUp(const StepContext& c, const model::Matrix& gate, const model::Matrix& up, float* hidden) {
  const int64_t width = gate.rows;
  float* const g = c.scratch.Floats(0, c.rows * width);
  Operand x(c, c.how, c.Floats(plan::Slot::kX), c.hp.hidden, c.rows, c.scratch);
  x.Times(gate, 0, g, width);
  x.Times(up, 0, hidden, width);
  c.Parallel(c.rows, 1, [&](int64_t begin, int64_t end, Scratch&) {
    for (int64_t r = begin; r < end; ++r) {
      c.how.kernels->swiglu(g + r * width, hidden + r * width, c.hp.swiglu_limit, hidden + r * width, width);
    }
  });
}

}  // namespace glint::cpu
