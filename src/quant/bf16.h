// BF16: the upper half of an IEEE single, little endian. GGUF type 30.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/half.h"

namespace glint::quant {

struct BF16 {
  static constexpr size_t kWeights = 1, kBytes = 2;

  static void Decode(const std::byte* in, float* out, size_t weights) {
    for (size_t i = 0; i < weights; ++i) {
      uint16_t bits;
      std::memcpy(&bits, in + i * kBytes, kBytes);
      out[i] = BFloatToFloat(bits);
    }
  }

  // Rounded to nearest, ties to even.
  static void Encode(const float* in, std::byte* out, size_t weights) {
    for (size_t i = 0; i < weights; ++i) {
      const uint16_t bits = FloatToBFloat(in[i]);
      std::memcpy(out + i * kBytes, &bits, kBytes);
    }
  }
};

}  // namespace glint::quant
