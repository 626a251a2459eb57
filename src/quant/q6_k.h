// Q6_K: 256 weights of 6 bits in 16 units of 16, each with a signed 8-bit scale under one half-precision scale; 6.5625 bits
// a weight. Source: the public GGUF block formats, type 14.
#pragma once
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "quant/fit.h"
#include "quant/format.h"

namespace glint::quant {

struct Q6_K {
  static constexpr size_t kWeights = 256, kBytes = 210, kUnit = 16, kUnits = kWeights / kUnit;
  static constexpr bool kMinima = false;

  struct Block {                       // as on disk, little endian
    std::array<uint8_t, 128> low;      // bits 0..3 of the codes
    std::array<uint8_t, 64> high;      // bits 4 and 5
    std::array<int8_t, kUnits> scale;  // of 16 weights each
    std::array<uint8_t, 2> super;      // IEEE half
  };  // weight = super * scale * (code - 32), exact: 11 + 7 + 5 significant bits
  static_assert(sizeof(Block) == kBytes);

  // Where code i lies. Each half of 128 weights has 64 bytes of `low` and 32 of `high`; with j = i % 128, weights j and j + 64
  // share a byte of `low`, and the four weights of equal j % 32 share one of `high`.
  struct Place {
    size_t low, high;
    int low_shift, high_shift;
  };
  static constexpr Place At(size_t i) {
    const size_t half = i / 128, j = i % 128;
    return {half * 64 + j % 64, half * 32 + j % 32, j < 64 ? 0 : 4, static_cast<int>(j / 32) * 2};
  }

  static void Unpack(const std::byte* in, Unpacked& out) {
    Block b;
    std::memcpy(&b, in, kBytes);
    for (size_t i = 0; i < kWeights; ++i) {
      const Place at = At(i);
      const int code = (b.low[at.low] >> at.low_shift & 15) | (b.high[at.high] >> at.high_shift & 3) << 4;
      out.code[i] = static_cast<int8_t>(code - 32);
    }
    const float super = HalfToFloat(std::bit_cast<uint16_t>(b.super));
    for (size_t u = 0; u < kUnits; ++u) {
      out.scale[u] = super * static_cast<float>(b.scale[u]);  // exact: 11 + 8 significant bits
      out.minimum[u] = 0;
    }
  }

  // Per unit the scale that FitScale finds; the largest of them becomes 127 steps (or -128) of the super scale.
  static void Encode(const float* in, const float* /*importance*/, std::byte* out) {
    Block b{};
    float fitted[kUnits], largest = 0;
    for (size_t u = 0; u < kUnits; ++u) {
      fitted[u] = FitScale<kUnit>(in + u * kUnit, -32, 31);
      if (std::fabs(fitted[u]) > std::fabs(largest)) largest = fitted[u];
    }
    const uint16_t super = ScaleToHalf(largest / -128.0f);
    b.super = std::bit_cast<std::array<uint8_t, 2>>(super);
    const float step = HalfToFloat(super), inverse_step = SafeInverse(step);
    for (size_t u = 0; u < kUnits; ++u) {
      const int scale = RoundClamped(fitted[u] * inverse_step, -128, 127);
      b.scale[u] = static_cast<int8_t>(scale);
      const float inverse = SafeInverse(step * static_cast<float>(scale));
      for (size_t i = u * kUnit; i < (u + 1) * kUnit; ++i) {
        const int code = RoundClamped(in[i] * inverse, -32, 31) + 32;
        const Place at = At(i);
        b.low[at.low] = static_cast<uint8_t>(b.low[at.low] | (code & 15) << at.low_shift);
        b.high[at.high] = static_cast<uint8_t>(b.high[at.high] | (code >> 4) << at.high_shift);
      }
    }
    std::memcpy(out, &b, kBytes);
  }
};

}  // namespace glint::quant
