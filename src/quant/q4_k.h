// Q4_K: 256 weights of 4 bits in 8 units of 32, each with a 6-bit scale and a 6-bit minimum under two half-precision ones;
// 4.5 bits a weight. Source: the public GGUF block formats, type 12.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "quant/fit_line.h"
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

  static void Encode(const float* in, const float* importance, std::byte* out) {
    const LineUnits<kUnits, kUnit> units(in, importance, 15, 63, {-0.8f, 0.7f, 3}, 3);
    Block b{units.super_scale, units.super_minimum, {}, {}};
    SetScales(units.scale, units.minimum, b.scales);
    for (size_t i = 0; i < kWeights; ++i) {
      uint8_t& byte = b.low[i / (2 * kUnit) * kUnit + i % kUnit];
      byte = static_cast<uint8_t>(byte | units.code[i] << (i / kUnit % 2 * 4));
    }
    std::memcpy(out, &b, kBytes);
  }
};

}  // namespace glint::quant
