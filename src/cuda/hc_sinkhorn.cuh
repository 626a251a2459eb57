// The matrix m[j][h] of a row (j source stream, h destination) by one warp: softmax of each row plus eps, a column step, then
// iters - 1 times a row step and a column step. All sums in index order from +0.
#pragma once
#include <cstdint>

#include "cuda/math.cuh"

namespace glint::cuda {

__device__ inline float Reciprocal(float x) {  // to a unit of the last place or so
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
// v / s, correctly rounded like the operator, whose way it goes without asking whether anything might over- or underflow: for v and s
// between 2^-100 and 2^100, or NaN.
__device__ inline float DivideModerate(float v, float s) {
  float r = Reciprocal(s), q = v * r;
  r = fmaf(r, fmaf(-s, r, 1.0f), r);  // beside q's remainder
  q = fmaf(r, fmaf(-s, q, v), q);
  return fmaf(r, fmaf(-s, q, v), q);
}

// Four streams: lane 4 j + h (and again 16 above) passes the logit of m[j][h] and gets the entry; sums come by shuffles.
__device__ inline float SinkhornOfFour(float v, int64_t iters, float eps) {
  constexpr unsigned kWarp = 0xffffffffu;
  const int lane = static_cast<int>(threadIdx.x) & 15, row = lane & ~3, column = lane & 3;
  // No entry is -0, so that the first one is what +0 and it add up to.
  const auto sum_of = [&](int first, int step) {
    float entry[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) entry[i] = __shfl_sync(kWarp, v, first + i * step, 16);
    return ((entry[0] + entry[1]) + entry[2]) + entry[3];
  };
  float top = __shfl_sync(kWarp, v, row, 16);
#pragma unroll
  for (int h = 1; h < 4; ++h) top = StdMax(top, __shfl_sync(kWarp, v, row + h, 16));
  v = Exp(v - top);
  v = v / sum_of(row, 1) + eps;
  v = v / (sum_of(column, 4) + eps);
  // No entry falls below 2^-80: the permanent, at first some eps^4 or more, grows in every step by the inverse of the sums' product and
  // never passes 1, which is too little for sums near 4 in many steps.
  if (eps >= 1e-6f && iters <= 20) {
    // Two steps that change nothing end it: all others would change nothing either. A turn later, lest the next one wait for the vote.
    bool settled = false, still = false;
    for (int64_t i = 1; i < iters && !settled; ++i) {
      const float before = v;
      v = DivideModerate(v, sum_of(row, 1) + eps);
      v = DivideModerate(v, sum_of(column, 4) + eps);
      settled = still;
      still = __all_sync(kWarp, v == before) != 0;
    }
    return v;
  }
  for (int64_t i = 1; i < iters; ++i) {
    v = v / (sum_of(row, 1) + eps);
    v = v / (sum_of(column, 4) + eps);
  }
  return v;
}

// Any number of streams: lane l owns row l, then column l, of m in shared memory, which holds the logits.
__device__ inline void Sinkhorn(float* m, int n, int64_t iters, float eps, float* out) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto divide = [&](int first, int step) {
    if (lane < n) {
      float sum = 0;
      for (int i = 0; i < n; ++i) sum += m[first + i * step];
      sum += eps;
      for (int i = 0; i < n; ++i) m[first + i * step] = m[first + i * step] / sum;
    }
    __syncwarp();  // the other direction reads what this one wrote
  };
  if (lane < n) {
    float* const row = m + lane * n;
    float top = row[0];
    for (int h = 1; h < n; ++h) top = StdMax(top, row[h]);
    float sum = 0;
    for (int h = 0; h < n; ++h) {
      row[h] = Exp(row[h] - top);
      sum += row[h];
    }
    for (int h = 0; h < n; ++h) row[h] = row[h] / sum + eps;
  }
  __syncwarp();  // rows are done, columns begin
  divide(lane, n);
  for (int64_t i = 1; i < iters; ++i) {
    divide(lane * n, 1);
    divide(lane, n);
  }
  for (int i = lane; i < n * n; i += 32) out[i] = m[i];
}

}  // namespace glint::cuda
