// Thread block clusters (sm_90 and up): blocks that run at once and reach into one another's shared memory.
#pragma once
#include <cuda_runtime.h>

#include "cuda/context.h"

namespace glint::cuda {

// The barrier of all threads of a cluster, in two halves: what was written before one's arrival (shared memory of any block of the
// cluster, and global memory) is seen by all after their wait. Every thread comes to both, in turns.
__device__ inline void ArriveAtCluster() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
#endif
}
__device__ inline void WaitForCluster() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
}

// Where block `rank` of the cluster has what this block has at `mine`, in shared memory.
template <class T>
__device__ inline T* OfBlock(T* mine, int rank) {
  T* its = mine;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm("mapa.u64 %0, %1, %2;" : "=l"(its) : "l"(mine), "r"(rank));
#endif
  return its;
}

// Launches `kernel` in clusters of `cluster` blocks along x, early as LaunchEarly does. False, and nothing is launched: the device has
// no clusters, or none of that size.
template <class... Parameters, class... Arguments>
inline bool LaunchInClusters(const StepContext& c, int cluster, dim3 grid, int threads,
                             void (*kernel)(Parameters...), const Arguments&... arguments) {
  if (c.device.major < 9) return false;
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
