// Q8_0: 32 weights as signed bytes under one half-precision scale; 8.5 bits a weight.
// Source: the public GGUF block formats, type 8.
#pragma once
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "quant/fit.h"
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

  // scale = the half nearest to max / 127 (the next one up where halves are so coarse that 127 steps would fall short of the
  // maximum by more than half a step); codes are the nearest multiples of the scale as stored.
  static void Encode(const float* in, const float* /*importance*/, std::byte* out) {
    Block b;
    float max = 0;
    for (size_t i = 0; i < kWeights; ++i) max = std::fmax(max, std::fabs(in[i]));
    b.scale = ScaleToHalf(max / 127.0f);
    if (max > 127.5f * HalfToFloat(b.scale) && b.scale < 0x400u) ++b.scale;
    const float inverse = SafeInverse(HalfToFloat(b.scale));
    for (size_t i = 0; i < kWeights; ++i)
      b.q[i] = static_cast<int8_t>(RoundClamped(in[i] * inverse, -127, 127));
    std::memcpy(out, &b, kBytes);
  }
};

}  // namespace glint::quant
