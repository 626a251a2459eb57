// The search for the scales of IQ4_NL and IQ4_XS: 16 fixed values that are not symmetric, so that scales of both signs are tried.
// Plain float arithmetic in one order: the same bytes everywhere.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "quant/fit.h"
#include "quant/iq_grids.h"

namespace glint::quant {

// The nearest of kIq4Values to any number: they are integers, so it changes at whole halves only.
class Iq4Nearest {
 public:
  constexpr Iq4Nearest() {
    for (int half = 0; half < kHalves; ++half) {
      const int twice = 2 * (half + 2 * kLow) + 1;  // four times the middle of an interval of a half
      int best = 0;
      for (int v = 1; v < 16; ++v)
        if (Distance(twice, v) < Distance(twice, best)) best = v;
      number_[static_cast<size_t>(half)] = static_cast<uint8_t>(best);
    }
  }

  uint8_t operator()(float v) const {
    const float in = v > -127.0f ? (v < 113.0f ? v : 113.0f) : -127.0f;  // a NaN becomes the first
    return number_[static_cast<size_t>(static_cast<int>((in - static_cast<float>(kLow)) * 2.0f))];
  }

 private:
  static constexpr int kLow = -128, kHalves = 2 * (114 - kLow);
  static constexpr int Distance(int four_times, int v) {
    const int d = four_times - 4 * kIq4Values[v];
    return d < 0 ? -d : d;
  }
  std::array<uint8_t, kHalves> number_{};
};
inline constexpr Iq4Nearest kIq4Nearest;

// x ~ scale * value: the sums of a least-squares fit, and the cost at the scale itself.
struct Iq4Sums {
  float cost = 0, xc = 0, cc = 0;

  Iq4Sums(const float* x, const float* w, size_t n, float scale) {
    const float inverse = SafeInverse(scale);
    for (size_t i = 0; i < n; ++i) {
      const auto c = static_cast<float>(kIq4Values[kIq4Nearest(x[i] * inverse)]);
      const float off = x[i] - scale * c, weighted = w[i] * c;
      cost += w[i] * off * off;
      xc += weighted * x[i];
      cc += weighted * c;
    }
  }
};

struct Iq4Fit {
  float scale = 0, gain = 0, cc = 0;  // gain: of sum w x^2
};

// First guesses at which the largest magnitude is from 64 to 160 in either sign, the best of them improved by least squares.
inline Iq4Fit FitIq4(const float* x, const float* w, size_t n) {
  float largest = 0;
  for (size_t i = 0; i < n; ++i) largest = std::max(largest, std::fabs(x[i]));
  Iq4Fit best;
  if (largest < 0x1p-60f) return best;
  const auto attempt = [&](float scale) {
    const Iq4Sums sums(x, w, n, scale);
    if (!(sums.cc > 0)) return false;
    const float fitted = sums.xc / sums.cc, gain = fitted * sums.xc;
    if (!(gain > best.gain)) return false;
    best = {fitted, gain, sums.cc};
    return true;
  };
  for (int guess = 64; guess <= 160; guess += 6) {
    attempt(largest / static_cast<float>(guess));
    attempt(-largest / static_cast<float>(guess));
  }
  for (int i = 0; i < 4; ++i)
    if (best.scale == 0 || !attempt(best.scale)) break;
  return best;
}

}  // namespace glint::quant
