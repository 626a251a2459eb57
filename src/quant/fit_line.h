// The search for a scale and a minimum: x ~ scale * code + minimum, sum w (x - scale * code - minimum)^2 least.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "quant/fit.h"
#include "quant/fit_kernels.h"
#include "quant/fit_scale.h"

namespace glint::quant {

struct LineFit {
  float scale = 0, minimum = 0;
};

// First guesses: codes 0 and `high` at the ends of the range of x, each end moved by `first`, `first + stride`, ... first + 3 stride
// times the range / high (inwards; negative: outwards), and improved by least squares.
struct LineGuesses {
  float first, stride;
  int rounds;
};

// Of kN weights; minimum <= most. Where they are all the same, scale is 0 and minimum their value (or `most`).
template <size_t kN>
LineFit FitLine(const float* x, const float* w, int high, float most, LineGuesses guesses) {
  float part_w[8] = {}, part_x[8] = {};
  for (size_t i = 0; i < kN; i += 8)
    for (size_t l = 0; l < 8; ++l) part_w[l] += w[i + l], part_x[l] += w[i + l] * x[i + l];
  const float sum_w = SumOf8(part_w), mean = SumOf8(part_x) / sum_w;
  float centred[kN], lower[8], upper[8];
  std::copy_n(x, 8, lower), std::copy_n(x, 8, upper);
  for (size_t i = 0; i < kN; i += 8) {
    for (size_t l = 0; l < 8; ++l) {
      const float v = x[i + l];
      centred[i + l] = v - mean;
      lower[l] = v < lower[l] ? v : lower[l], upper[l] = v > upper[l] ? v : upper[l];
    }
  }
  float bottom = *std::min_element(lower, lower + 8);
  const float top = *std::max_element(upper, upper + 8);
  bottom = std::min(bottom, most);
  const auto steps = static_cast<float>(high);
  LineFit best{0, std::min(mean, most)};
  const float range = top - bottom;
  if (!(range > 0x1p-60f)) return best;
  float inverse[kFitLanes], offset[kFitLanes], loss[kFitLanes], scale[kFitLanes], minimum[kFitLanes];
  for (size_t l = 0; l < kFitLanes; ++l) {
    const float below = (guesses.first + guesses.stride * static_cast<float>(l % 4)) / steps;
    const float above = (guesses.first + guesses.stride * static_cast<float>(l / 4)) / steps;
    inverse[l] = steps / (range * (1 - below - above));
    offset[l] = -(bottom - mean + below * range) * inverse[l];
  }
  BestFitKernels().line(centred, w, kN, sum_w, steps, most - mean, guesses.rounds, inverse, offset, loss,
                        scale, minimum);
  const size_t at = Least16(loss);
  // With codes of 0 alone the minimum saves -(mean - minimum)^2: less than what any line saves that was found.
  if (scale[at] > 0) best = {scale[at], minimum[at] + mean};
  return best;
}

// The nearest codes for a line; 0 for a scale of 0.
inline void LineCodes(const float* x, size_t n, float scale, float minimum, int high, int8_t* code) {
  const float inverse = SafeInverse(scale), highest = static_cast<float>(high);
  for (size_t i = 0; i < n; ++i) code[i] = NearestCode((x[i] - minimum) * inverse, 0, highest);
}

inline constexpr uint16_t kLeastHalf = 0xfbff;  // -65504

// kN weights under two halves: fits the line, and takes of the halves around it those that lose least.
template <size_t kN>
struct Line {
  uint16_t scale = 0, minimum = 0;
  int8_t code[kN] = {};

  Line(const float* in, const float* importance, int high, LineGuesses guesses) {
    const ScaledBlock<kN> b(in, importance);
    if (b.largest == 0) return;
    LineFit fit = FitLine<kN>(b.x, b.w, high, std::numeric_limits<float>::max(), guesses);
    // A minimum is a half too: a line that would begin below the least of them begins there, under the scale that is best then.
    if (fit.minimum * b.unit < FiniteHalfToFloat(kLeastHalf)) {
      const float least = b.Step(kLeastHalf);
      float above[kN];
      for (size_t i = 0; i < kN; ++i) above[i] = b.x[i] - least;
      fit = {FitScale(above, b.w, kN, 0, high, {0.8f, 1.3f, guesses.rounds}), least};
    }
    const uint16_t fitted_scale = b.Half(fit.scale), fitted_minimum = b.Half(fit.minimum);
    uint16_t scales[kFitLanes], minima[kFitLanes];
    float step[kFitLanes], shift[kFitLanes], error[kFitLanes];
    for (int l = 0; l < static_cast<int>(kFitLanes); ++l) {
      scales[l] = StepHalf(fitted_scale, l % 4 - 1);
      minima[l] = StepHalf(fitted_minimum, l / 4 - 1);
      step[l] = b.Step(scales[l]), shift[l] = b.Step(minima[l]);
    }
    BestFitKernels().error(b.x, b.w, kN, 0, static_cast<float>(high), step, shift, error);
    const size_t best = Least16(error);
    scale = scales[best], minimum = minima[best];
    LineCodes(b.x, kN, step[best], shift[best], high, code);
  }
};

// Units of kUnit weights whose scales and minima are integers under two halves.
template <size_t kUnits, size_t kUnit>
struct LineUnits {
  uint16_t super_scale = 0, super_minimum = 0;
  int scale[kUnits] = {}, minimum[kUnits] = {};
  int8_t code[kUnits * kUnit] = {};  // weight = super_scale * scale * code - super_minimum * minimum

