// Q8_0: 32 weights as signed bytes under one half-precision scale; 8.5 bits a weight.
// Source: the public GGUF block formats, type 8.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "quant/fit_scale.h"
#include "quant/format.h"

namespace glint::quant {

struct Q8_0 {
  static constexpr size_t kWeights = 32, kBytes = 34, kUnit = 32;
  static constexpr bool kMinima = false;

  struct Block {                     // as on disk, little endian; block n starts at byte 34 n
    uint16_t scale;                  // IEEE half, any bit pattern: a file may hold a NaN
    std::array<int8_t, kWeights> q;  // weight i = scale * q[i], exact: 11 + 8 significant bits
  };
  static_assert(sizeof(Block) == kBytes);

  static void Unpack(const std::byte* in, Unpacked& out) {
    Block b;
    std::memcpy(&b, in, kBytes);
    std::memcpy(out.code, b.q.data(), kWeights);
    out.scale[0] = HalfToFloat(b.scale);
    out.minimum[0] = 0;
  }

  // Of the halves at which the largest weight gets a code from 125 to 127, the one that loses least; none at which any weight is
  // further than half a step from its code. So the weights of a block encode to that block again. (Code -128 is not used:
  // products in other programs cannot take it.)
  static void Encode(const float* in, const float* importance, std::byte* out) {
    Block b{};
    const ScaledBlock<kWeights> scaled(in, importance);
    if (scaled.largest > 0) {
      constexpr size_t kScales =
          4 * kFitLanes;  // 50 halves lie between max / 127.5 and max / 124.5 at the most
      uint16_t half[kScales];
      float step[kScales], error[kScales];
      uint16_t least = ScaleToHalf(scaled.largest / 127.5f);
      if (scaled.largest > 127.5f * HalfToFloat(least)) least = StepHalf(least, 1);
      for (size_t l = 0; l < kScales; ++l) {
        half[l] = StepHalf(least, static_cast<int>(l));
        step[l] = scaled.Step(half[l]);
      }
      for (size_t l = 0; l < kScales; l += kFitLanes)
        BestFitKernels().scale_error(scaled.x, scaled.w, kWeights, -127, 127, step + l, error + l);
      size_t best = 0;
      for (size_t l = 1; l < kScales && scaled.largest >= 124.5f * FiniteHalfToFloat(half[l]); ++l)
        if (error[l] < error[best]) best = l;
      b.scale = half[best];
      Codes(scaled.x, kWeights, step[best], -127, 127, b.q.data());
    }
    std::memcpy(out, &b, kBytes);
  }
};

}  // namespace glint::quant
