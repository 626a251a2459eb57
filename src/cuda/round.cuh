// The rounding of activations to digits (docs/design.md, "Integer block products"): what every integer product begins with.
#pragma once
#include <cstdint>

#include "cuda/digits.h"

namespace glint::cuda {

struct Rounded {
  int digit;    // n = 256 high + low
  float scale;  // of the block, the same in all lanes
  __device__ int8_t High() const { return static_cast<int8_t>((digit + 128) >> 8); }
  __device__ int8_t Low() const { return static_cast<int8_t>(digit - 256 * ((digit + 128) >> 8)); }
};

// A warp rounds one block of 32 columns, a column a lane.
__device__ inline Rounded RoundBlock(float x) {
  constexpr float kLargestDigit = 32639.0f, kSmallestScaled = 0x1p-100f;  // cpu/kernels.h
  // Magnitudes rank as their bits do, infinity and NaN above all.
  const unsigned bits = __reduce_max_sync(0xffffffffu, __float_as_uint(fabsf(x)));
  const bool finite = bits < 0x7f800000u;
  const float max = __uint_as_float(bits);
  Rounded r{0, finite ? 0.0f : __int_as_float(0x7fc00000)};
  if (finite && max >= kSmallestScaled) {
    r.scale = max / kLargestDigit;
    const float rounded = rintf(x * (kLargestDigit / max));
    r.digit = static_cast<int>(fminf(fmaxf(rounded, -kLargestDigit), kLargestDigit));
  }
  return r;
}

// The sum of the digits of each half warp.
__device__ inline int DigitSum(int digit) {
  const bool upper = threadIdx.x % 32 >= 16;
  const int low = __reduce_add_sync(0xffffffffu, upper ? 0 : digit),
            high = __reduce_add_sync(0xffffffffu, upper ? digit : 0);
  return upper ? high : low;
}

// A warp rounds block `block` of a row, column 32 block + lane a lane (zeros past the row's end), and stores its digits.
__device__ inline void StoreRounded(const Digits& to, int64_t row, int64_t block, int lane, float x) {
  const Rounded rounded = RoundBlock(x);
  const int sum = DigitSum(rounded.digit);
  const int64_t at = row * to.blocks + block;
  to.digits[at * 64 + lane] = rounded.High();
  to.digits[at * 64 + 32 + lane] = rounded.Low();
  if (lane == 0) to.scales[at] = rounded.scale;
  if (lane % 16 == 0) to.sums[at * 2 + lane / 16] = sum;
}

}  // namespace glint::cuda
