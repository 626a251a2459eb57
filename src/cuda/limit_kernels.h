// Kernels that do nothing but what a ceiling is made of.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace glint::cuda {

inline constexpr int kLimitThreads = 512;
inline constexpr int kLimitProducts = 4096;  // of each accumulator
// Accumulators: a warp's of m16n8k32 products of bytes, a thread's of fused multiply-adds.
inline constexpr int kByteAccumulators = 8, kFloatAccumulators = 16;

// Each enqueues `blocks` blocks of kLimitThreads; `out`: device memory for four bytes, seldom written.
void LaunchRead(int blocks, const void* memory, uint64_t bytes, void* out, cudaStream_t stream);
void LaunchByteProducts(int blocks, void* out, cudaStream_t stream);
void LaunchFloatProducts(int blocks, void* out, cudaStream_t stream);

}  // namespace glint::cuda
