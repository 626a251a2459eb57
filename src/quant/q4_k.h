// Q4_K: 256 weights of 4 bits in 8 units of 32, each with a 6-bit scale and a 6-bit minimum under two half-precision ones;
// 4.5 bits a weight. Source: the public GGUF block formats, type 12.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "quant/fit.h"
#include "quant/format.h"

namespace glint::quant {

struct Q4_K {
  static constexpr size_t kWeights = 256, kBytes = 144, kUnit = 32, kUnits = kWeights / kUnit;
  static constexpr bool kMinima = true;

  using Scales =
      std::array<uint8_t, 12>;  // 8 scales and 8 minima of 6 bits: Scale, Minimum, SetScales; Q5_K's too

  struct Block {       // as on disk, little endian
    uint16_t d, dmin;  // IEEE halves
    Scales scales;
    std::array<uint8_t, 128>
        low;  // units 2p and 2p + 1 in the low and high nibbles of bytes 32 p ... 32 p + 31
  };          // weight = d * scale * code - dmin * minimum; both products are exact, the difference rounds
  static_assert(sizeof(Block) == kBytes);

  // Bytes 0..3 and 4..7 hold the scales and minima of units 0..3 in their low six bits; bytes 8..11 the low nibbles of the scale
  // (low) and minimum (high) of units 4..7, whose top two bits are the top bits of bytes 0..3 (scales) and 4..7 (minima).
  static int Scale(const Scales& s, size_t u) {
    return u < 4 ? s[u] & 63 : (s[u + 4] & 15) | (s[u - 4] >> 6) << 4;
  }
  static int Minimum(const Scales& s, size_t u) {
    return u < 4 ? s[u + 4] & 63 : s[u + 4] >> 4 | (s[u] >> 6) << 4;
  }
  static void SetScales(const int* scale, const int* minimum, Scales& s) {
    for (size_t u = 0; u < 4; ++u) {
      s[u] = static_cast<uint8_t>(scale[u] | (scale[u + 4] >> 4) << 6);
      s[u + 4] = static_cast<uint8_t>(minimum[u] | (minimum[u + 4] >> 4) << 6);
      s[u + 8] = static_cast<uint8_t>((scale[u + 4] & 15) | (minimum[u + 4] & 15) << 4);
    }
  }

  static void Unpack(const std::byte* in, Unpacked& out) {
    Block b;
    std::memcpy(&b, in, kBytes);
    const float d = HalfToFloat(b.d), dmin = HalfToFloat(b.dmin);
    for (size_t u = 0; u < kUnits; ++u) {
      out.scale[u] = d * static_cast<float>(Scale(b.scales, u));  // exact: 11 + 6 significant bits
      out.minimum[u] = -(dmin * static_cast<float>(Minimum(b.scales, u)));
      for (size_t i = 0; i < kUnit; ++i) {
        const int byte = b.low[u / 2 * kUnit + i];
        out.code[u * kUnit + i] = static_cast<int8_t>(u % 2 ? byte >> 4 : byte & 15);
      }
    }
  }

