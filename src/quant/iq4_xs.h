// IQ4_XS: 256 weights of 4 bits that choose among 16 fixed values, in 8 units of 32, each with a 6-bit scale under one half-precision
// scale; 4.25 bits a weight. Source: the public GGUF block formats, type 23.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "quant/format.h"
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
};

}  // namespace glint::quant
