// The gated delta rule in its grid form, row by row (docs/design.md; spec/model.md 5.3, 5.4). The definition.
#include "base/mutation.h"
#include "cpu/kda_grid.h"
#include "cpu/stages.h"

namespace glint::cpu {

void KdaRecur(const StepContext& c) {
  const int64_t dim = c.hp.kda_head_dim, block = c.hp.block;
  const Kernels& kernels = *c.how.kernels;
  for (const SegmentView& segment : c.segments) {
    c.Parallel(c.hp.kda_heads, 1, [&](int64_t begin, int64_t end, Scratch& scratch) {
      float* const ke = scratch.Floats(0, 4 * dim + 2 * block);  // [2][K]: kE, qE; [2][K]: m, o
      float *const m = ke + 2 * dim, *const weights = m + 2 * dim;
      for (int64_t h = begin; h < end; ++h) {
        const GridHead head = HeadOf(c, segment, h);
        for (int64_t r = 0; r < segment.rows; ++r) {
          const int64_t t = (segment.position + r) % block;
          const GridRow row = RowOf(c, segment, r, h);
          Decay(kernels, head, t, row, ke, ke + dim);
          ReadState(kernels, head, ke, 2, m);
          Finish(kernels, head, t, row, ke, ke + dim, m, m + dim, weights);
          if (t == block - 1 && !Mutated(Mutation::kBlockNotFolded)) Fold(kernels, head, block, ke);
        }
      }
    });
  }
}

}  // namespace glint::cpu
