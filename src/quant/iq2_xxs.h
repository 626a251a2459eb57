// IQ2_XXS: 256 weights as points of a grid of 256 in 8 dimensions, with signs, in 8 units of 32, each with a 4-bit scale under one
// half-precision scale; 2.0625 bits a weight. Source: the public GGUF block formats, type 16.
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

struct IQ2_XXS {
  static constexpr size_t kWeights = 256, kBytes = 66, kUnit = 32, kUnits = kWeights / kUnit;
  static constexpr bool kMinima = false;

  struct Unit {
    std::array<uint8_t, 4> point;  // 8 weights each
    std::array<uint8_t, 4> signs;  // little-endian word: 7 bits for each point (EvenSigns), then the scale
  };
  struct Block {  // as on disk, little endian
    uint16_t d;   // IEEE half
    std::array<Unit, kUnits> unit;
  };  // weight = d * (2 scale + 1) / 8 * coordinate, exact: 11 + 5 + 6 significant bits
  static_assert(sizeof(Block) == kBytes);

  // The integer codes are the coordinates with their signs: at most 43.
  static void Unpack(const std::byte* in, Unpacked& out) {
    Block b;
    std::memcpy(&b, in, kBytes);
    const float d = HalfToFloat(b.d) * 0.125f;
    for (size_t u = 0; u < kUnits; ++u) {
      const auto word = std::bit_cast<uint32_t>(b.unit[u].signs);
      for (size_t g = 0; g < 4; ++g) {
        PutSigned(kIq2XxsGrid.point[b.unit[u].point[g]], EvenSigns(word >> (7 * g) & 127u),
                  out.code + u * kUnit + g * 8);
      }
      out.scale[u] = d * static_cast<float>(2 * (word >> 28) + 1);
      out.minimum[u] = 0;
    }
  }

  // Every group gets the point and the signs that lose least at its unit's scale, of all there are (quant/iq_search.h).
  static void Encode(const float* in, const float* importance, std::byte* out) {
    using Search = SignedSearch<kIq2XxsGrid, 256, 8, 3, kIq2Levels, kUnits, kUnit, true>;
    Block b{};
    const Search::Scaled scaled(in, importance);
    if (scaled.HalfReaches()) {
      const auto units = Search::Encode(scaled, 0.125f, {0.033f, 1.35f, 4, 1.0f / 8});
      b.d = units.super;
      for (size_t u = 0; u < kUnits; ++u) {
        uint32_t word = static_cast<uint32_t>(units.number[u]) << 28;
        for (size_t g = 0; g < 4; ++g) {
          b.unit[u].point[g] = static_cast<uint8_t>(units.unit[u].point[g]);
          word |= (units.unit[u].signs[g] & 127u) << (7 * g);
        }
        b.unit[u].signs = std::bit_cast<std::array<uint8_t, 4>>(word);
      }
    }
    std::memcpy(out, &b, kBytes);
  }
};

}  // namespace glint::quant
