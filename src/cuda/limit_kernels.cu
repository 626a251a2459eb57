#include "cuda/limit_kernels.h"

#include "cuda/async.cuh"

namespace glint::cuda {
namespace {

constexpr int kThreads = kLimitThreads, kProducts = kLimitProducts;

// All of `words`, four loads of 16 bytes under way a thread. The sum is stored where it can't be zero, which the compiler does not know.
__global__ void __launch_bounds__(kThreads) ReadKernel(const uint4* words, int64_t count, uint32_t* out) {
  const int64_t threads = int64_t{gridDim.x} * kThreads, first = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  uint32_t sum = 0;
  int64_t i = first;
  for (; i + 3 * threads < count; i += 4 * threads) {
    uint4 v[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) v[k] = __ldcs(words + i + k * threads);
#pragma unroll
    for (int k = 0; k < 4; ++k) sum |= v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
  }
  for (; i < count; i += threads) sum |= words[i].x;
  if (sum == 0x9e3779b9u) *out = sum;
}

// Integer products as the canonical ones use the tensor cores: m16n8k32 of signed bytes.
__global__ void __launch_bounds__(kThreads) ByteProductsKernel(uint32_t seed, int* out) {
  int sum[kByteAccumulators][4] = {};
  const uint32_t a = seed + threadIdx.x, b = seed ^ threadIdx.x;
  for (int k = 0; k < kProducts; ++k) {
#pragma unroll
    for (int i = 0; i < kByteAccumulators; ++i) {
      asm volatile(
          "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%4,%4,%4}, {%5,%5}, "
          "{%0,%1,%2,%3};"
          : "+r"(sum[i][0]), "+r"(sum[i][1]), "+r"(sum[i][2]), "+r"(sum[i][3])
          : "r"(a), "r"(b));
    }
  }
  int total = 0;
  for (int i = 0; i < kByteAccumulators; ++i) total ^= sum[i][0] ^ sum[i][1] ^ sum[i][2] ^ sum[i][3];
  if (total == 0x1e3779b9) *out = total;
}

__global__ void __launch_bounds__(kThreads) FloatProductsKernel(float seed, float* out) {
  float sum[kFloatAccumulators];
  for (int i = 0; i < kFloatAccumulators; ++i) sum[i] = seed + static_cast<float>(i);
  for (int k = 0; k < kProducts; ++k) {
#pragma unroll
    for (int i = 0; i < kFloatAccumulators; ++i) sum[i] = fmaf(sum[i], seed, seed);
  }
  float total = 0;
  for (int i = 0; i < kFloatAccumulators; ++i) total += sum[i];
  if (total == 0.123f) *out = total;
}

__global__ void __launch_bounds__(kEmptyThreads) EmptyKernel() {
  LetNextLaunchBegin();
  WaitForLaunchesBefore();
}

// One counter that only grows, so that no barrier needs another to set it back: after the n-th it is n times the blocks.
__global__ void __launch_bounds__(kEmptyThreads) BarriersKernel(int barriers, uint32_t* arrived) {
  for (int n = 1; n <= barriers; ++n) {
    __syncthreads();  // the whole block has done what comes before
    if (threadIdx.x == 0) {
      asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(arrived) : "memory");
      const uint32_t all = static_cast<uint32_t>(n) * gridDim.x;
      uint32_t seen = 0;
      do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(arrived) : "memory");
      while (seen < all);
    }
    __syncthreads();  // and nobody goes on before
  }
}

}  // namespace

void LaunchRead(int blocks, const void* memory, uint64_t bytes, void* out, cudaStream_t stream) {
  ReadKernel<<<blocks, kThreads, 0, stream>>>(static_cast<const uint4*>(memory),
                                              static_cast<int64_t>(bytes / 16), static_cast<uint32_t*>(out));
}
void LaunchByteProducts(int blocks, void* out, cudaStream_t stream) {
  ByteProductsKernel<<<blocks, kThreads, 0, stream>>>(7, static_cast<int*>(out));
}
void LaunchFloatProducts(int blocks, void* out, cudaStream_t stream) {
  FloatProductsKernel<<<blocks, kThreads, 0, stream>>>(0.999f, static_cast<float*>(out));
}
void LaunchEmpty(int blocks, bool early, cudaStream_t stream) {
  LaunchEarly(early, dim3(static_cast<unsigned>(blocks)), kEmptyThreads, 0, stream, EmptyKernel);
}
cudaError_t LaunchBarriers(int blocks, int barriers, uint32_t* arrived, cudaStream_t stream) {
  void* arguments[] = {&barriers, &arrived};
  return cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(BarriersKernel),
                                     dim3(static_cast<unsigned>(blocks)), dim3(kEmptyThreads), arguments, 0,
                                     stream);
}

}  // namespace glint::cuda
