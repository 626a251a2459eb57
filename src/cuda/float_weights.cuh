// Plain weights as kernels read them: exact floats.
#pragma once
#include <cuda_fp16.h>

#include <cstdint>

namespace glint::cuda {

struct BFloat {
  uint16_t bits;
};

__device__ inline float Weight(const float* w, int64_t i) { return w[i]; }
__device__ inline float Weight(const __half* w, int64_t i) { return __half2float(w[i]); }
__device__ inline float Weight(const BFloat* w, int64_t i) {
  return __uint_as_float(uint32_t{w[i].bits} << 16);
}

}  // namespace glint::cuda
