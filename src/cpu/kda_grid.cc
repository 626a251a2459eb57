#include "cpu/kda_grid.h"

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

void Finish(const Kernels& kernels, const GridHead& head, int64_t t, const GridRow& row, const float* ke,
            const float* qe, float* m, float* o) {
  const int64_t n = head.dim;
  for (int64_t s = 0; s < t; ++s) {
    const float* const kf = head.kf + s * head.stride;
    const float* const delta = head.delta + s * head.stride;
    kernels.axpy(kernels.dot16(ke, kf, n), delta, m, n);
    kernels.axpy(kernels.dot16(qe, kf, n), delta, o, n);
  }
  float* const delta = head.delta + t * head.stride;
  for (int64_t j = 0; j < n; ++j) delta[j] = row.beta * (row.v[j] - m[j]);
  kernels.axpy(kernels.dot16(qe, head.kf + t * head.stride, n), delta, o, n);
  for (int64_t j = 0; j < n; ++j) row.out[j] = o[j];
}

void Fold(const Kernels& kernels, const GridHead& head, int64_t block, float* decay) {
  const int64_t n = head.dim;
  kernels.exp(head.g + (block - 1) * head.stride, decay, n);
  for (int64_t i = 0; i < n; ++i) {
    float* const s = head.s + i * n;
    for (int64_t t = 0; t < block; ++t) {
      kernels.axpy(head.kf[t * head.stride + i], head.delta + t * head.stride, s, n);
    }
    for (int64_t j = 0; j < n; ++j) s[j] = decay[i] * s[j];
  }
}

}  // namespace glint::cpu
