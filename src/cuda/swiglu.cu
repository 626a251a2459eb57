#include "cuda/swiglu.h"

#include <cuda_runtime.h>

#include "cuda/async.cuh"
#include "cuda/launch.h"
#include "cuda/math.cuh"
#include "cuda/product.h"

namespace glint::cuda {
namespace {

constexpr int kThreads = 256;

// gate, up and h may be the same memory, entry by entry.
__global__ void __launch_bounds__(kThreads)
    SwiGluKernel(const float* gate, const float* up, float limit, float* h, int64_t n) {
  LetNextLaunchBegin();
  WaitForLaunchesBefore();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= n) return;
  const float u = StdMin(StdMax(up[i], -limit), limit);
  h[i] = Silu(StdMin(gate[i], limit)) * u;
}

}  // namespace

Status SwiGlu(const StepContext& c, const float* gate, const float* up, float* h, int64_t n) {
  if (n <= 0) return {};
  LaunchEarly(c, Blocks(n, kThreads), kThreads, 0, SwiGluKernel, gate, up, c.hp.swiglu_limit, h, n);
  return c.Launched();
}

Status GateUp(const StepContext& c, const model::Matrix& gate, const model::Matrix& up, float* hidden) {
  const int64_t width = gate.rows;
  float* const g = c.scratch.Take<float>(c.rows * width);
  if (g == nullptr) return NoScratch(c);
  Operand x(c, c.Floats(plan::Slot::kX), c.hp.hidden, c.rows, c.hp.hidden);
  if (Status s = x.TimesAll({{&gate, g, width}, {&up, hidden, width}}); !s.ok()) return s;
  return SwiGlu(c, g, hidden, hidden, c.rows * width);
}

}  // namespace glint::cuda
