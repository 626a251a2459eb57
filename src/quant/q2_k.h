// Q2_K: 256 weights of 2 bits in 16 units of 16, each with a 4-bit scale and a 4-bit minimum under two half-precision ones;
// 2.625 bits a weight. Source: the public GGUF block formats, type 10.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "quant/fit_line.h"
#include "quant/format.h"

namespace glint::quant {

struct Q2_K {
  static constexpr size_t kWeights = 256, kBytes = 84, kUnit = 16, kUnits = kWeights / kUnit;
  static constexpr bool kMinima = true;

  struct Block {                         // as on disk, little endian
    std::array<uint8_t, kUnits> scales;  // scale of unit u in the low nibble, minimum in the high one
    std::array<uint8_t, 64> code;        // see At
    uint16_t d, dmin;                    // IEEE halves
  };  // weight = d * scale * code - dmin * minimum; both products are exact, the difference rounds
  static_assert(sizeof(Block) == kBytes);

  // Where code i lies: each half of 128 weights has 32 bytes, shared by the four weights of equal i % 32.
  struct Place {
    size_t byte;
    int shift;
  };
  static constexpr Place At(size_t i) { return {i / 128 * 32 + i % 32, static_cast<int>(i % 128 / 32) * 2}; }

  static void Unpack(const std::byte* in, Unpacked& out) {
    Block b;
    std::memcpy(&b, in, kBytes);
    for (size_t i = 0; i < kWeights; ++i)
      out.code[i] = static_cast<int8_t>(b.code[At(i).byte] >> At(i).shift & 3);
    const float d = HalfToFloat(b.d), dmin = HalfToFloat(b.dmin);
    for (size_t u = 0; u < kUnits; ++u) {
      out.scale[u] = d * static_cast<float>(b.scales[u] & 15);
      out.minimum[u] = -(dmin * static_cast<float>(b.scales[u] >> 4));
    }
  }

  static void Encode(const float* in, const float* importance, std::byte* out) {
    const LineUnits<kUnits, kUnit> units(in, importance, 3, 15, {-0.1f, 0.4f, 3}, 4);
    Block b{};
    b.d = units.super_scale, b.dmin = units.super_minimum;
    for (size_t u = 0; u < kUnits; ++u)
      b.scales[u] = static_cast<uint8_t>(units.scale[u] | units.minimum[u] << 4);
    for (size_t i = 0; i < kWeights; ++i)
      b.code[At(i).byte] = static_cast<uint8_t>(b.code[At(i).byte] | units.code[i] << At(i).shift);
    std::memcpy(out, &b, kBytes);
  }
};

}  // namespace glint::quant
