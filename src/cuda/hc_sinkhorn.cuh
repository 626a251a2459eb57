// The matrix m[j][h] of a row (j source stream, h destination) by one warp: softmax of each row plus eps, a column step, then
// iters - 1 times a row step and a column step. All sums in index order from +0.
#pragma once
#include <cstdint>

#include "cuda/math.cuh"

namespace glint::cuda {

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
