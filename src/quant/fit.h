// What the encoders share: rounding to codes, and the search for a scale (and a minimum) that loses least.
// Plain float arithmetic in one order: a file encodes to the same bytes everywhere.
#pragma once
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

// Scale s (either sign) for x[i] ~ s * code, low <= code <= high (low = -high - 1), minimising sum w (x - s code)^2 with
// w = rms + |x|: large weights matter more. Tries 17 first guesses around "the largest magnitude meets the end of the range",
// each improved twice by least squares. 0 for all zeros.
template <size_t N>
float FitScale(const float* x, int low, int high) {
  float largest = 0, square = 0;
  for (size_t i = 0; i < N; ++i) {
    if (std::fabs(x[i]) > std::fabs(largest)) largest = x[i];
  }
  if (std::fabs(largest) < 0x1p-100f) return 0;  // far below the smallest half scale
  const float unit = 1.0f / std::fabs(largest);  // keeps the squares in range
  float v[N], weight[N];
  for (size_t i = 0; i < N; ++i) v[i] = x[i] * unit, square += v[i] * v[i];
  const float rms = std::sqrt(square / static_cast<float>(N));
  for (size_t i = 0; i < N; ++i) weight[i] = rms + std::fabs(v[i]);

  const float top = largest > 0 ? 1.0f : -1.0f;
  float best = top / static_cast<float>(low), best_gain = -1;
  for (int guess = -8; guess <= 8; ++guess) {
    float s = top / (static_cast<float>(low) + 0.125f * static_cast<float>(guess));
    for (int round = 0; round < 3; ++round) {
      // For fixed codes the best scale is xc / cc, and what it saves of sum w x^2 is xc^2 / cc.
      const float inverse = 1.0f / s;
      float xc = 0, cc = 0;
      for (size_t i = 0; i < N; ++i) {
        const auto code = static_cast<float>(RoundClamped(v[i] * inverse, low, high));
        xc += weight[i] * v[i] * code;
        cc += weight[i] * code * code;
      }
      if (!(cc > 0) || xc == 0) break;
      s = xc / cc;
      if (xc * s > best_gain) best_gain = xc * s, best = s;
    }
  }
  return best * std::fabs(largest);
}

}  // namespace glint::quant
