// IQ3_XXS: 256 weights as points of a grid of 256 in 4 dimensions, with signs, in 8 units of 32, each with a 4-bit scale under one
// half-precision scale; 3.0625 bits a weight. Source: the public GGUF block formats, type 18.
#pragma once
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "quant/format.h"
#include "quant/iq_grids.h"
#include "quant/iq_search.h"
#include "quant/iq_signs.h"

namespace glint::quant {

struct IQ3_XXS {
  static constexpr size_t kWeights = 256, kBytes = 98, kUnit = 32, kUnits = kWeights / kUnit;
  static constexpr bool kMinima = false;

  struct Block {                    // as on disk, little endian
    uint16_t d;                     // IEEE half
    std::array<uint8_t, 64> point;  // 4 weights each
    std::array<std::array<uint8_t, 4>, kUnits>
        signs;  // little-endian words: 7 bits for each two points (EvenSigns), the scale
  };            // weight = d * (2 scale + 1) / 4 * coordinate, exact: 11 + 5 + 5 significant bits
  static_assert(sizeof(Block) == kBytes);

  // The integer codes are the coordinates with their signs: at most 62.
  static void Unpack(const std::byte* in, Unpacked& out) {
    Block b;
    std::memcpy(&b, in, kBytes);
    const float d = HalfToFloat(b.d) * 0.25f;
    for (size_t u = 0; u < kUnits; ++u) {
      const auto word = std::bit_cast<uint32_t>(b.signs[u]);
      for (size_t g = 0; g < 8; ++g) {
        const unsigned signs = EvenSigns(word >> (7 * (g / 2)) & 127u) >> (g % 2 * 4);
        PutSigned(kIq3XxsGrid.point[b.point[u * 8 + g]], signs, out.code + u * kUnit + g * 4);
      }
      out.scale[u] = d * static_cast<float>(2 * (word >> 28) + 1);
      out.minimum[u] = 0;
    }
  }

  // Every group gets the point and the signs that lose least at its unit's scale, of all there are (quant/iq_search.h).
  static void Encode(const float* in, const float* importance, std::byte* out) {
    using Search = SignedSearch<kIq3XxsGrid, 256, 4, 8, kIq3XxsLevels, kUnits, kUnit, true>;
    Block b{};
    const Search::Scaled scaled(in, importance);
    if (scaled.HalfReaches()) {
      const auto units = Search::Encode(scaled, 0.25f, {0.03f, 1.25f, 5, 1.0f / 4});
      b.d = units.super;
      for (size_t u = 0; u < kUnits; ++u) {
        uint32_t word = static_cast<uint32_t>(units.number[u]) << 28;
        for (size_t g = 0; g < 4; ++g) word |= (units.unit[u].signs[g] & 127u) << (7 * g);
        b.signs[u] = std::bit_cast<std::array<uint8_t, 4>>(word);
        for (size_t p = 0; p < 8; ++p) b.point[u * 8 + p] = static_cast<uint8_t>(units.unit[u].point[p]);
      }
    }
    std::memcpy(out, &b, kBytes);
  }
};

}  // namespace glint::quant
