#include <cuda_runtime.h>

#include "cuda/async.cuh"
#include "cuda/context.h"
#include "cuda/launch.h"
#include "cuda/product.h"

namespace glint::cuda {
namespace {

constexpr int kThreads = 256;

// Grid: rows x columns. The first stream of a row goes to the others.
__global__ void __launch_bounds__(kThreads) CopyStreamsKernel(float* streams, int64_t d, int64_t n) {
  LetNextLaunchBegin();
  WaitForLaunchesBefore();
  const int64_t i = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (i >= d) return;
  float* const row = streams + int64_t{blockIdx.x} * n * d + i;
  const float value = row[0];
  for (int64_t h = 1; h < n; ++h) row[h * d] = value;
}

}  // namespace

Status Embed(const StepContext& c) {
  const int64_t d = c.hp.hidden, n = c.hp.hc_mult;
  float* const streams = c.Floats(plan::Slot::kStreams);  // [rows][n][D]
  if (Status s = DecodeRows(c, c.weights.embedding, streams, n * d); !s.ok()) return s;
  if (n == 1) return {};
  const dim3 grid(static_cast<unsigned>(c.rows), Blocks(d, kThreads));
  LaunchEarly(c, grid, kThreads, 0, CopyStreamsKernel, streams, d, n);
  return c.Launched();
}

}  // namespace glint::cuda
