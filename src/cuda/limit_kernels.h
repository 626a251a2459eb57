// Kernels that do nothing but what a ceiling is made of.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace glint::cuda {

inline constexpr int kLimitThreads = 512;
inline constexpr int kLimitProducts = 4096;  // of each accumulator
// Accumulators: a warp's of m16n8k32 products of bytes, a thread's of fused multiply-adds.
inline constexpr int kByteAccumulators = 8, kFloatAccumulators = 16;
inline constexpr int kEmptyThreads = 128;  // of a block that only launches or waits

// Each enqueues `blocks` blocks of kLimitThreads; `out`: device memory for four bytes, seldom written.
void LaunchRead(int blocks, const void* memory, uint64_t bytes, void* out, cudaStream_t stream);
void LaunchByteProducts(int blocks, void* out, cudaStream_t stream);
void LaunchFloatProducts(int blocks, void* out, cudaStream_t stream);

// A kernel of `blocks` blocks that does nothing; `early`: it may begin before the one before it has ended.
void LaunchEmpty(int blocks, bool early, cudaStream_t stream);
// `barriers` times all `blocks` blocks wait for each other; all must be resident at once (cudaErrorCooperativeLaunchTooLarge).
// `arrived`: a counter in device memory, 0 before.
cudaError_t LaunchBarriers(int blocks, int barriers, uint32_t* arrived, cudaStream_t stream);

}  // namespace glint::cuda
