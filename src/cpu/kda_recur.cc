// The gated delta rule in its grid form, row by row (docs/design.md; spec/model.md 5.3, 5.4). The definition.
#include <algorithm>

#include "cpu/kda_grid.h"
#include "cpu/stages.h"

namespace glint::cpu {

void KdaRecur(const StepContext& c) {
  const int64_t dim = c.hp.kda_head_dim, block = c.hp.block;
  const Kernels& kernels = *c.how.kernels;
  for (const SegmentView& segment : c.segments) {
    c.Parallel(c.hp.kda_heads, 1, [&](int64_t begin, int64_t end, Scratch& scratch) {
      float* const ke = scratch.Floats(0, 4 * dim);
      float *const qe = ke + dim, *const m = qe + dim, *const o = m + dim;
      for (int64_t h = begin; h < end; ++h) {
        const GridHead head = HeadOf(c, segment, h);
        for (int64_t r = 0; r < segment.rows; ++r) {
          const int64_t t = (segment.position + r) % block;
          const GridRow row = RowOf(c, segment, r, h);
          Decay(kernels, head, t, row, ke, qe);
          std::fill(m, m + 2 * dim, 0.0f);
          for (int64_t i = 0; i < dim; ++i) {
            kernels.axpy(ke[i], head.s + i * dim, m, dim);
            kernels.axpy(qe[i], head.s + i * dim, o, dim);
          }
          Finish(kernels, head, t, row, ke, qe, m, o);
          if (t == block - 1) Fold(kernels, head, block, ke);
        }
      }
    });
  }
}

}  // namespace glint::cpu
