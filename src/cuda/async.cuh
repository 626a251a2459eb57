// Copies that travel while a warp works, and launches that begin before the one before them has ended.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/context.h"

namespace glint::cuda {

// 16 bytes from global to shared memory, both at multiples of 16; past L1.
__device__ inline void CopyAsync16(void* to, const void* from) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
}
// How L2 is to keep what a token reads once: as the first to go, so that what every layer reads (activations, small matrices, the
// kernels' own code) stays there while twelve gigabytes of weights pass through.
__device__ inline uint64_t ReadOncePolicy() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ inline uint32_t AddressInShared(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
// CopyAsync16 of what is read once; `at`: a AddressInShared.
__device__ inline void CopyOnceAsync16(uint32_t at, const void* from, uint64_t policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2;" ::"r"(at), "l"(from),
               "l"(policy)
               : "memory");
}
__device__ inline void CopyOnceAsync16(void* to, const void* from, uint64_t policy) {
  CopyOnceAsync16(AddressInShared(to), from, policy);
}
// 4 and 8 bytes, at multiples of them.
__device__ inline void CopyAsync4(void* to, const void* from) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at), "l"(from) : "memory");
}
__device__ inline void CopyAsync8(void* to, const void* from) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(at), "l"(from) : "memory");
}
__device__ inline void CommitCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until all but the latest `kPending` groups of this thread have arrived.
template <int kPending>
__device__ inline void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Programmatic dependent launch (sm_90 and up; elsewhere launches do not overlap, and both do nothing). A kernel that was launched to
// overlap may read what no kernel of the pass writes (weights) before it waits, and must wait before anything else. What it reads
// after the wait must not come by __ldg or a const __restrict__ pointer: the compiler may move such a load up past the wait.
__device__ inline void WaitForLaunchesBefore() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}
// The next launch may begin once all blocks of this one have come here (or ended).
__device__ inline void LetNextLaunchBegin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

// Launches `kernel`, which must call WaitForLaunchesBefore, so that it may begin early where the device can do that.
template <class... Parameters, class... Arguments>
inline void LaunchEarly(bool can, dim3 grid, int threads, size_t shared, cudaStream_t stream,
                        void (*kernel)(Parameters...), const Arguments&... arguments) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = can ? 1 : 0;
  cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...);  // errors: cudaGetLastError, as after <<<>>>
}
// The same in a step.
template <class... Parameters, class... Arguments>
inline void LaunchEarly(const StepContext& c, dim3 grid, int threads, size_t shared,
                        void (*kernel)(Parameters...), const Arguments&... arguments) {
  LaunchEarly(c.early, grid, threads, shared, c.stream, kernel, arguments...);
}

}  // namespace glint::cuda
