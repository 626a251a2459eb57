// IQ4_NL: 32 weights of 4 bits that choose among 16 fixed values, under one half-precision scale; 4.5 bits a weight.
// Source: the public GGUF block formats, type 20.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "quant/format.h"
#include "quant/iq_grids.h"

namespace glint::quant {

struct IQ4_NL {
  static constexpr size_t kWeights = 32, kBytes = 18, kUnit = 32;
  static constexpr bool kMinima = false;

  struct Block {                    // as on disk, little endian
    uint16_t scale;                 // IEEE half
    std::array<uint8_t, 16> value;  // weight i: low nibble of byte i, weight i + 16: the high one
  };                                // weight = scale * kIq4Values[nibble], exact: 11 + 7 significant bits
  static_assert(sizeof(Block) == kBytes);

  // The integer codes are the values themselves: they are signed bytes.
  static void Unpack(const std::byte* in, Unpacked& out) {
    Block b;
    std::memcpy(&b, in, kBytes);
    for (size_t i = 0; i < 16; ++i) {
      out.code[i] = kIq4Values[b.value[i] & 15];
      out.code[i + 16] = kIq4Values[b.value[i] >> 4];
    }
    out.scale[0] = HalfToFloat(b.scale);
    out.minimum[0] = 0;
  }
};

}  // namespace glint::quant
