// Q4_1: 32 weights of 4 bits under a half-precision scale, over a half-precision minimum; 5 bits a weight.
// Source: the public GGUF block formats, type 3.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "quant/fit_line.h"
#include "quant/format.h"

namespace glint::quant {

struct Q4_1 {
  static constexpr size_t kWeights = 32, kBytes = 20, kUnit = 32;
  static constexpr bool kMinima = true;

  struct Block {                   // as on disk, little endian
    uint16_t scale, minimum;       // IEEE halves
    std::array<uint8_t, 16> code;  // code i in the low nibble of byte i, code i + 16 in the high one
  };                               // weight i = scale * code + minimum; the product is exact, the sum rounds
  static_assert(sizeof(Block) == kBytes);

  static void Unpack(const std::byte* in, Unpacked& out) {
    Block b;
    std::memcpy(&b, in, kBytes);
    for (size_t i = 0; i < 16; ++i) {
      out.code[i] = static_cast<int8_t>(b.code[i] & 15);
      out.code[i + 16] = static_cast<int8_t>(b.code[i] >> 4);
    }
    out.scale[0] = HalfToFloat(b.scale);
    out.minimum[0] = HalfToFloat(b.minimum);
  }

  static void Encode(const float* in, const float* importance, std::byte* out) {
    const Line<kWeights> line(in, importance, 15, {-0.8f, 0.7f, 3});
    Block b{line.scale, line.minimum, {}};
    for (size_t i = 0; i < 16; ++i) b.code[i] = static_cast<uint8_t>(line.code[i] | line.code[i + 16] << 4);
    std::memcpy(out, &b, kBytes);
  }
};

}  // namespace glint::quant
