// Q4_0: 32 weights of 4 bits under one half-precision scale; 4.5 bits a weight.
// Source: the public GGUF block formats, type 2.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "quant/fit_scale.h"
#include "quant/format.h"

namespace glint::quant {

struct Q4_0 {
  static constexpr size_t kWeights = 32, kBytes = 18, kUnit = 32;
  static constexpr bool kMinima = false;

  struct Block {                   // as on disk, little endian
    uint16_t scale;                // IEEE half
    std::array<uint8_t, 16> code;  // code i in the low nibble of byte i, code i + 16 in the high one
  };                               // weight i = scale * (code - 8), exact: 11 + 4 significant bits
  static_assert(sizeof(Block) == kBytes);

  static void Unpack(const std::byte* in, Unpacked& out) {
    Block b;
    std::memcpy(&b, in, kBytes);
    for (size_t i = 0; i < 16; ++i) {
      out.code[i] = static_cast<int8_t>((b.code[i] & 15) - 8);
      out.code[i + 16] = static_cast<int8_t>((b.code[i] >> 4) - 8);
    }
    out.scale[0] = HalfToFloat(b.scale);
    out.minimum[0] = 0;
  }

  static void Encode(const float* in, const float* importance, std::byte* out) {
    Block b;
    int8_t code[kWeights];
    b.scale = EncodeScale<kWeights>(in, importance, -8, 7, {0.7f, 2.0f, 2, 2}, code);
    for (size_t i = 0; i < 16; ++i) b.code[i] = static_cast<uint8_t>((code[i] + 8) | (code[i + 16] + 8) << 4);
    std::memcpy(out, &b, kBytes);
  }
};

}  // namespace glint::quant
