// Tiles of dot products in Dot16's order, for the stages that meet many rows with several heads at once.
#pragma once
#include <cstdint>

#include "cuda/math.cuh"

namespace glint::cuda {

// What one half warp computes: so many rows of `a` (heads) with so many rows of `x`.
inline constexpr int kDotHeads = 8, kDotRows = 4;

// Dot16 of every row of `a` with every row of `x` by sixteen neighbouring threads, thread `lane` (0 to 15) being lane `lane` of all
// 32 sums: twelve loads serve 32 multiply-adds. Afterwards a thread holds the products of x[lane / 4] with a[2 * (lane % 4)] and the
// next of `a`. All 32 threads of the warp must take part; rows that are not wanted repeat others.
__device__ inline void TileDots(int lane, int64_t width, const float* const (&a)[kDotHeads],
                                const float* const (&x)[kDotRows], float (&out)[2]) {
  constexpr int kSums = kDotHeads * kDotRows;
  float sum[kSums];  // [x][a]
#pragma unroll
  for (int i = 0; i < kSums; ++i) sum[i] = 0;
#pragma unroll 2
  for (int64_t k = lane; k < width; k += 16) {
    float from_a[kDotHeads], from_x[kDotRows];
#pragma unroll
    for (int h = 0; h < kDotHeads; ++h) from_a[h] = __ldg(a[h] + k);
#pragma unroll
    for (int r = 0; r < kDotRows; ++r) from_x[r] = __ldg(x[r] + k);
#pragma unroll
    for (int i = 0; i < kSums; ++i) sum[i] = fmaf(from_a[i % kDotHeads], from_x[i / kDotHeads], sum[i]);
  }
  __syncwarp();
  // The sums over lanes, l[i] + l[i + 8] first, then 4, 2 and 1 apart. In each round two partners share out the sums they have
  // between them, so that 30 exchanges add up all 32; which of the two adds does not matter.
#pragma unroll
  for (int round = 0; round < 4; ++round) {
    const int apart = 8 >> round, kept = kSums / 2 >> round;
    const bool upper = (lane & apart) != 0;
#pragma unroll
    for (int i = 0; i < kSums / 2; ++i) {
      if (i >= kept) continue;
      const float give = upper ? sum[i] : sum[i + kept], keep = upper ? sum[i + kept] : sum[i];
      sum[i] = keep + __shfl_xor_sync(0xffffffffu, give, apart);
    }
  }
  out[0] = sum[0];
  out[1] = sum[1];
}

}  // namespace glint::cuda
