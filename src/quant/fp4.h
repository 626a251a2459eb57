// E2M1, the 4-bit float of MXFP4 and NVFP4 (OCP Microscaling Formats 1.0, 5.3.3): 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "quant/fit.h"

namespace glint::quant {

// Doubled, so that they are integers; the blocks' scales are halved. Minus zero is 0: the gguf package decodes it so.
inline constexpr int8_t kFp4Doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// The nibble of the nearest value to x / step, a zero without its sign; 0 for a step of 0.
inline uint8_t Fp4Code(float x, float inverse_step) {
  const float y = std::fabs(x) * inverse_step;
  const int magnitude = y < 2   ? RoundClamped(y * 2, 0, 4)
                        : y < 4 ? RoundClamped(y, 2, 4) + 2
                                : RoundClamped(y * 0.5f, 2, 3) + 4;
  return static_cast<uint8_t>(magnitude == 0 ? 0 : magnitude | (x < 0 ? 8 : 0));
}

}  // namespace glint::quant
