// spec/model.md 4.2: the sublayer's output spread over the streams, the streams mixed. In place.
#include <cuda_runtime.h>

#include "cuda/async.cuh"
#include "cuda/context.h"
#include "cuda/hc_fused.h"
#include "cuda/launch.h"

namespace glint::cuda {
namespace {

constexpr int kThreads = 128;

struct HcPostArgs {
  float* streams;                     // [rows][n][D]
  const float *branch, *post, *comb;  // [rows][D], [rows][n], [rows][n source][n destination]
  int64_t d;
  int n;
};

// Grid: rows x columns. A thread holds one column of all (at most kMost) streams, so that it may write where it read.
template <int kMost>
__global__ void __launch_bounds__(kThreads) HcPostKernel(const HcPostArgs a) {
  LetNextLaunchBegin();
  WaitForLaunchesBefore();
  const int64_t i = int64_t{blockIdx.y} * kThreads + threadIdx.x, row = blockIdx.x;
  if (i >= a.d) return;
  float* const x = a.streams + row * a.n * a.d + i;
  const float* const post = a.post + row * a.n;
  const float* const comb = a.comb + row * a.n * a.n;
  const float out = a.branch[row * a.d + i];
  float source[kMost];
#pragma unroll
  for (int j = 0; j < kMost; ++j) source[j] = j < a.n ? x[j * a.d] : 0.0f;
#pragma unroll
  for (int h = 0; h < kMost; ++h) {
    if (h >= a.n) break;
    float next = post[h] * out;
#pragma unroll
    for (int j = 0; j < kMost; ++j) {
      if (j < a.n) next = fmaf(comb[j * a.n + h], source[j], next);
    }
    x[h * a.d] = next;
  }
}

}  // namespace

Status HcPostOf(const StepContext& c, const float* branch) {
  const HcPostArgs args{c.Floats(plan::Slot::kStreams), branch,      c.Floats(plan::Slot::kPost),
                        c.Floats(plan::Slot::kComb),    c.hp.hidden, static_cast<int>(c.hp.hc_mult)};
  const dim3 grid(static_cast<unsigned>(c.rows), Blocks(args.d, kThreads));
  if (args.n <= 4) {
    LaunchEarly(c, grid, kThreads, 0, HcPostKernel<4>, args);
  } else {
    LaunchEarly(c, grid, kThreads, 0, HcPostKernel<16>, args);  // HParams' check allows no more
  }
  return c.Launched();
}

Status HcPost(const StepContext& c) { return HcPostOf(c, c.Floats(plan::Slot::kBranch)); }

}  // namespace glint::cuda
