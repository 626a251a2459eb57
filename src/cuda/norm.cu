#include "cuda/norm.h"

#include "cuda/norm.cuh"

namespace glint::cuda {
namespace {

// A block a row.
__global__ void __launch_bounds__(kNormThreads)
    RmsNormRowsKernel(const float* in, const float* __restrict__ w, float eps, float* out, int64_t n) {
  __shared__ NormShared shared;
  LetNextLaunchBegin();
  const float* const from = in + int64_t{blockIdx.x} * n;
  float* const to = out + int64_t{blockIdx.x} * n;
  RmsNorm(
      shared, n, eps, w, [&](int64_t k) { return from[k]; }, [&](int64_t k, float y) { to[k] = y; });
}

}  // namespace

Status RmsNormRows(const StepContext& c, const float* in, model::Vector w, float eps, float* out,
                   int64_t rows, int64_t n) {
  LaunchEarly(c, static_cast<unsigned>(rows), kNormThreads, 0, RmsNormRowsKernel, in, c.On(w), eps, out, n);
  return c.Launched("the norm");
}

}  // namespace glint::cuda
