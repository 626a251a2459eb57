// spec/model.md 3 and 10.2: the mean of the streams (the MTP block has but one), then the final norm.
#include <cuda_runtime.h>

#include "cuda/context.h"
#include "cuda/norm.cuh"

namespace glint::cuda {
namespace {

// A block a row of n streams. `copy`: null, or a second place for the rows.
__global__ void __launch_bounds__(kNormThreads)
    HeadNormKernel(const float* in, const float* __restrict__ w, float eps, int64_t d, int n, float* out,
                   float* copy) {
  __shared__ NormShared shared;
  LetNextLaunchBegin();
  const float* const x = in + int64_t{blockIdx.x} * n * d;
  const int64_t at = int64_t{blockIdx.x} * d;
  const auto mean = [&](int64_t k) {
    float sum = x[k];
    for (int h = 1; h < n; ++h) sum += x[h * d + k];
    return n == 1 ? sum : sum / static_cast<float>(n);  // by 1 it would be itself
  };
  RmsNorm(shared, d, eps, w, mean, [&](int64_t k, float y) {
    out[at + k] = y;
    if (copy != nullptr) copy[at + k] = y;
  });
}

}  // namespace

Status HeadNorm(const StepContext& c) {
  const bool trunk = c.pass == plan::Pass::kTrunk;
  const model::Vector w = trunk ? c.weights.output_norm : c.weights.nextn[0].shared_head_norm;
  LaunchEarly(c, static_cast<unsigned>(c.rows), kNormThreads, 0, HeadNormKernel,
              c.Floats(trunk ? plan::Slot::kStreams : plan::Slot::kResidual), c.On(w), c.hp.rms_eps,
              c.hp.hidden, trunk ? static_cast<int>(c.hp.hc_mult) : 1, c.Floats(plan::Slot::kFinal),
              c.batch.final_out);
  return c.Launched();
}

}  // namespace glint::cuda
