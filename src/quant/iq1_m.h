// IQ1_M: 256 weights as points of a ternary grid of 2048 in 8 dimensions, each shifted by an eighth up or down, in 16 units of 16,
// each with a 3-bit scale under one half-precision scale; 1.75 bits a weight. Source: the public GGUF block formats, type 29.
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

struct IQ1_M {
  static constexpr size_t kWeights = 256, kBytes = 56, kUnit = 16, kUnits = kWeights / kUnit;
  static constexpr bool kMinima = false;

  struct Block {                    // as on disk, little endian
    std::array<uint8_t, 32> point;  // bits 0..7 of the number of the point of weights 8 g ...
    std::array<uint8_t, 16>
        high;  // a nibble for each point g, the low one first: bits 8..10, then the shift (set: down)
    std::array<uint16_t, 4>
        scales;  // unit u in the three bits from 3 (u % 4) on of word u / 4; the words' top nibbles: d
  };             // weight = d * (2 scale + 1) * (coordinate +- 1/8), exact: 11 + 4 + 4 significant bits
  static_assert(sizeof(Block) == kBytes);

  // The half-precision scale, four bits of which top each word, the lowest first.
  static uint16_t D(const Block& b) {
    unsigned d = 0;
    for (size_t n = 0; n < 4; ++n) d |= (b.scales[n] >> 12u) << (4 * n);
    return static_cast<uint16_t>(d);
  }

  // The shift changes every 8 columns, half a unit, so it could not be a minimum: in eighths the codes hold it, 8 coordinate +- 1,
  // at most 9.
  static void Unpack(const std::byte* in, Unpacked& out) {
    Block b;
    std::memcpy(&b, in, kBytes);
    for (size_t g = 0; g < 32; ++g) {
      const int high = b.high[g / 2] >> (g % 2 * 4) & 15;
      const int8_t* const point = kIq1Grid.point[b.point[g] | (high & 7) << 8];
      for (size_t i = 0; i < 8; ++i)
        out.code[g * 8 + i] = static_cast<int8_t>(8 * point[i] + (high & 8 ? -1 : 1));
    }
    const float d = HalfToFloat(D(b)) * 0.125f;
    for (size_t u = 0; u < kUnits; ++u) {
      out.scale[u] = d * static_cast<float>(2 * (b.scales[u / 4] >> (u % 4 * 3) & 7) + 1);
      out.minimum[u] = 0;
    }
  }

  // Every group gets the point and the shift that lose least at its unit's scale, of all there are (quant/iq_search.h).
  static void Encode(const float* in, const float* importance, std::byte* out) {
    using Search = TernarySearch<kUnits, kUnit, 8>;
    Block b{};
    const Search::Scaled scaled(in, importance);
    if (scaled.HalfReaches()) {
      const auto units = Search::Encode(scaled, 0.125f, {0.1f, 1.35f, 4, 1.0f / 8});
      for (size_t g = 0; g < 32; ++g) {
        const auto& unit = units.unit[g / 2];
        const unsigned high = unit.point[g % 2] >> 8u | (unit.down[g % 2] ? 8u : 0u);
        b.point[g] = static_cast<uint8_t>(unit.point[g % 2]);
        b.high[g / 2] = static_cast<uint8_t>(b.high[g / 2] | high << (g % 2 * 4));
      }
      for (size_t u = 0; u < kUnits; ++u)
        b.scales[u / 4] = static_cast<uint16_t>(b.scales[u / 4] | units.number[u] << (u % 4 * 3));
      for (size_t n = 0; n < 4; ++n)
        b.scales[n] = static_cast<uint16_t>(b.scales[n] | (units.super >> (4 * n) & 15) << 12);
    }
    std::memcpy(out, &b, kBytes);
  }
};

}  // namespace glint::quant
