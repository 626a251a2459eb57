// MXFP4: 32 weights of 4-bit floats (E2M1) under one power of two; 4.25 bits a weight.
// Source: the public GGUF block formats, type 39; OCP Microscaling Formats 1.0.
#pragma once
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "quant/format.h"
#include "quant/fp4.h"

namespace glint::quant {

struct MXFP4 {
  static constexpr size_t kWeights = 32, kBytes = 17, kUnit = 32;
  static constexpr bool kMinima = false;

  struct Block {                   // as on disk
    uint8_t exponent;              // E8M0: 2^(exponent - 127)
    std::array<uint8_t, 16> code;  // code i in the low nibble of byte i, code i + 16 in the high one
  };
  static_assert(sizeof(Block) == kBytes);

  // weight = 2^(exponent - 128) * doubled code, exact but for what is beyond the largest float: exponents 252 and on, which decode
  // gives as an infinity while the integer form stays finite. (Exponent 255 is a NaN in OCP's standard and a number in GGUF.)
  // The scales of exponents 0 and 1 are subnormal floats, and exact.
  static float Scale(uint8_t exponent) {
    return std::bit_cast<float>(exponent < 2 ? 0x200000u << exponent : (exponent - 1u) << 23);
  }

  static void Unpack(const std::byte* in, Unpacked& out) {
    Block b;
    std::memcpy(&b, in, kBytes);
    for (size_t i = 0; i < 16; ++i) {
      out.code[i] = kFp4Doubled[b.code[i] & 15];
      out.code[i + 16] = kFp4Doubled[b.code[i] >> 4];
    }
    out.scale[0] = Scale(b.exponent);
    out.minimum[0] = 0;
  }
};

}  // namespace glint::quant
