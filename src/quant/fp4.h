// E2M1, the 4-bit float of MXFP4 and NVFP4 (OCP Microscaling Formats 1.0, 5.3.3): 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "quant/fit.h"

namespace glint::quant {

// Doubled, so that they are integers; the blocks' scales are halved. Minus zero is 0: the gguf package decodes it so.
inline constexpr int8_t kFp4Doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// The nibbles of the values nearest to x / step, a zero without its sign; 0 for a step of 0. Ties go to the even nibble.
inline void Fp4Codes(const float* x, size_t n, float step, uint8_t* code) {
  const float inverse = SafeInverse(step);
  for (size_t i = 0; i < n; ++i) {
    float y = std::fabs(x[i]) * inverse;
    y = y < 6 ? y : 6;
    // Values below 2 are 0.5 apart, then 1, then 2.
    const float per = y < 2 ? 2.0f : y < 4 ? 1.0f : 0.5f, first = y < 2 ? 0.0f : y < 4 ? 2.0f : 4.0f;
    const auto magnitude = static_cast<int>((y * per + 12582912.0f) - 12582912.0f + first);
    code[i] = static_cast<uint8_t>(magnitude | (x[i] < 0 && magnitude != 0 ? 8 : 0));
  }
}

}  // namespace glint::quant
