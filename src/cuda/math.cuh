// The elementary functions and reductions of the canonical arithmetic on the GPU, step by step as base/math.h and
// cpu/kernels_scalar.cc have them: the same bits. Compiled with -fmad=false: an fma is where the source says fmaf.
#pragma once
#include <cstdint>

namespace glint::cuda {

__device__ inline float Exp(float x) {
  if (!(x >= -87.33654f)) return x < 0 ? 0.0f : x;  // small, or NaN
  if (x > 88.72283f) return __int_as_float(0x7f800000);
  const float n = fmaf(x, 1.44269504f, 12582912.0f) - 12582912.0f;
  float r = fmaf(n, -0.693145752f, x);
  r = fmaf(n, -1.42860677e-6f, r);
  float p = 1.38145383e-3f;
  p = fmaf(p, r, 8.36874545e-3f);
  p = fmaf(p, r, 4.16683890e-2f);
  p = fmaf(p, r, 1.66665211e-1f);
  p = fmaf(p, r, 4.99999940e-1f);
  p = fmaf(p, r, 1.0f);
  p = fmaf(p, r, 1.0f);
  const int32_t whole = static_cast<int32_t>(n), half = whole >> 1;
  return p * __int_as_float((half + 127) << 23) * __int_as_float((whole - half + 127) << 23);
}
__device__ inline float Sigmoid(float x) { return 1.0f / (1.0f + Exp(-x)); }
__device__ inline float Silu(float x) { return x / (1.0f + Exp(-x)); }

// max(a, b) as std::max(a, b) has it: a where a comparison with NaN fails (fmaxf would drop the NaN).
__device__ inline float StdMax(float a, float b) { return a < b ? b : a; }
__device__ inline float StdMin(float a, float b) { return b < a ? b : a; }

// An entry of SwiGLU, both products clamped (spec/model.md 8.1).
__device__ inline float SwiGlu(float gate, float up, float limit) {
  const float u = StdMin(StdMax(up, -limit), limit);
  return Silu(StdMin(gate, limit)) * u;
}

// Sixteen neighbouring threads are the sixteen lanes of Dot16; each passes its own sum, and all get the total. Additions commute,
// so that the butterfly adds what the definition adds. All 32 threads of the warp must take part.
__device__ inline float SumLanes16(float lane) {
  for (int width = 8; width > 0; width /= 2) lane += __shfl_xor_sync(0xffffffffu, lane, width);
  return lane;
}

// Dot16 by sixteen neighbouring threads, `lane` 0 to 15 among them; all get the result. All 32 threads of the warp must take part;
// where one half has nothing to do it passes n = 0.
template <class X, class Y>
__device__ inline float Dot16(int lane, int64_t n, X&& x, Y&& y) {
  float sum = 0;
  for (int64_t k = lane; k < n; k += 16) sum = fmaf(x(k), y(k), sum);
  return SumLanes16(sum);
}

// Ranks scores as cpu/context.h's RankKey: a larger key is a better candidate; ties to the lower index, NaN last.
__device__ inline uint64_t RankKey(float score, uint32_t index) {
  uint32_t rank = 0;
  if (score == score) {
    const uint32_t bits = __float_as_uint(score == 0 ? 0.0f : score);
    rank = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  }
  return uint64_t{rank} << 32 | ~index;
}
// The largest of the warp's keys; all 32 threads get it and must take part.
__device__ inline uint64_t WarpMax(uint64_t key) {
  const auto rank = static_cast<uint32_t>(key >> 32);
  const uint32_t highest = __reduce_max_sync(0xffffffffu, rank);
  const uint32_t low = __reduce_max_sync(0xffffffffu, rank == highest ? static_cast<uint32_t>(key) : 0u);
  return uint64_t{highest} << 32 | low;
}
__device__ inline uint32_t RankedIndex(uint64_t key) { return ~static_cast<uint32_t>(key); }

}  // namespace glint::cuda