  // Fits every unit by itself; then, for super scales under which the largest scale and minimum have the number `most`, tries for
  // every unit the numbers around its fitted ones, and improves the super scales by least squares, `rounds` times.
  LineUnits(const float* in, const float* importance, int high, int most, LineGuesses guesses, int rounds) {
    const ScaledBlock<kUnits * kUnit, kUnit> b(in, importance);
    if (b.largest == 0) return;
    LineFit fitted[kUnits];
    float largest_scale = 0, least_minimum = 0;
    for (size_t u = 0; u < kUnits; ++u) {
      fitted[u] = FitLine<kUnit>(b.x + u * kUnit, b.w + u * kUnit, high, 0, guesses);
      if (!b.Counts(u * kUnit)) continue;
      largest_scale = std::max(largest_scale, fitted[u].scale);
      least_minimum = std::min(least_minimum, fitted[u].minimum);
    }
    float d = largest_scale / static_cast<float>(most), m = -least_minimum / static_cast<float>(most),
          least = 0;
    for (int round = 0; round < rounds; ++round) {
      LineUnits tried;
      tried.super_scale = round == 0 ? b.ReachingHalf(d) : b.Half(d);
      tried.super_minimum = round == 0 ? b.ReachingHalf(m) : b.Half(m);
      const float total = tried.Choose(b.x, b.w, b.Step(tried.super_scale), b.Step(tried.super_minimum),
                                       fitted, high, most, d, m);
      if (round > 0 && !(total < least)) break;
      least = total, *this = tried;
    }
  }

 private:
  LineUnits() = default;

  // Returns the error, and in better_scale and better_minimum the super scales that would be best for these numbers.
  float Choose(const float* x, const float* w, float step, float shift, const LineFit* fitted, int high,
               int most, float& better_scale, float& better_minimum) {
    const FitKernels& kernels = BestFitKernels();
    const float inverse_step = SafeInverse(step), inverse_shift = SafeInverse(shift);
    float total = 0, cc = 0, cm = 0, mm = 0, xc = 0, xm = 0;
    for (size_t u = 0; u < kUnits; ++u, x += kUnit, w += kUnit) {
      const int s0 = std::clamp(RoundClamped(fitted[u].scale * inverse_step, 0, most) - 1, 0, most - 3);
      const int m0 = std::clamp(RoundClamped(-fitted[u].minimum * inverse_shift, 0, most) - 1, 0, most - 3);
      float steps[kFitLanes], shifts[kFitLanes], error[kFitLanes];
      for (int l = 0; l < static_cast<int>(kFitLanes); ++l) {
        steps[l] = step * static_cast<float>(s0 + l % 4);
        shifts[l] = -(shift * static_cast<float>(m0 + l / 4));
      }
      kernels.error(x, w, kUnit, 0, static_cast<float>(high), steps, shifts, error);
      const size_t best = Least16(error);
      scale[u] = s0 + static_cast<int>(best % 4), minimum[u] = m0 + static_cast<int>(best / 4);
      total += error[best];
      LineCodes(x, kUnit, steps[best], shifts[best], high, code + u * kUnit);
      float part_w[8] = {}, part_c[8] = {}, part_cc[8] = {}, part_x[8] = {}, part_xc[8] = {};
      for (size_t i = 0; i < kUnit; i += 8) {
        for (size_t l = 0; l < 8; ++l) {
          const float c = code[u * kUnit + i + l], weighted = w[i + l] * c;
          part_w[l] += w[i + l];
          part_c[l] += weighted;
          part_cc[l] += weighted * c;
          part_x[l] += w[i + l] * x[i + l];
          part_xc[l] += weighted * x[i + l];
        }
      }
      // x ~ D * (s c) - M * m
      const auto s = static_cast<float>(scale[u]), m = static_cast<float>(minimum[u]);
      cc += s * s * SumOf8(part_cc), cm += s * m * SumOf8(part_c), mm += m * m * SumOf8(part_w);
      xc += s * SumOf8(part_xc), xm += m * SumOf8(part_x);
    }
    const float determinant = cc * mm - cm * cm;
    better_scale = step, better_minimum = shift;
    if (determinant > 0x1p-100f) {
      better_scale = (mm * xc - cm * xm) / determinant;
      better_minimum = (cm * xc - cc * xm) / determinant;
    } else if (cc > 0) {
      better_scale = (xc + better_minimum * cm) / cc;
    }
    return total;
  }
};

}  // namespace glint::quant
