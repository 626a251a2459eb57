// IQ4_XS: 256 weights of 4 bits that choose among 16 fixed values, in 8 units of 32, each with a 6-bit scale under one half-precision
// scale; 4.25 bits a weight. Source: the public GGUF block formats, type 23.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "base/half.h"
#include "quant/format.h"
#include "quant/iq4_fit.h"
#include "quant/iq_grids.h"

namespace glint::quant {

struct IQ4_XS {
  static constexpr size_t kWeights = 256, kBytes = 136, kUnit = 32, kUnits = kWeights / kUnit;
  static constexpr bool kMinima = false;

  struct Block {                    // as on disk, little endian
    uint16_t d;                     // IEEE half
    uint16_t scales_high;           // bits 4 and 5 of unit u's scale are bits 2 u and 2 u + 1
    std::array<uint8_t, 4> scales;  // bits 0..3: units 2 n and 2 n + 1 in the low and high nibbles of byte n
    std::array<uint8_t, 128>
        value;  // unit u: weight i in the low nibble of byte 16 u + i, i + 16 in the high one
  };            // weight = d * (scale - 32) * kIq4Values[nibble], exact: 11 + 5 + 7 significant bits
  static_assert(sizeof(Block) == kBytes);

  static int Scale(const Block& b, size_t u) {
    return (b.scales[u / 2] >> (u % 2 * 4) & 15) | (b.scales_high >> (2 * u) & 3) << 4;
  }

  // The integer codes are the values themselves: they are signed bytes.
  static void Unpack(const std::byte* in, Unpacked& out) {
    Block b;
    std::memcpy(&b, in, kBytes);
    const float d = HalfToFloat(b.d);
    for (size_t u = 0; u < kUnits; ++u) {
      for (size_t i = 0; i < 16; ++i) {
        const uint8_t byte = b.value[u * 16 + i];
        out.code[u * kUnit + i] = kIq4Values[byte & 15];
        out.code[u * kUnit + i + 16] = kIq4Values[byte >> 4];
      }
      out.scale[u] = d * static_cast<float>(Scale(b, u) - 32);
      out.minimum[u] = 0;
    }
  }

  // Fits every unit by itself; takes the super scale for which the nearest numbers lose least, tries for every unit the numbers
  // around its fitted scale, and improves the super scale by least squares.
  static void Encode(const float* in, const float* importance, std::byte* out) {
    Block b{};
    const ScaledBlock<kWeights, kUnit> scaled(in, importance);
    if (scaled.HalfReaches()) {
      Iq4Fit fitted[kUnits],
          counted[kUnits];  // units that cost next to nothing have no say in the super scale
      for (size_t u = 0; u < kUnits; ++u) {
        fitted[u] = FitIq4(scaled.x + u * kUnit, scaled.w + u * kUnit, kUnit);
        if (scaled.Counts(u * kUnit)) counted[u] = fitted[u];
      }
      float d = Super(counted), least = std::numeric_limits<float>::infinity();
      for (int round = 0; round < 3; ++round) {
        const uint16_t half = round == 0 ? scaled.ReachingHalf(d) : scaled.Half(d);
        const float step = scaled.Step(half);
        int number[kUnits];
        const float total = Numbers(scaled.x, scaled.w, step, fitted, number, d);
        if (!(total < least)) break;
        least = total;
        b = {};
        Put(scaled.x, half, step, number, b);
      }
    }
    std::memcpy(out, &b, kBytes);
  }

 private:
  // The largest fitted scale gets a number from -32 down to 24 or less; its sign is that of the super scale or the other.
  static float Super(const Iq4Fit (&fitted)[kUnits]) {
    float largest = 0;
    for (const Iq4Fit& f : fitted)
      if (std::fabs(f.scale) > std::fabs(largest)) largest = f.scale;
    float best = 0, least = std::numeric_limits<float>::infinity();
    for (int n = 0; n < 64; ++n) {
      const float step = -largest / (22.0f + 0.2f * static_cast<float>(n)), inverse = SafeInverse(step);
      float loss = 0;
      for (const Iq4Fit& f : fitted) {
        const float off = f.scale - step * static_cast<float>(RoundClamped(f.scale * inverse, -32, 31));
        loss += f.cc * off * off;
      }
      if (loss < least) least = loss, best = step;
    }
    return best;
  }

  // Returns the error, and in `better` the super scale that would be best for these values.
  static float Numbers(const float* x, const float* w, float step, const Iq4Fit (&fitted)[kUnits],
                       int (&number)[kUnits], float& better) {
    const float inverse = SafeInverse(step);
    float total = 0, xc = 0, cc = 0;
    for (size_t u = 0; u < kUnits; ++u) {
      const int nearest = RoundClamped(fitted[u].scale * inverse, -32, 31);
      float least = std::numeric_limits<float>::infinity(), unit_xc = 0, unit_cc = 0;
      number[u] = 0;
      for (int n = std::max(nearest - 1, -32); n <= std::min(nearest + 1, 31); ++n) {
        const auto s = static_cast<float>(n);
        const Iq4Sums sums(x + u * kUnit, w + u * kUnit, kUnit, step * s);
        if (sums.cost < least)
          least = sums.cost, number[u] = n, unit_xc = s * sums.xc, unit_cc = s * s * sums.cc;
      }
      total += least, xc += unit_xc, cc += unit_cc;
    }
    better = cc > 0 ? xc / cc : step;
    return total;
  }

  static void Put(const float* x, uint16_t half, float step, const int (&number)[kUnits], Block& b) {
    b.d = half;
    for (size_t u = 0; u < kUnits; ++u) {
      const int stored = number[u] + 32;
      b.scales[u / 2] = static_cast<uint8_t>(b.scales[u / 2] | (stored & 15) << (u % 2 * 4));
      b.scales_high = static_cast<uint16_t>(b.scales_high | stored >> 4 << (2 * u));
      const float inverse = SafeInverse(step * static_cast<float>(number[u]));
      const float* const unit = x + u * kUnit;
      for (size_t i = 0; i < 16; ++i) {
        b.value[u * 16 + i] =
            static_cast<uint8_t>(kIq4Nearest(unit[i] * inverse) | kIq4Nearest(unit[i + 16] * inverse) << 4);
      }
    }
  }
};

}  // namespace glint::quant
