// A smallest kernel: shows that a device runs what was compiled for it, with the arithmetic that the source
// states.
#pragma once
#include <cuda_runtime_api.h>

namespace glint::cuda {

// All arrays in device memory.
struct ProbeArgs {
  const float *a, *b, *c;  // [n]
  float* fused;            // [n] a * b + c, rounded once
  float* separate;         // [n] a * b, rounded, + c, rounded: contraction would change it
  int n;
};

// Enqueues on `stream` and returns what the launch said. The stream's device must be current.
cudaError_t LaunchProbe(const ProbeArgs& args, cudaStream_t stream);

// The virtual architecture, 90 for compute_90, of the code that the current device runs of this backend's kernels.
cudaError_t CompiledFor(int& architecture);

}  // namespace glint::cuda
