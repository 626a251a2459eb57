// Q5_0: 32 weights of 5 bits under one half-precision scale; 5.5 bits a weight.
// Source: the public GGUF block formats, type 6.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "quant/fit_scale.h"
#include "quant/format.h"

namespace glint::quant {

struct Q5_0 {
  static constexpr size_t kWeights = 32, kBytes = 22, kUnit = 32;
  static constexpr bool kMinima = false;

  struct Block {                  // as on disk, little endian
    uint16_t scale;               // IEEE half
    std::array<uint8_t, 4> high;  // bit 4 of code i is bit i of this little-endian word
    std::array<uint8_t, 16>
        low;  // bits 0..3: code i in the low nibble of byte i, code i + 16 in the high one
  };          // weight i = scale * (code - 16), exact: 11 + 5 significant bits
  static_assert(sizeof(Block) == kBytes);

  static void Unpack(const std::byte* in, Unpacked& out) {
    Block b;
    std::memcpy(&b, in, kBytes);
    for (size_t i = 0; i < kWeights; ++i) {
      const int low = i < 16 ? b.low[i] & 15 : b.low[i - 16] >> 4;
      const int high = b.high[i / 8] >> (i % 8) & 1;
      out.code[i] = static_cast<int8_t>((low | high << 4) - 16);
    }
    out.scale[0] = HalfToFloat(b.scale);
    out.minimum[0] = 0;
  }

  static void Encode(const float* in, const float* importance, std::byte* out) {
    Block b{};
    int8_t signed_code[kWeights];
    b.scale = EncodeScale<kWeights>(in, importance, -16, 15, {0.7f, 2.0f, 2, 2}, signed_code);
    for (size_t i = 0; i < kWeights; ++i) {
      const int code = signed_code[i] + 16;
      b.low[i % 16] = static_cast<uint8_t>(b.low[i % 16] | (code & 15) << (i < 16 ? 0 : 4));
      b.high[i / 8] = static_cast<uint8_t>(b.high[i / 8] | (code >> 4) << (i % 8));
    }
    std::memcpy(out, &b, kBytes);
  }
};

}  // namespace glint::quant
