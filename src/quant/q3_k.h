// Q3_K: 256 weights of 3 bits in 16 units of 16, each with a 6-bit scale under one half-precision scale; 3.4375 bits a weight.
// Source: the public GGUF block formats, type 11.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "quant/fit_scale.h"
#include "quant/format.h"
#include "quant/q2_k.h"

namespace glint::quant {

struct Q3_K {
  static constexpr size_t kWeights = 256, kBytes = 110, kUnit = 16, kUnits = kWeights / kUnit;
  static constexpr bool kMinima = false;

  struct Block {                     // as on disk, little endian
    std::array<uint8_t, 32> high;    // bit 2 of code i is bit i / 32 of byte i % 32
    std::array<uint8_t, 64> low;     // bits 0 and 1, placed as in Q2_K
    std::array<uint8_t, 12> scales;  // see Scale
    uint16_t d;                      // IEEE half
  };                                 // weight = d * (scale - 32) * (code - 4), exact: 11 + 5 + 2 bits
  static_assert(sizeof(Block) == kBytes);

  // The low four bits of scales 0..7 and 8..15 are the low and high nibbles of bytes 0..7; the top two bits of scale u are bits
  // u / 4 * 2 and on of byte 8 + u % 4.
  static int Scale(const Block& b, size_t u) {
    const int low = u < 8 ? b.scales[u] & 15 : b.scales[u - 8] >> 4;
    return low | (b.scales[8 + u % 4] >> (u / 4 * 2) & 3) << 4;
  }

  static void Unpack(const std::byte* in, Unpacked& out) {
    Block b;
    std::memcpy(&b, in, kBytes);
    for (size_t i = 0; i < kWeights; ++i) {
      const auto at = Q2_K::At(i);
      const int code = (b.low[at.byte] >> at.shift & 3) | (b.high[i % 32] >> (i / 32) & 1) << 2;
      out.code[i] = static_cast<int8_t>(code - 4);
    }
    const float d = HalfToFloat(b.d);
    for (size_t u = 0; u < kUnits; ++u) {
      out.scale[u] = d * static_cast<float>(Scale(b, u) - 32);
      out.minimum[u] = 0;
    }
  }

  static void Encode(const float* in, const float* importance, std::byte* out) {
    const ScaleUnits<kUnits, kUnit> units(in, importance, {-4, 3, -32, 31}, {0.8f, 1.8f, 2}, 3);
    Block b{};
    b.d = units.super;
    for (size_t u = 0; u < kUnits; ++u) {
      const int scale = units.scale[u] + 32;
      b.scales[u % 8] = static_cast<uint8_t>(b.scales[u % 8] | (scale & 15) << (u < 8 ? 0 : 4));
      b.scales[8 + u % 4] = static_cast<uint8_t>(b.scales[8 + u % 4] | (scale >> 4) << (u / 4 * 2));
    }
    for (size_t i = 0; i < kWeights; ++i) {
      const int code = units.code[i] + 4;
      const auto at = Q2_K::At(i);
      b.low[at.byte] = static_cast<uint8_t>(b.low[at.byte] | (code & 3) << at.shift);
      b.high[i % 32] = static_cast<uint8_t>(b.high[i % 32] | (code >> 2) << (i / 32));
    }
    std::memcpy(out, &b, kBytes);
  }
};

}  // namespace glint::quant
