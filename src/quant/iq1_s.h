// IQ1_S: 256 weights as points of a ternary grid of 2048 in 8 dimensions, in 8 units of 32, each with a 3-bit scale under one
// half-precision scale and a shift of an eighth up or down; 1.5625 bits a weight. Source: the public GGUF block formats, type 19.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "quant/format.h"
#include "quant/iq_grids.h"
#include "quant/iq_search.h"

namespace glint::quant {

struct IQ1_S {
  static constexpr size_t kWeights = 256, kBytes = 50, kUnit = 32, kUnits = kWeights / kUnit;
  static constexpr bool kMinima = false;

  struct Block {                    // as on disk, little endian
    uint16_t d;                     // IEEE half
    std::array<uint8_t, 32> point;  // bits 0..7 of the number of the point of weights 8 g ...
    std::array<uint16_t, kUnits>
        high;  // bits 8..10 of the unit's four points, three each; then the scale; bit 15: shift down
  };           // weight = d * (2 scale + 1) * (coordinate +- 1/8), exact: 11 + 4 + 4 significant bits
  static_assert(sizeof(Block) == kBytes);

  // The shift needs no minimum: in eighths the codes are integers, 8 coordinate +- 1, at most 9.
  static void Unpack(const std::byte* in, Unpacked& out) {
    Block b;
    std::memcpy(&b, in, kBytes);
    const float d = HalfToFloat(b.d) * 0.125f;
    for (size_t u = 0; u < kUnits; ++u) {
      const int shift = b.high[u] >> 15 ? -1 : 1;
      for (size_t g = 0; g < 4; ++g) {
        const int8_t* const point = kIq1Grid.point[b.point[u * 4 + g] | (b.high[u] >> (3 * g) & 7) << 8];
        for (size_t i = 0; i < 8; ++i)
          out.code[u * kUnit + g * 8 + i] = static_cast<int8_t>(8 * point[i] + shift);
      }
      out.scale[u] = d * static_cast<float>(2 * (b.high[u] >> 12 & 7) + 1);
      out.minimum[u] = 0;
    }
  }

  // Every group gets the point that loses least at its unit's scale and shift, of all there are (quant/iq_search.h).
  static void Encode(const float* in, const float* importance, std::byte* out) {
    using Search = TernarySearch<kUnits, kUnit, 32>;
    Block b{};
    const Search::Scaled scaled(in, importance);
    if (scaled.HalfReaches()) {
      const auto units = Search::Encode(scaled, 0.125f, {0.1f, 1.35f, 4, 1.0f / 8});
      b.d = units.super;
      for (size_t u = 0; u < kUnits; ++u) {
        unsigned word = static_cast<unsigned>(units.number[u]) << 12 | (units.unit[u].down[0] ? 0x8000u : 0u);
        for (size_t g = 0; g < 4; ++g) {
          b.point[u * 4 + g] = static_cast<uint8_t>(units.unit[u].point[g]);
          word |= units.unit[u].point[g] >> 8u << (3 * g);
        }
        b.high[u] = static_cast<uint16_t>(word);
      }
    }
    std::memcpy(out, &b, kBytes);
  }
};

}  // namespace glint::quant
