// spec/model.md 5.5: each head's output to unit mean square, weighted and gated.
#include <cuda_runtime.h>

#include "cuda/async.cuh"
#include "cuda/context.h"
#include "cuda/kda.h"
#include "cuda/launch.h"
#include "cuda/math.cuh"

namespace glint::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kHeld = 8;  // entries of a head that a lane loads at once

struct KdaNormArgs {
  const float *mixed, *gate, *w;  // [rows][H][K], [rows][H][K], [K]
  float* out;                     // [rows][H][K]
  int64_t dim, heads;             // heads of all rows
  float eps;
};

// Half a warp a head of a row.
__global__ void __launch_bounds__(kThreads) KdaNormKernel(const KdaNormArgs a) {
  LetNextLaunchBegin();
  WaitForLaunchesBefore();
  const int64_t head = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / 16, at = head * a.dim;
  const int lane = static_cast<int>(threadIdx.x) & 15;
  const int64_t n = head < a.heads ? a.dim : 0;  // no half may leave before the sum: it is the whole warp's
  float o[kHeld], gate[kHeld], w[kHeld];
  const auto fetch = [&](int64_t first) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int64_t k = first + i * 16 + lane;
      o[i] = k < n ? a.mixed[at + k] : 0.0f;
      gate[i] = k < n ? a.gate[at + k] : 0.0f;
      w[i] = k < n ? a.w[k] : 0.0f;
    }
  };
  float sum = 0;
  for (int64_t first = 0; first < n; first += 16 * kHeld) {
    fetch(first);
#pragma unroll
    for (int i = 0; i < kHeld; ++i) sum = fmaf(o[i], o[i], sum);  // zeros past the end change nothing
  }
  const float r = 1.0f / sqrtf(SumLanes16(sum) / static_cast<float>(a.dim) + a.eps);
  for (int64_t first = 0; first < n; first += 16 * kHeld) {
    if (n > 16 * kHeld) fetch(first);  // otherwise they are still held
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int64_t k = first + i * 16 + lane;
      if (k < n) a.out[at + k] = ((o[i] * r) * w[i]) * Sigmoid(gate[i]);
    }
  }
}

}  // namespace

Status KdaNormOf(const StepContext& c, const float* mixed, const float* gate, float* out) {
  const KdaNormArgs args{
      mixed, gate, c.On(c.layer->kda.o_norm), out, c.hp.kda_head_dim, c.rows * c.hp.kda_heads, c.hp.rms_eps};
  LaunchEarly(c.early, dim3(Blocks(args.heads * 16, kThreads)), kThreads, 0, c.stream, KdaNormKernel, args);
  return c.Launched();
}

Status KdaNorm(const StepContext& c) {
  return KdaNormOf(c, c.Floats(plan::Slot::kMixed), c.Floats(plan::Slot::kOutGate),
                   c.Floats(plan::Slot::kMixedNormed));
}

}  // namespace glint::cuda
