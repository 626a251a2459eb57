// E2M1, the 4-bit float of MXFP4 and NVFP4 (OCP Microscaling Formats 1.0, 5.3.3): 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives.
#pragma once
#include <cstdint>

namespace glint::quant {

// Doubled, so that they are integers; the blocks' scales are halved. Minus zero is 0: the gguf package decodes it so.
inline constexpr int8_t kFp4Doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

}  // namespace glint::quant
