// spec/model.md 4.2: the sublayer's output spread over the streams, the streams mixed. In place.
#include <algorithm>

#include "cpu/stages.h"

namespace glint::cpu {

void HcPost(const StepContext& c) {
  const int64_t d = c.hp.hidden, n = c.hp.hc_mult;
  float* const streams = c.Floats(plan::Slot::kStreams);
  const float* const branch = c.Floats(plan::Slot::kBranch);
  const float* const post = c.Floats(plan::Slot::kPost);
  const float* const comb = c.Floats(plan::Slot::kComb);
  c.Parallel(c.rows, 1, [&](int64_t begin, int64_t end, Scratch& scratch) {
    float* const next = scratch.Floats(0, n * d);
    for (int64_t r = begin; r < end; ++r) {
      float* const x = streams + r * n * d;
      for (int64_t h = 0; h < n; ++h) {
        float* const out = next + h * d;
        for (int64_t i = 0; i < d; ++i) out[i] = post[r * n + h] * branch[r * d + i];
        for (int64_t j = 0; j < n; ++j) c.how.kernels->axpy(comb[(r * n + j) * n + h], x + j * d, out, d);
      }
      std::copy(next, next + n * d, x);
    }
  });
}

}  // namespace glint::cpu
