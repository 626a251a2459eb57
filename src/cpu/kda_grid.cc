#include "cpu/kda_grid.h"

#include <algorithm>

#include "base/mutation.h"

namespace glint::cpu {

GridHead HeadOf(const StepContext& c, const SegmentView& segment, int64_t head) {
  const KdaState state = segment.state->Kda(c.layer_index());
  const int64_t dim = c.hp.kda_head_dim, at = head * dim;
  return {state.s + head * dim * dim, state.kf + at, state.delta + at, state.g + at, dim, c.hp.kda_width()};
}

GridRow RowOf(const StepContext& c, const SegmentView& segment, int64_t row, int64_t head) {
  const int64_t width = c.hp.kda_width(), at = head * c.hp.kda_head_dim, r = segment.first_row + row;
  const float* const qkv = c.Floats(plan::Slot::kQkv) + r * 3 * width + at;
  return {qkv,
          qkv + width,
          qkv + 2 * width,
          c.Floats(plan::Slot::kDecay) + r * width + at,
          c.Floats(plan::Slot::kBeta)[r * c.hp.kda_heads + head],
          c.Floats(plan::Slot::kMixed) + r * width + at};
}

void Decay(const Kernels& kernels, const GridHead& head, int64_t t, const GridRow& row, float* ke,
           float* qe) {
  const int64_t n = head.dim;
  float* const g = head.g + t * head.stride;
  float* const kf = head.kf + t * head.stride;
  if (t == 0) {
    for (int64_t i = 0; i < n; ++i) g[i] = row.decay[i];
  } else {
    const float* const before = g - head.stride;
    for (int64_t i = 0; i < n; ++i) g[i] = before[i] + row.decay[i];
  }
  kernels.exp(g, qe, n);
  for (int64_t i = 0; i < n; ++i) {
    ke[i] = row.k[i] * qe[i];
    qe[i] = row.q[i] * qe[i];
    kf[i] = -g[i];
  }
  kernels.exp(kf, kf, n);
  for (int64_t i = 0; i < n; ++i) kf[i] = row.k[i] * kf[i];
}

void ReadState(const Kernels& kernels, const GridHead& head, const float* weights, int64_t rows,
               float* sums) {
  CombineArgs args{};
  args.a = weights;
  args.a_row = head.dim;
  args.a_step = 1;
  args.x = head.s;
  args.x_stride = head.dim;
  args.n = head.dim;
  args.dst = sums;
  args.dst_stride = head.dim;
  args.rows = rows;
  args.width = head.dim;
  std::fill(sums, sums + rows * head.dim, 0.0f);
  kernels.combine(args);
}

void Finish(const Kernels& kernels, const GridHead& head, int64_t t, const GridRow& row, const float* ke,
            const float* qe, float* m, float* o, float* weights) {
  const int64_t n = head.dim;
  // The weights of the earlier rows, L for m and P for o, then both sums.
  float* const l = weights;
  float* const p = weights + t;
  DotsArgs dots{};
  dots.a = ke, dots.a_stride = qe - ke, dots.rows = 2;
  dots.x = head.kf, dots.x_stride = head.stride, dots.n = t, dots.width = n;
  dots.out = l, dots.out_row = t, dots.out_step = 1;
  kernels.dots(dots);
  CombineArgs args{};
  args.a_step = 1;
  args.x = head.delta;
  args.x_stride = head.stride;
  args.n = t;
  args.rows = 1;
  args.width = n;
  args.a = l;
  args.dst = m;
  kernels.combine(args);
  args.a = p;
  args.dst = o;
  kernels.combine(args);
  float* const delta = head.delta + t * head.stride;
  for (int64_t j = 0; j < n; ++j) delta[j] = row.beta * (row.v[j] - m[j]);
  kernels.axpy(kernels.dot16(qe, head.kf + t * head.stride, n),
               Mutated(Mutation::kOlderDelta) && t > 0 ? delta - head.stride : delta, o, n);
  for (int64_t j = 0; j < n; ++j) row.out[j] = o[j];
}

void Fold(const Kernels& kernels, const GridHead& head, int64_t block, float* decay) {
  const int64_t n = head.dim;
  kernels.exp(head.g + (block - 1) * head.stride, decay, n);
  CombineArgs args{};  // row i of S takes delta_t with weight kF_t[i]
  args.a = head.kf;
  args.a_row = 1;
  args.a_step = head.stride;
  args.x = head.delta;
  args.x_stride = head.stride;
  args.n = block;
  args.dst = head.s;
  args.dst_stride = n;
  args.rows = n;
  args.width = n;
  kernels.combine(args);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) head.s[i * n + j] = decay[i] * head.s[i * n + j];
  }
}

}  // namespace glint::cpu
