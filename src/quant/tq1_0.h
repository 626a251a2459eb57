// TQ1_0: 256 ternary weights, five to a byte, under one half-precision scale; 1.6875 bits a weight.
// Source: the public GGUF block formats, type 34.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "quant/format.h"
#include "quant/ternary.h"

namespace glint::quant {

struct TQ1_0 {
  static constexpr size_t kWeights = 256, kBytes = 54, kUnit = 32, kUnits = kWeights / kUnit;
  static constexpr bool kMinima = false;

  struct Block {                    // as on disk, little endian
    std::array<uint8_t, 52> digit;  // see Unpack
    uint16_t scale;                 // IEEE half
  };                                // weight = scale * (digit - 1), exact
  static_assert(sizeof(Block) == kBytes);

  // Bytes 0..31 hold the digits of weights 0..159, digit n of byte m that of weight 32 n + m; bytes 32..47 those of weights
  // 160 + 16 n + m; bytes 48..51, of four digits, those of 240 + 4 n + m. A byte stands for the fraction byte / 256, whose base-3
  // digits they are: digit n is the whole part after n multiplications by 3 (modulo 1) and one more. Any byte is valid.
  static void Unpack(const std::byte* in, Unpacked& out) {
    Block b;
    std::memcpy(&b, in, kBytes);
    int8_t* code = out.code;
    const auto unpack = [&](size_t first, size_t bytes, int digits) {
      for (unsigned n = 0, power = 1; n < static_cast<unsigned>(digits); ++n, power *= 3) {
        for (size_t m = first; m < first + bytes; ++m) {
          const unsigned fraction = b.digit[m] * power & 255u;
          *code++ = static_cast<int8_t>(static_cast<int>(fraction * 3 >> 8) - 1);
        }
      }
    };
    unpack(0, 32, 5);
    unpack(32, 16, 5);
    unpack(48, 4, 4);
    // One scale for the block; units of 32 because the activations' scales are of 32 columns.
    for (size_t u = 0; u < kUnits; ++u) out.scale[u] = HalfToFloat(b.scale), out.minimum[u] = 0;
  }

  // A byte is the least whose fraction has the digits wanted: their number / 243 (or / 81 and a 0), rounded up to 1 / 256.
  static void Encode(const float* in, const float* importance, std::byte* out) {
    Block b{};
    int8_t code[kWeights];
    b.scale = EncodeTernary<kWeights>(in, importance, code);
    const int8_t* next = code;
    const auto pack = [&](size_t first, size_t bytes, size_t digits) {
      for (size_t m = 0; m < bytes; ++m) {
        unsigned number = 0;
        for (size_t n = 0; n < 5; ++n)
          number = number * 3 + (n < digits ? static_cast<unsigned>(next[n * bytes + m] + 1) : 0);
        b.digit[first + m] = static_cast<uint8_t>((number * 256 + 242) / 243);
      }
      next += bytes * digits;
    };
    pack(0, 32, 5);
    pack(32, 16, 5);
    pack(48, 4, 4);
    std::memcpy(out, &b, kBytes);
  }
};

}  // namespace glint::quant
