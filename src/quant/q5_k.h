// Q5_K: 256 weights of 5 bits in 8 units of 32, each with a 6-bit scale and a 6-bit minimum under two half-precision ones;
// 5.5 bits a weight. Source: the public GGUF block formats, type 13.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "quant/fit_line.h"
#include "quant/format.h"
#include "quant/q4_k.h"

namespace glint::quant {

struct Q5_K {
  static constexpr size_t kWeights = 256, kBytes = 176, kUnit = 32, kUnits = kWeights / kUnit;
  static constexpr bool kMinima = true;

  struct Block {                   // as on disk, little endian
    uint16_t d, dmin;              // IEEE halves
    Q4_K::Scales scales;           // of 8 units
    std::array<uint8_t, 32> high;  // bit 4 of code i is bit i / 32 of byte i % 32
    std::array<uint8_t, 128> low;  // bits 0..3, placed as in Q4_K
  };  // weight = d * scale * code - dmin * minimum; both products are exact, the difference rounds
  static_assert(sizeof(Block) == kBytes);

  static void Unpack(const std::byte* in, Unpacked& out) {
    Block b;
    std::memcpy(&b, in, kBytes);
    const float d = HalfToFloat(b.d), dmin = HalfToFloat(b.dmin);
    for (size_t u = 0; u < kUnits; ++u) {
      out.scale[u] = d * static_cast<float>(Q4_K::Scale(b.scales, u));
      out.minimum[u] = -(dmin * static_cast<float>(Q4_K::Minimum(b.scales, u)));
      for (size_t i = 0; i < kUnit; ++i) {
        const int low = b.low[u / 2 * kUnit + i] >> (u % 2 * 4) & 15;
        out.code[u * kUnit + i] = static_cast<int8_t>(low | (b.high[i] >> u & 1) << 4);
      }
    }
  }

  static void Encode(const float* in, const float* importance, std::byte* out) {
    const LineUnits<kUnits, kUnit> units(in, importance, 31, 63, {-1.0f, 0.6f, 3}, 3);
    Block b{units.super_scale, units.super_minimum, {}, {}, {}};
    Q4_K::SetScales(units.scale, units.minimum, b.scales);
    for (size_t i = 0; i < kWeights; ++i) {
      uint8_t& low = b.low[i / (2 * kUnit) * kUnit + i % kUnit];
      low = static_cast<uint8_t>(low | (units.code[i] & 15) << (i / kUnit % 2 * 4));
      b.high[i % kUnit] = static_cast<uint8_t>(b.high[i % kUnit] | (units.code[i] >> 4) << (i / kUnit));
    }
    std::memcpy(out, &b, kBytes);
  }
};

}  // namespace glint::quant
