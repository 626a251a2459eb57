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

}  // namespace glint::cuda
