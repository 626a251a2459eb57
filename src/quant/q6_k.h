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
#include "quant/fit_scale.h"
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

  static void Encode(const float* in, const float* importance, std::byte* out) {
    const ScaleUnits<kUnits, kUnit> units(in, importance, {-32, 31, -128, 127}, {0.75f, 1.1f, 1}, 3);
    Block b{};
    b.super = std::bit_cast<std::array<uint8_t, 2>>(units.super);
    for (size_t u = 0; u < kUnits; ++u) b.scale[u] = static_cast<int8_t>(units.scale[u]);
    for (size_t i = 0; i < kWeights; ++i) {
      const int code = units.code[i] + 32;
      const Place at = At(i);
      b.low[at.low] = static_cast<uint8_t>(b.low[at.low] | (code & 15) << at.low_shift);
      b.high[at.high] = static_cast<uint8_t>(b.high[at.high] | (code >> 4) << at.high_shift);
    }
    std::memcpy(out, &b, kBytes);
  }
};

}  // namespace glint::quant
