// F32: IEEE single precision, little endian. GGUF type 0.
#pragma once
#include <cstddef>
#include <cstring>

namespace glint::quant {

struct F32 {
  static constexpr size_t kWeights = 1, kBytes = 4;
  // No weights may mean no memory, and memcpy wants a pointer even then.
  static void Decode(const std::byte* in, float* out, size_t weights) {
    if (weights > 0) std::memcpy(out, in, weights * kBytes);
  }
  static void Encode(const float* in, std::byte* out, size_t weights) {
    if (weights > 0) std::memcpy(out, in, weights * kBytes);
  }
};

}  // namespace glint::quant
