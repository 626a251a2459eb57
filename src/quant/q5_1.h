// Q5_1: 32 weights of 5 bits under a half-precision scale, over a half-precision minimum; 6 bits a weight.
// Source: the public GGUF block formats, type 7.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "quant/fit_line.h"
#include "quant/format.h"

namespace glint::quant {

struct Q5_1 {
  static constexpr size_t kWeights = 32, kBytes = 24, kUnit = 32;
  static constexpr bool kMinima = true;

  struct Block {                  // as on disk, little endian
    uint16_t scale, minimum;      // IEEE halves
    std::array<uint8_t, 4> high;  // bit 4 of code i is bit i of this little-endian word
    std::array<uint8_t, 16>
        low;  // bits 0..3: code i in the low nibble of byte i, code i + 16 in the high one
  };          // weight i = scale * code + minimum; the product is exact, the sum rounds
  static_assert(sizeof(Block) == kBytes);

  static void Unpack(const std::byte* in, Unpacked& out) {
    Block b;
    std::memcpy(&b, in, kBytes);
    for (size_t i = 0; i < kWeights; ++i) {
      const int low = i < 16 ? b.low[i] & 15 : b.low[i - 16] >> 4;
      const int high = b.high[i / 8] >> (i % 8) & 1;
      out.code[i] = static_cast<int8_t>(low | high << 4);
    }
    out.scale[0] = HalfToFloat(b.scale);
    out.minimum[0] = HalfToFloat(b.minimum);
  }

  static void Encode(const float* in, const float* importance, std::byte* out) {
    const Line<kWeights> line(in, importance, 31, {-1.0f, 0.6f, 3});
    Block b{line.scale, line.minimum, {}, {}};
    for (size_t i = 0; i < kWeights; ++i) {
      b.low[i % 16] = static_cast<uint8_t>(b.low[i % 16] | (line.code[i] & 15) << (i < 16 ? 0 : 4));
      b.high[i / 8] = static_cast<uint8_t>(b.high[i / 8] | (line.code[i] >> 4) << (i % 8));
    }
    std::memcpy(out, &b, kBytes);
  }
};

}  // namespace glint::quant
