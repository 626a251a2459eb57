#include <cuda_runtime.h>

#include "cuda/async.cuh"
#include "cuda/context.h"
#include "cuda/launch.h"

namespace glint::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) ResidualKernel(float* residual, const float* branch, int64_t n) {
  LetNextLaunchBegin();
  WaitForLaunchesBefore();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < n) residual[i] += branch[i];
}

}  // namespace

Status Residual(const StepContext& c) {
  const int64_t n = c.rows * c.hp.hidden;
  LaunchEarly(c, Blocks(n, kThreads), kThreads, 0, ResidualKernel, c.Floats(plan::Slot::kResidual),
              c.Floats(plan::Slot::kBranch), n);
  return c.Launched();
}

}  // namespace glint::cuda
