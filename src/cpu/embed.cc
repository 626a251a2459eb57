#include <algorithm>

#include "cpu/stages.h"

namespace glint::cpu {

void Embed(const StepContext& c) {
  const int64_t d = c.hp.hidden, n = c.hp.hc_mult;
  float* const streams = c.Floats(plan::Slot::kStreams);  // [rows][n][D]
  c.Parallel(c.rows, 1, [&](int64_t begin, int64_t end, Scratch&) {
    for (int64_t r = begin; r < end; ++r) {
      float* const row = streams + r * n * d;
      DecodeRow(c.weights.embedding, c.batch.tokens[r], row);
      for (int64_t h = 1; h < n; ++h) std::copy(row, row + d, row + h * d);
    }
  });
}

}  // namespace glint::cpu
