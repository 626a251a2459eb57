// NVFP4: 64 weights of 4-bit floats (E2M1) in 4 units of 16, each under an unsigned 8-bit float (E4M3); 4.5 bits a weight.
// Source: the public GGUF block formats, type 40. (Files of this type may carry one more scale for a whole tensor, in a tensor of
// its own: not a matter of the block.)
#pragma once
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "quant/format.h"
#include "quant/fp4.h"

namespace glint::quant {

struct NVFP4 {
  static constexpr size_t kWeights = 64, kBytes = 36, kUnit = 16, kUnits = kWeights / kUnit;
  static constexpr bool kMinima = false;

  struct Block {                        // as on disk
    std::array<uint8_t, kUnits> scale;  // see Scale
    std::array<uint8_t, kWeights / 2>
        code;  // unit u: code i in the low nibble of byte 8 u + i, code i + 8 in the high one
  };           // weight = scale / 2 * doubled code, exact: 4 + 4 significant bits
  static_assert(sizeof(Block) == kBytes);

  // Half of the E4M3 value, whose codes are doubled. The top bit, a sign elsewhere, is not read; 0x7f, a NaN in E4M3, stands for 0,
  // but 0xff for 480: so the gguf package has it.
  static float Scale(uint8_t bits) {
    const int exponent = bits >> 3 & 15, mantissa = bits & 7;
    if (bits == 0x7f) return 0;
    if (exponent == 0) return static_cast<float>(mantissa) * 0x1p-10f;
    return std::ldexp(static_cast<float>(8 + mantissa), exponent - 11);
  }

  static void Unpack(const std::byte* in, Unpacked& out) {
    Block b;
    std::memcpy(&b, in, kBytes);
    for (size_t u = 0; u < kUnits; ++u) {
      for (size_t i = 0; i < 8; ++i) {
        const uint8_t byte = b.code[u * 8 + i];
        out.code[u * kUnit + i] = kFp4Doubled[byte & 15];
        out.code[u * kUnit + i + 8] = kFp4Doubled[byte >> 4];
      }
      out.scale[u] = Scale(b.scale[u]);
      out.minimum[u] = 0;
    }
  }
};

}  // namespace glint::quant
