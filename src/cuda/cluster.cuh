// Thread block clusters (sm_90 and up): blocks that run at once and reach into one another's shared memory.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/context.h"

namespace glint::cuda {

// The barrier of all threads of a cluster, in two halves. It orders nothing but Mailbox::Open before Send: to have all that was written
// before seen by all costs a trip to L2. Every thread comes to both halves, in turns.
__device__ inline void ArriveAtCluster() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
#endif
}
__device__ inline void WaitForCluster() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
}

// In shared memory: waits for so many bytes that blocks of the cluster send, each to its place there. Once in a kernel.
struct Mailbox {
  uint64_t barrier;
  // By one thread, before its first arrival at the cluster's barrier.
  __device__ void Open(int bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(Here(this)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(Here(this)), "r"(bytes)
                 : "memory");
#endif
  }
  // By every thread that reads what was sent. A block whose boxes are full may end.
  __device__ void Wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "wait:\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], 0;\n"
        "@!done bra wait;\n"
        "}\n" ::"r"(Here(this))
        : "memory");
#endif
  }
  // To where block `rank` of the cluster has what this block has at `place` (for float4, at a multiple of 16), and to its box.
  __device__ void Send(int rank, float* place, float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(
                     There(place, rank)),
                 "f"(value), "r"(There(this, rank))
                 : "memory");
#endif
  }
  __device__ void Send(int rank, float* place, const float4& v) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::
            "r"(There(place, rank)),
        "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "r"(There(this, rank))
        : "memory");
#endif
  }

 private:
  __device__ static uint32_t Here(const void* at) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(at));
  }
  __device__ static uint32_t There(const void* at, int rank) {
    uint32_t there = 0;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(Here(at)), "r"(rank));
#endif
    return there;
  }
};

// Launches `kernel` in clusters of `cluster` blocks along x, early as LaunchEarly does. False, and nothing is launched: the device has
// no clusters, or none of that size.
template <class... Parameters, class... Arguments>
inline bool LaunchInClusters(const StepContext& c, int cluster, dim3 grid, int threads,
                             void (*kernel)(Parameters...), const Arguments&... arguments) {
  if (c.device.compiled_major < 9) return false;
  constexpr int kPortable = 8;
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim.x = static_cast<unsigned>(cluster);
  attributes[0].val.clusterDim.y = attributes[0].val.clusterDim.z = 1;
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = c.stream;
  config.attrs = attributes;
  config.numAttrs = 1;
  if (cluster > kPortable) {
    int at_once = 0;
    if (cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) != cudaSuccess ||
        cudaOccupancyMaxActiveClusters(&at_once, kernel, &config) != cudaSuccess || at_once == 0) {
      cudaGetLastError();  // no fault: there is another way
      return false;
    }
  }
  config.numAttrs = c.early ? 2 : 1;
  cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...);  // errors: cudaGetLastError
  return true;
}

}  // namespace glint::cuda
