// What the encoders share: rounding to codes, scales as they are stored, and a block brought into the range of their arithmetic.
// The searches are in fit_scale.h (one scale) and fit_line.h (a scale and a minimum).
// Plain float arithmetic in one order: a file encodes to the same bytes everywhere.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "base/half.h"

namespace glint::quant {

// Nearest integer in [low, high], ties to even; 0 for a NaN. Never converts a float that an int cannot hold.
inline int RoundClamped(float x, int low, int high) {
  if (!(x > static_cast<float>(low))) return x <= static_cast<float>(low) ? low : 0;
  if (x >= static_cast<float>(high)) return high;
  // Adding 1.5 * 2^23 leaves no bits for a fraction: the sum is rounded as wanted, without a call of the library.
  return static_cast<int>((x + 12582912.0f) - 12582912.0f);
}

// The same for limits of an int8_t and for what is no NaN, in a form that compilers make vectors of.
inline int8_t NearestCode(float x, float low, float high) {
  x = x < low ? low : x;
  x = x > high ? high : x;
  return static_cast<int8_t>((x + 12582912.0f) - 12582912.0f);
}

// Sums are kept in 8 parts for the same reason; this is their order, whatever the machine.
inline float SumOf8(const float* part) {
  return ((part[0] + part[4]) + (part[2] + part[6])) + ((part[1] + part[5]) + (part[3] + part[7]));
}

// The largest of |x|; n is a multiple of 8.
inline float LargestMagnitude(const float* x, size_t n) {
  float part[8] = {};
  for (size_t i = 0; i < n; i += 8) {
    for (size_t l = 0; l < 8; ++l) {
      const float v = std::fabs(x[i + l]);
      part[l] = v > part[l] ? v : part[l];
    }
  }
  for (size_t l = 1; l < 8; ++l) part[0] = std::max(part[0], part[l]);
  return part[0];
}

// Where the least of 16 numbers lies; the first of equals.
inline size_t Least16(const float* v) {
  size_t at = 0;
  for (size_t i = 1; i < 16; ++i)
    if (v[i] < v[at]) at = i;
  return at;
}

// 1 / d, or 0 where d is 0 or so small that the quotient overflows: then every code becomes 0.
inline float SafeInverse(float d) {
  const float inverse = 1.0f / d;
  return std::isfinite(inverse) ? inverse : 0.0f;
}

// The nearest half, kept finite: a scale beyond the largest half saturates and the codes clamp.
inline uint16_t ScaleToHalf(float d) {
  const uint16_t h = FloatToHalf(d);
  return (h & 0x7fffu) == 0x7c00u ? static_cast<uint16_t>((h & 0x8000u) | 0x7bffu) : h;
}

// HalfToFloat of a finite half, without a branch: the bits of a float with the exponent 112 too small.
inline float FiniteHalfToFloat(uint16_t half) {
  const float magnitude = std::bit_cast<float>(uint32_t{half & 0x7fffu} << 13) * 0x1p112f;
  return half & 0x8000u ? -magnitude : magnitude;
}

// The half `steps` representable values further from 0 (or nearer), which stays finite and keeps its sign.
inline uint16_t StepHalf(uint16_t half, int steps) {
  return static_cast<uint16_t>((half & 0x8000) | std::clamp((half & 0x7fff) + steps, 0, 0x7bff));
}

// The power of two at or below `largest`, which is not negative, and its inverse: both are normal floats.
struct PowerOfTwo {
  float value, inverse;

  explicit PowerOfTwo(float largest) {
    const uint32_t exponent = std::clamp<uint32_t>(std::bit_cast<uint32_t>(largest) >> 23, 1, 253);
    value = std::bit_cast<float>(exponent << 23);
    inverse = std::bit_cast<float>((254 - exponent) << 23);
  }
};

// kN weights and their importance, each over a power of two, so that no product of a search overflows or vanishes: |x| and w lie below
// 4, the largest of each at 1 or above (but where all of x are subnormal). The importance is 1 for all where none is given or where
// all of it is 0; a unit of kUnit weights whose importance is next to nothing gets a trifle, kTrifle, for all, so that
// its weights too are rounded to something sensible.
template <size_t kN, size_t kUnit = kN>
struct ScaledBlock {
  static constexpr float kTrifle = 0x1p-40f;

  float x[kN], w[kN];
  float largest = 0;            // of |in|; 0: nothing else is set
  float unit = 1, inverse = 1;  // in = x * unit, exact unless the product is subnormal

  ScaledBlock(const float* in, const float* importance) {
    largest = LargestMagnitude(in, kN);
    if (largest == 0) return;
    const PowerOfTwo power(largest);
    unit = power.value, inverse = power.inverse;
    for (size_t i = 0; i < kN; ++i) x[i] = in[i] * inverse;
    const float most = importance ? LargestMagnitude(importance, kN) : 0;
    std::fill_n(w, kN, 1.0f);
    if (most == 0) return;
    const float lower = PowerOfTwo(most).inverse;
    for (size_t u = 0; u < kN; u += kUnit) {
      float sum = 0;
      for (size_t i = u; i < u + kUnit; ++i) w[i] = importance[i] * lower, sum += w[i];
      if (sum < kTrifle) std::fill_n(w + u, kUnit, kTrifle);
    }
  }

  // Whether errors of the unit that starts at weight `at` cost more than a trifle.
  bool Counts(size_t at) const {
    float sum = 0;
    for (size_t i = at; i < at + kUnit; ++i) sum += w[i];
    return sum > 2 * kUnit * kTrifle;
  }

  // Whether a half times a small code is not far too large for all of the weights: below, blocks of zeros are nearest. (The
  // least half is 2^-24, and no format has a code below 1/8.)
  bool HalfReaches() const { return largest >= 0x1p-40f; }
  // The half nearest to a scale of x, as a scale of `in`.
  uint16_t Half(float scale) const { return ScaleToHalf(scale * unit); }
  // The same for a super scale that is to reach: among subnormal halves, which are coarse, not nearer to 0 than the scale.
  uint16_t ReachingHalf(float scale) const {
    const uint16_t half = Half(scale);
    return (half & 0x7c00) == 0 && std::fabs(Step(half)) < std::fabs(scale) ? StepHalf(half, 1) : half;
  }
  // And back. 0 where the product overflows: such a step is far too large for the block.
  float Step(uint16_t half) const {
    const float step = FiniteHalfToFloat(half) * inverse;
    return std::fabs(step) < 0x1p100f ? step : 0.0f;
  }
};

}  // namespace glint::quant
