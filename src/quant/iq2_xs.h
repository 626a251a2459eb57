// IQ2_XS: 256 weights as points of a grid of 512 in 8 dimensions, with signs, in 16 units of 16, each with a 4-bit scale under one
// half-precision scale; 2.3125 bits a weight. Source: the public GGUF block formats, type 17.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "quant/format.h"
#include "quant/iq_grids.h"
#include "quant/iq_search.h"
#include "quant/iq_signs.h"

namespace glint::quant {

struct IQ2_XS {
  static constexpr size_t kWeights = 256, kBytes = 74, kUnit = 16, kUnits = kWeights / kUnit;
  static constexpr bool kMinima = false;

  struct Block {                     // as on disk, little endian
    uint16_t d;                      // IEEE half
    std::array<uint16_t, 32> point;  // of 8 weights: the point's number in 9 bits, then 7 signs (EvenSigns)
    std::array<uint8_t, 8> scales;   // units 2 n and 2 n + 1 in the low and high nibbles of byte n
  };  // weight = d * (2 scale + 1) / 8 * coordinate, exact: 11 + 5 + 6 significant bits
  static_assert(sizeof(Block) == kBytes);

  // The integer codes are the coordinates with their signs: at most 43.
  static void Unpack(const std::byte* in, Unpacked& out) {
    Block b;
    std::memcpy(&b, in, kBytes);
    const float d = HalfToFloat(b.d) * 0.125f;
    for (size_t g = 0; g < 32; ++g)
      PutSigned(kIq2XsGrid.point[b.point[g] & 511], EvenSigns(b.point[g] >> 9u), out.code + g * 8);
    for (size_t u = 0; u < kUnits; ++u) {
      out.scale[u] = d * static_cast<float>(2 * (b.scales[u / 2] >> (u % 2 * 4) & 15) + 1);
      out.minimum[u] = 0;
    }
  }

  // Every group gets the point and the signs that lose least at its unit's scale, of all there are (quant/iq_search.h).
  static void Encode(const float* in, const float* importance, std::byte* out) {
    using Search = SignedSearch<kIq2XsGrid, 512, 8, 3, kIq2Levels, kUnits, kUnit, true>;
    Block b{};
    const Search::Scaled scaled(in, importance);
    if (scaled.HalfReaches()) {
      const auto units = Search::Encode(scaled, 0.125f, {0.033f, 1.35f, 4, 1.0f / 8});
      b.d = units.super;
      for (size_t g = 0; g < 32; ++g) {
        const auto& unit = units.unit[g / 2];
        b.point[g] = static_cast<uint16_t>(unit.point[g % 2] | (unit.signs[g % 2] & 127u) << 9);
      }
      for (size_t u = 0; u < kUnits; ++u)
        b.scales[u / 2] = static_cast<uint8_t>(b.scales[u / 2] | units.number[u] << (u % 2 * 4));
    }
    std::memcpy(out, &b, kBytes);
  }
};

}  // namespace glint::quant
