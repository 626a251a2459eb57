// MXFP4: 32 weights of 4-bit floats (E2M1) under one power of two; 4.25 bits a weight.
// Source: the public GGUF block formats, type 39; OCP Microscaling Formats 1.0.
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "quant/fit.h"
#include "quant/fit_kernels.h"
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

  // Of 16 powers of two, from one at which the largest weight is a code of at most 2 downwards, the one that loses least; none at which
  // a code would decode to an infinity.
  static void Encode(const float* in, const float* importance, std::byte* out) {
    Block b{};
    const ScaledBlock<kWeights> scaled(in, importance);
    if (scaled.largest > 0) {
      const int first = static_cast<int>(std::bit_cast<uint32_t>(scaled.unit) >> 23);  // of `unit` itself
      int exponent[kFitLanes];
      float step[kFitLanes], error[kFitLanes];
      for (int l = 0; l < static_cast<int>(kFitLanes); ++l) {
        exponent[l] = std::clamp(first - l, 0, 252);
        step[l] = std::bit_cast<float>(static_cast<uint32_t>(127 + exponent[l] - first) << 23);
      }
      BestFitKernels().fp4_error(scaled.x, scaled.w, kWeights, step, error);
      const size_t best = Least16(error);
      b.exponent = static_cast<uint8_t>(exponent[best]);
      uint8_t code[kWeights];
      Fp4Codes(scaled.x, kWeights, step[best], code);
      for (size_t i = 0; i < 16; ++i) b.code[i] = static_cast<uint8_t>(code[i] | code[i + 16] << 4);
    }
    std::memcpy(out, &b, kBytes);
  }
};

}  // namespace glint::quant
