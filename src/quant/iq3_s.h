// IQ3_S: 256 weights as points of a grid of 512 in 4 dimensions, with signs, in 8 units of 32, each with a 4-bit scale under one
// half-precision scale; 3.4375 bits a weight. Source: the public GGUF block formats, type 21.
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

struct IQ3_S {
  static constexpr size_t kWeights = 256, kBytes = 110, kUnit = 32, kUnits = kWeights / kUnit;
  static constexpr bool kMinima = false;

  struct Block {                    // as on disk, little endian
    uint16_t d;                     // IEEE half
    std::array<uint8_t, 64> point;  // bits 0..7 of the number of the point of weights 4 g ...
    std::array<uint8_t, 8> high;    // bit 8 of point g is bit g % 8 of byte g / 8
    std::array<uint8_t, 32> signs;  // one bit a weight
    std::array<uint8_t, 4> scales;  // units 2 n and 2 n + 1 in the low and high nibbles of byte n
  };  // weight = d * (2 scale + 1) * coordinate, exact: 11 + 5 + 4 significant bits
  static_assert(sizeof(Block) == kBytes);

  // The integer codes are the coordinates with their signs: at most 15.
  static void Unpack(const std::byte* in, Unpacked& out) {
    Block b;
    std::memcpy(&b, in, kBytes);
    const float d = HalfToFloat(b.d);
    for (size_t g = 0; g < 64; ++g) {
      const int point = b.point[g] | (b.high[g / 8] >> (g % 8) & 1) << 8;
      PutSigned(kIq3SGrid.point[point], b.signs[g / 2] >> (g % 2 * 4) & 15u, out.code + g * 4);
    }
    for (size_t u = 0; u < kUnits; ++u) {
      out.scale[u] = d * static_cast<float>(2 * (b.scales[u / 2] >> (u % 2 * 4) & 15) + 1);
      out.minimum[u] = 0;
    }
  }

  // Every group gets the point and the signs that lose least at its unit's scale, of all there are (quant/iq_search.h).
  static void Encode(const float* in, const float* importance, std::byte* out) {
    using Search = SignedSearch<kIq3SGrid, 512, 4, 8, kIq3SLevels, kUnits, kUnit, false>;
    Block b{};
    const Search::Scaled scaled(in, importance);
    if (scaled.HalfReaches()) {
      const auto units = Search::Encode(scaled, 1.0f, {0.11f, 1.22f, 5, 1.0f});
      b.d = units.super;
      for (size_t g = 0; g < 64; ++g) {
        const unsigned point = units.unit[g / 8].point[g % 8];
        b.point[g] = static_cast<uint8_t>(point);
        b.high[g / 8] = static_cast<uint8_t>(b.high[g / 8] | point >> 8 << (g % 8));
      }
      for (size_t g = 0; g < 32; ++g) b.signs[g] = units.unit[g / 4].signs[g % 4];
      for (size_t u = 0; u < kUnits; ++u)
        b.scales[u / 2] = static_cast<uint8_t>(b.scales[u / 2] | units.number[u] << (u % 2 * 4));
    }
    std::memcpy(out, &b, kBytes);
  }
};

}  // namespace glint::quant
