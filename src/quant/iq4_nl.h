// IQ4_NL: 32 weights of 4 bits that choose among 16 fixed values, under one half-precision scale; 4.5 bits a weight.
// Source: the public GGUF block formats, type 20.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "base/half.h"
#include "quant/format.h"
#include "quant/iq4_fit.h"
#include "quant/iq_grids.h"

namespace glint::quant {

struct IQ4_NL {
  static constexpr size_t kWeights = 32, kBytes = 18, kUnit = 32;
  static constexpr bool kMinima = false;

  struct Block {                    // as on disk, little endian
    uint16_t scale;                 // IEEE half
    std::array<uint8_t, 16> value;  // weight i: low nibble of byte i, weight i + 16: the high one
  };                                // weight = scale * kIq4Values[nibble], exact: 11 + 7 significant bits
  static_assert(sizeof(Block) == kBytes);

  // The integer codes are the values themselves: they are signed bytes.
  static void Unpack(const std::byte* in, Unpacked& out) {
    Block b;
    std::memcpy(&b, in, kBytes);
    for (size_t i = 0; i < 16; ++i) {
      out.code[i] = kIq4Values[b.value[i] & 15];
      out.code[i + 16] = kIq4Values[b.value[i] >> 4];
    }
    out.scale[0] = HalfToFloat(b.scale);
    out.minimum[0] = 0;
  }

  // Fits the scale, and takes of the halves around it the one that loses least.
  static void Encode(const float* in, const float* importance, std::byte* out) {
    Block b{};
    const ScaledBlock<kWeights> scaled(in, importance);
    if (scaled.HalfReaches()) {
      const uint16_t fitted = scaled.Half(FitIq4(scaled.x, scaled.w, kWeights).scale);
      float least = std::numeric_limits<float>::infinity();
      for (int steps = -2; steps <= 2; ++steps) {
        const uint16_t half = StepHalf(fitted, steps);
        const float cost = Iq4Sums(scaled.x, scaled.w, kWeights, scaled.Step(half)).cost;
        if (cost < least) least = cost, b.scale = half;
      }
      const float inverse = SafeInverse(scaled.Step(b.scale));
      for (size_t i = 0; i < 16; ++i) {
        b.value[i] = static_cast<uint8_t>(kIq4Nearest(scaled.x[i] * inverse) |
                                          kIq4Nearest(scaled.x[i + 16] * inverse) << 4);
      }
    }
    std::memcpy(out, &b, kBytes);
  }
};

}  // namespace glint::quant
