#include <algorithm>

#include "cpu/stages.h"

namespace glint::cpu {

void HeadLogits(const StepContext& c) {
  const int64_t d = c.hp.hidden;
  const auto wanted = static_cast<int64_t>(c.batch.wanted.size());
  if (wanted == 0) return;
  const float* x = c.Floats(plan::Slot::kFinal);
  if (wanted != c.rows) {
    float* const gathered = c.scratch.Floats(0, wanted * d);
    for (int64_t i = 0; i < wanted; ++i) std::copy_n(x + c.batch.wanted[i] * d, d, gathered + i * d);
    x = gathered;
  }
  Operand(c, c.how, x, d, wanted, c.scratch).Times(c.weights.head, 0, c.batch.logits, c.hp.vocab_size);
}

}  // namespace glint::cpu
