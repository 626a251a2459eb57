#include <cuda_runtime.h>

#include "cuda/context.h"
#include "cuda/launch.h"

namespace glint::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    ResidualKernel(float* __restrict__ residual, const float* __restrict__ branch, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < n) residual[i] += branch[i];
}

}  // namespace

Status Residual(const StepContext& c) {
  const int64_t n = c.rows * c.hp.hidden;
  ResidualKernel<<<Blocks(n, kThreads), kThreads, 0, c.stream>>>(c.Floats(plan::Slot::kResidual),
                                                                 c.Floats(plan::Slot::kBranch), n);
  return c.Launched();
}

}  // namespace glint::cuda
