// spec/model.md 8.2, step 4: experts in ascending id, then the shared one.
#include <cuda_runtime.h>

#include "cuda/async.cuh"
#include "cuda/context.h"
#include "cuda/hc_fused.h"
#include "cuda/launch.h"

namespace glint::cuda {
namespace {

constexpr int kThreads = 128;

struct MoeCombineArgs {
  const float *expert_out, *weights, *shared;  // [rows][used][D], [rows][used], [rows][D]
  float* branch;                               // [rows][D]
  int64_t d;
  int used;
};

// Grid: rows x columns.
__global__ void __launch_bounds__(kThreads) MoeCombineKernel(const MoeCombineArgs a) {
  LetNextLaunchBegin();
  WaitForLaunchesBefore();
  const int64_t i = int64_t{blockIdx.y} * kThreads + threadIdx.x, row = blockIdx.x;
  if (i >= a.d) return;
  const float* const y = a.expert_out + row * a.used * a.d + i;
  const float* const w = a.weights + row * a.used;
  const float shared = a.shared[row * a.d + i];
  float sum = 0;
#pragma unroll 8
  for (int e = 0; e < a.used; ++e) sum = fmaf(w[e], y[e * a.d], sum);
  a.branch[row * a.d + i] = sum + shared;
}

}  // namespace

Status MoeCombineOf(const StepContext& c, float* branch) {
  const MoeCombineArgs args{c.Floats(plan::Slot::kExpertOut),
                            c.Floats(plan::Slot::kExpertWeights),
                            c.Floats(plan::Slot::kSharedOut),
                            branch,
                            c.hp.hidden,
                            static_cast<int>(c.hp.experts_used)};
  const dim3 grid(static_cast<unsigned>(c.rows), Blocks(args.d, kThreads));
  LaunchEarly(c, grid, kThreads, 0, MoeCombineKernel, args);
  return c.Launched();
}

Status MoeCombine(const StepContext& c) { return MoeCombineOf(c, c.Floats(plan::Slot::kBranch)); }

}  // namespace glint::cuda
