// IQ2_S: 256 weights as points of a grid of 1024 in 8 dimensions, with signs, in 16 units of 16, each with a 4-bit scale under one
// half-precision scale; 2.5625 bits a weight. Source: the public GGUF block formats, type 22.
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

struct IQ2_S {
  static constexpr size_t kWeights = 256, kBytes = 82, kUnit = 16, kUnits = kWeights / kUnit;
  static constexpr bool kMinima = false;

  struct Block {                    // as on disk, little endian
    uint16_t d;                     // IEEE half
    std::array<uint8_t, 32> point;  // bits 0..7 of the number of the point of weights 8 g ...
    std::array<uint8_t, 32> signs;  // one bit a weight
    std::array<uint8_t, 8> high;    // bits 8 and 9 of point g: bits g % 4 * 2 and on of byte g / 4
    std::array<uint8_t, 8> scales;  // units 2 n and 2 n + 1 in the low and high nibbles of byte n
  };  // weight = d * (2 scale + 1) / 8 * coordinate, exact: 11 + 5 + 6 significant bits
  static_assert(sizeof(Block) == kBytes);

  // The integer codes are the coordinates with their signs: at most 43.
  static void Unpack(const std::byte* in, Unpacked& out) {
    Block b;
    std::memcpy(&b, in, kBytes);
    const float d = HalfToFloat(b.d) * 0.125f;
    for (size_t g = 0; g < 32; ++g) {
      const int point = b.point[g] | (b.high[g / 4] >> (g % 4 * 2) & 3) << 8;
      PutSigned(kIq2SGrid.point[point], b.signs[g], out.code + g * 8);
    }
    for (size_t u = 0; u < kUnits; ++u) {
      out.scale[u] = d * static_cast<float>(2 * (b.scales[u / 2] >> (u % 2 * 4) & 15) + 1);
      out.minimum[u] = 0;
    }
  }

  // Every group gets the point and the signs that lose least at its unit's scale, of all there are (quant/iq_search.h).
  static void Encode(const float* in, const float* importance, std::byte* out) {
    using Search = SignedSearch<kIq2SGrid, 1024, 8, 3, kIq2Levels, kUnits, kUnit, false>;
    Block b{};
    const Search::Scaled scaled(in, importance);
    if (scaled.HalfReaches()) {
      const auto units = Search::Encode(scaled, 0.125f, {0.033f, 1.35f, 4, 1.0f / 8});
      b.d = units.super;
      for (size_t g = 0; g < 32; ++g) {
        const auto& unit = units.unit[g / 2];
        b.point[g] = static_cast<uint8_t>(unit.point[g % 2]);
        b.signs[g] = unit.signs[g % 2];
        b.high[g / 4] = static_cast<uint8_t>(b.high[g / 4] | unit.point[g % 2] >> 8u << (g % 4 * 2));
      }
      for (size_t u = 0; u < kUnits; ++u)
        b.scales[u / 2] = static_cast<uint8_t>(b.scales[u / 2] | units.number[u] << (u % 2 * 4));
    }
    std::memcpy(out, &b, kBytes);
  }
};

}  // namespace glint::quant