  // Per unit a scale and a minimum are fitted, then both are rounded under their super scales; of the 25 roundings around the
  // fitted pair the one with the least error after rounding the codes is stored.
  static void Encode(const float* in, const float* /*importance*/, std::byte* out) {
    Block b{};
    Fit fit[kUnits];
    float largest_scale = 0, largest_minimum = 0;
    for (size_t u = 0; u < kUnits; ++u) {
      fit[u] = FitUnit(in + u * kUnit);
      largest_scale = std::fmax(largest_scale, fit[u].scale);
      largest_minimum = std::fmax(largest_minimum, fit[u].minimum);
    }
    b.d = ScaleToHalf(largest_scale / 63.0f);
    b.dmin = ScaleToHalf(largest_minimum / 63.0f);
    const float d = HalfToFloat(b.d), dmin = HalfToFloat(b.dmin);
    int scale[kUnits], minimum[kUnits];
    for (size_t u = 0; u < kUnits; ++u) {
      const float* const x = in + u * kUnit;
      const int scale0 = RoundClamped(fit[u].scale * SafeInverse(d), 0, 63);
      const int minimum0 = RoundClamped(fit[u].minimum * SafeInverse(dmin), 0, 63);
      scale[u] = scale0, minimum[u] = minimum0;
      double least = -1;
      for (int s = std::max(scale0 - 2, 0); s <= std::min(scale0 + 2, 63); ++s) {
        for (int m = std::max(minimum0 - 2, 0); m <= std::min(minimum0 + 2, 63); ++m) {
          const double error = Error(x, d * static_cast<float>(s), dmin * static_cast<float>(m));
          if (least < 0 || error < least) least = error, scale[u] = s, minimum[u] = m;
        }
      }
      const float step = d * static_cast<float>(scale[u]), shift = dmin * static_cast<float>(minimum[u]);
      const float inverse = SafeInverse(step);
      for (size_t i = 0; i < kUnit; ++i) {
        const int code = RoundClamped((x[i] + shift) * inverse, 0, 15);
        uint8_t& byte = b.low[u / 2 * kUnit + i];
        byte = static_cast<uint8_t>(byte | code << (u % 2 ? 4 : 0));
      }
    }
    SetScales(scale, minimum, b.scales);
    std::memcpy(out, &b, kBytes);
  }

 private:
  struct Fit {
    float scale = 0, minimum = 0;  // x ~ scale * code - minimum, both >= 0
  };

  // Sum of w (x - decoded)^2, w as in Weights.
  static double Error(const float* x, float scale, float minimum) {
    float weight[kUnit];
    Weights(x, weight);
    const float inverse = SafeInverse(scale);
    double sum = 0;
    for (size_t i = 0; i < kUnit; ++i) {
      const auto code = static_cast<float>(RoundClamped((x[i] + minimum) * inverse, 0, 15));
      const double off = static_cast<double>(x[i]) - (static_cast<double>(scale) * code - minimum);
      sum += weight[i] * off * off;
    }
    return sum;
  }

  // rms + |x|: large weights matter more.
  static void Weights(const float* x, float* weight) {
    double square = 0;
    for (size_t i = 0; i < kUnit; ++i) square += static_cast<double>(x[i]) * x[i];
    const auto rms = static_cast<float>(std::sqrt(square / kUnit));
    for (size_t i = 0; i < kUnit; ++i) weight[i] = rms + std::fabs(x[i]);
  }

  // Tries first guesses around "the smallest value has code 0 and the largest 15", each improved by weighted least squares in
  // scale and minimum for the codes they give.
  static Fit FitUnit(const float* x) {
    float low = 0, high = x[0];  // a minimum is not negative: a unit above zero starts at zero
    for (size_t i = 0; i < kUnit; ++i) low = std::fmin(low, x[i]), high = std::fmax(high, x[i]);
    high = std::fmax(high, 0.0f);
    if (high - low < 0x1p-100f) return {};
    float weight[kUnit];
    Weights(x, weight);
    Fit best{(high - low) / 15, -low};
    double least = Error(x, best.scale, best.minimum);
    for (int guess = -4; guess <= 12; ++guess) {
      Fit fit{(high - low) / (15 + 0.25f * static_cast<float>(guess)), -low};
      for (int round = 0; round < 2; ++round) {
        const float inverse = SafeInverse(fit.scale);
        double w = 0, wx = 0, wc = 0, wcc = 0, wxc = 0;
        for (size_t i = 0; i < kUnit; ++i) {
          const double c = RoundClamped((x[i] + fit.minimum) * inverse, 0, 15), g = weight[i];
          w += g, wx += g * x[i], wc += g * c, wcc += g * c * c, wxc += g * c * x[i];
        }
        const double determinant = w * wcc - wc * wc;
        if (!(determinant > 0)) break;
        double scale = (w * wxc - wc * wx) / determinant, minimum = (wc * wxc - wcc * wx) / determinant;
        if (minimum < 0) minimum = 0, scale = wcc > 0 ? wxc / wcc : 0;
        if (!(scale > 0)) break;
        fit = {static_cast<float>(scale), static_cast<float>(minimum)};
        const double error = Error(x, fit.scale, fit.minimum);
        if (error < least) least = error, best = fit;
      }
    }
    return best;
  }
};

}  // namespace glint::quant
