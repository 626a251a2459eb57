// spec/model.md 5.5: each head's output to unit mean square, weighted and gated.
#include <algorithm>

#include "cpu/stages.h"

namespace glint::cpu {

void KdaNorm(const StepContext& c) {
  const int64_t dim = c.hp.kda_head_dim, heads = c.hp.kda_heads, width = c.hp.kda_width();
  const model::Vector w = c.layer->kda.o_norm;
  const float* const mixed = c.Floats(plan::Slot::kMixed);
  const float* const gate = c.Floats(plan::Slot::kOutGate);
  float* const out = c.Floats(plan::Slot::kMixedNormed);
  c.Parallel(c.rows, 1, [&](int64_t begin, int64_t end, Scratch& scratch) {
    float* const s = scratch.Floats(0, width);
    for (int64_t r = begin; r < end; ++r) {
      std::copy(gate + r * width, gate + (r + 1) * width, s);
      c.how.kernels->sigmoid(s, width);
      for (int64_t h = 0; h < heads; ++h) {
        const float* const o = mixed + r * width + h * dim;
        const float rms = InverseRms(*c.how.kernels, o, dim, c.hp.rms_eps);
        for (int64_t j = 0; j < dim; ++j)
          out[r * width + h * dim + j] = ((o[j] * rms) * w[j]) * s[h * dim + j];
      }
    }
  });
}

}  // namespace glint::cpu
