// Lever kda.block, serving kda.recur: all rows of a block that are in the pass go over S together, so that S
// is read once a block and not once a row. Every sum keeps its order: over i for each row, then over the
// earlier rows.
#include <algorithm>

#include "base/mutation.h"
#include "cpu/kda_grid.h"
#include "cpu/stages.h"

namespace glint::cpu {

void KdaBlock(const StepContext& c) {
  const int64_t dim = c.hp.kda_head_dim, block = c.hp.block;
  const Kernels& kernels = *c.how.kernels;
  for (const SegmentView& segment : c.segments) {
    c.Parallel(c.hp.kda_heads, 1, [&](int64_t begin, int64_t end, Scratch& scratch) {
      float* const ke = scratch.Floats(0, 4 * block * dim + 2 * block);  // [rows][kE, qE], [rows][m, o]
      float *const m = ke + 2 * block * dim, *const weights = m + 2 * block * dim;
      for (int64_t h = begin; h < end; ++h) {
        const GridHead head = HeadOf(c, segment, h);
        for (int64_t r = 0; r < segment.rows;) {
          const int64_t t0 = (Mutated(Mutation::kBlockFromThePass) ? r : segment.position + r) % block;
          const int64_t count = std::min(block - t0, segment.rows - r);
          for (int64_t n = 0; n < count; ++n) {
            float* const kq = ke + 2 * n * dim;
            Decay(kernels, head, t0 + n, RowOf(c, segment, r + n, h), kq, kq + dim);
          }
          ReadState(kernels, head, ke, 2 * count, m);
          for (int64_t n = 0; n < count; ++n) {
            const float* const kq = ke + 2 * n * dim;
            float* const mo = m + 2 * n * dim;
            Finish(kernels, head, t0 + n, RowOf(c, segment, r + n, h), kq, kq + dim, mo, mo + dim, weights);
          }
          if (t0 + count == block && !Mutated(Mutation::kLeverNeverFolds)) Fold(kernels, head, block, ke);
          r += count;
        }
      }
    });
  }
}

}  // namespace glint::cpu
