// TQ2_0: 256 ternary weights of 2 bits under one half-precision scale; 2.0625 bits a weight.
// Source: the public GGUF block formats, type 35.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "quant/format.h"
#include "quant/q2_k.h"
#include "quant/ternary.h"

namespace glint::quant {

struct TQ2_0 {
  static constexpr size_t kWeights = 256, kBytes = 66, kUnit = 32, kUnits = kWeights / kUnit;
  static constexpr bool kMinima = false;

  struct Block {  // as on disk, little endian
    std::array<uint8_t, 64>
        code;        // placed as in Q2_K; 0, 1, 2; a 3 is not ternary, but decodes like the rest
    uint16_t scale;  // IEEE half
  };                 // weight = scale * (code - 1), exact
  static_assert(sizeof(Block) == kBytes);

  static void Unpack(const std::byte* in, Unpacked& out) {
    Block b;
    std::memcpy(&b, in, kBytes);
    for (size_t i = 0; i < kWeights; ++i) {
      const auto at = Q2_K::At(i);
      out.code[i] = static_cast<int8_t>((b.code[at.byte] >> at.shift & 3) - 1);
    }
    // One scale for the block; units of 32 because the activations' scales are of 32 columns.
    for (size_t u = 0; u < kUnits; ++u) out.scale[u] = HalfToFloat(b.scale), out.minimum[u] = 0;
  }

  static void Encode(const float* in, const float* importance, std::byte* out) {
    Block b{};
    int8_t code[kWeights];
    b.scale = EncodeTernary<kWeights>(in, importance, code);
    for (size_t i = 0; i < kWeights; ++i) {
      const auto at = Q2_K::At(i);
      b.code[at.byte] = static_cast<uint8_t>(b.code[at.byte] | (code[i] + 1) << at.shift);
    }
    std::memcpy(out, &b, kBytes);
  }
};

}  // namespace glint::quant
