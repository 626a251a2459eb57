// The search for a scale: x ~ scale * code, sum w (x - scale * code)^2 least.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "quant/fit.h"
#include "quant/fit_kernels.h"

namespace glint::quant {

// First guesses: the largest magnitude gets the code `high` (in either sign, `low` too where it is another), and codes around it from
// `first` to `last` times that, `sets` times kFitLanes of them; each improved by least squares.
struct ScaleGuesses {
  float first, last;
  int rounds, sets = 1;
};

// Of n weights, some of whose importance is not 0.
inline float FitScale(const float* x, const float* w, size_t n, int low, int high, ScaleGuesses guesses) {
  const float largest = LargestMagnitude(x, n);
  if (largest < 0x1p-60f) return 0;
  const FitKernels& kernels = BestFitKernels();
  float best = 0, least = 0;
  const size_t count = static_cast<size_t>(guesses.sets) * kFitLanes;
  const float stride = (guesses.last - guesses.first) / static_cast<float>(count - 1);
  for (size_t guess = 0; guess < 2 * count; guess += kFitLanes) {  // the second half: of the other sign
    const float sign = guess < count ? 1.0f : -1.0f;
    float inverse[kFitLanes], loss[kFitLanes], scale[kFitLanes];
    for (size_t l = 0; l < kFitLanes; ++l)
      inverse[l] = sign * static_cast<float>(high) *
                   (guesses.first + stride * static_cast<float>(guess % count + l)) / largest;
    kernels.scale(x, w, n, static_cast<float>(low), static_cast<float>(high), guesses.rounds, inverse, loss,
                  scale);
    const size_t at = Least16(loss);
    if (loss[at] < least) least = loss[at], best = scale[at];
  }
  return best;
}

// The nearest codes for a scale; 0 for a scale of 0. Any x that the scale cannot reach gets the last code.
inline void Codes(const float* x, size_t n, float scale, int low, int high, int8_t* code) {
  const float inverse = SafeInverse(scale), lowest = static_cast<float>(low),
              highest = static_cast<float>(high);
  for (size_t i = 0; i < n; ++i) code[i] = NearestCode(x[i] * inverse, lowest, highest);
}

// kN weights under one half: fits the scale, and takes of 16 halves around it the one that loses least.
template <size_t kN>
uint16_t EncodeScale(const float* in, const float* importance, int low, int high, ScaleGuesses guesses,
                     int8_t* code) {
  std::fill_n(code, kN, int8_t{0});
  const ScaledBlock<kN> b(in, importance);
  if (b.largest == 0) return 0;
  const uint16_t fitted = b.Half(FitScale(b.x, b.w, kN, low, high, guesses));
  uint16_t half[kFitLanes];
  float step[kFitLanes], error[kFitLanes];
  for (size_t l = 0; l < kFitLanes; ++l) {
    half[l] = StepHalf(fitted, static_cast<int>(l) - static_cast<int>(kFitLanes / 2));
    step[l] = b.Step(half[l]);
  }
  BestFitKernels().scale_error(b.x, b.w, kN, static_cast<float>(low), static_cast<float>(high), step, error);
  const size_t best = Least16(error);
  Codes(b.x, kN, step[best], low, high, code);
  return half[best];
}

// Units of kUnit weights whose scales are integers under one half.
template <size_t kUnits, size_t kUnit>
struct ScaleUnits {
  uint16_t super = 0;
  int scale[kUnits] = {};
  int8_t code[kUnits * kUnit] = {};  // weight = super * scale * code

  struct Range {
    int low, high, scale_low, scale_high;
  };

  // Fits every unit by itself; then, for a super scale under which the largest of them has the lowest number, tries for every unit the
  // numbers around its fitted scale, and improves the super scale by least squares, `rounds` times.
  ScaleUnits(const float* in, const float* importance, Range range, ScaleGuesses guesses, int rounds) {
    const ScaledBlock<kUnits * kUnit, kUnit> b(in, importance);
    if (b.largest == 0) return;
    float fitted[kUnits], largest = 0;
    for (size_t u = 0; u < kUnits; ++u) {
      fitted[u] = FitScale(b.x + u * kUnit, b.w + u * kUnit, kUnit, range.low, range.high, guesses);
      if (b.Counts(u * kUnit) && std::fabs(fitted[u]) > std::fabs(largest)) largest = fitted[u];
    }
    float d = largest / static_cast<float>(range.scale_low), least = 0;
    for (int round = 0; round < rounds; ++round) {
      ScaleUnits tried;
      tried.super = round == 0 ? b.ReachingHalf(d) : b.Half(d);
      const float total = tried.Choose(b.x, b.w, b.Step(tried.super), fitted, range, d);
      if (round > 0 && !(total < least)) break;
      least = total, *this = tried;
    }
  }

 private:
  ScaleUnits() = default;

  // Returns the error, and in `better` the super scale that would be best for these numbers.
  float Choose(const float* x, const float* w, float step, const float* fitted, Range range, float& better) {
    const FitKernels& kernels = BestFitKernels();
    const float inverse = SafeInverse(step);
    float total = 0, xc = 0, cc = 0;
    for (size_t u = 0; u < kUnits; ++u, x += kUnit, w += kUnit) {
      const int first = std::clamp(RoundClamped(fitted[u] * inverse, range.scale_low, range.scale_high) -
                                       static_cast<int>(kFitLanes / 2),
                                   range.scale_low, range.scale_high + 1 - static_cast<int>(kFitLanes));
      float steps[kFitLanes], error[kFitLanes];
      for (size_t l = 0; l < kFitLanes; ++l)
        steps[l] = step * static_cast<float>(first + static_cast<int>(l));
      kernels.scale_error(x, w, kUnit, static_cast<float>(range.low), static_cast<float>(range.high), steps,
                          error);
      const size_t best = Least16(error);
      scale[u] = first + static_cast<int>(best);
      total += error[best];
      Codes(x, kUnit, steps[best], range.low, range.high, code + u * kUnit);
      float partial_xc[8] = {}, partial_cc[8] = {};
      for (size_t i = 0; i < kUnit; i += 8) {
        for (size_t l = 0; l < 8; ++l) {
          const float c = code[u * kUnit + i + l], weighted = w[i + l] * c;
          partial_xc[l] += weighted * x[i + l];
          partial_cc[l] += weighted * c;
        }
      }
      const auto s = static_cast<float>(scale[u]);
      xc += s * SumOf8(partial_xc);
      cc += s * s * SumOf8(partial_cc);
    }
    better = cc > 0 ? xc / cc : step;
    return total;
  }
};

}  // namespace glint::quant
