// spec/model.md 5.2 and 5.5: forget gate (log-decay), beta, and the output gate before its sigmoid.
#include <cuda_runtime.h>

#include "cuda/async.cuh"
#include "cuda/context.h"
#include "cuda/kda.h"
#include "cuda/launch.h"
#include "cuda/math.cuh"
#include "cuda/product.h"

namespace glint::cuda {
namespace {

constexpr int kThreads = 256;

struct KdaGatesArgs {
  float *decay, *beta;       // [rows][H * K], [rows][H]: the products, made gates in place
  const float *a, *dt_bias;  // [H], [H * K]
  int64_t heads, dim;
  float lower_bound;
};

// Grid: rows x (H * K of the decay, then H of beta).
__global__ void __launch_bounds__(kThreads) KdaGatesKernel(const KdaGatesArgs p) {
  LetNextLaunchBegin();
  WaitForLaunchesBefore();
  const int64_t i = int64_t{blockIdx.y} * kThreads + threadIdx.x, row = blockIdx.x, width = p.heads * p.dim;
  if (i < width) {
    float* const g = p.decay + row * width + i;
    *g = p.lower_bound * Sigmoid(p.a[i / p.dim] * (*g + p.dt_bias[i]));
  } else if (i < width + p.heads) {
    float* const b = p.beta + row * p.heads + i - width;
    *b = Sigmoid(*b);
  }
}

}  // namespace

Status KdaGatesOf(const StepContext& c, float* decay, float* beta, float* gate) {
  const auto& w = c.layer->kda;
  const int64_t width = c.hp.kda_width(), d = c.hp.hidden;

  Operand x(c, c.Floats(plan::Slot::kX), d, c.rows, d);
  // Both low ranks side by side in a row, the second at a multiple of 32, where its blocks of digits begin.
  const int64_t second = (w.f_a.rows + 31) / 32 * 32, stride = second + w.g_a.rows;
  float* const inner = c.scratch.Take<float>(c.rows * stride);
  if (inner == nullptr) return NoScratch(c);
  if (Status s = x.TimesAll(
          {{&w.f_a, inner, stride}, {&w.g_a, inner + second, stride}, {&w.beta, beta, c.hp.kda_heads}});
      !s.ok())
    return s;
  Operand between(c, inner, stride, c.rows, stride);
  if (Status s = between.TimesAll({{&w.f_b, decay, width}, {&w.g_b, gate, width, second}}); !s.ok()) return s;

  const KdaGatesArgs args{
      decay, beta, c.On(w.a), c.On(w.dt_bias), c.hp.kda_heads, c.hp.kda_head_dim, c.hp.gate_lower_bound};
  const dim3 grid(static_cast<unsigned>(c.rows), Blocks(width + c.hp.kda_heads, kThreads));
  LaunchEarly(c.early, grid, kThreads, 0, c.stream, KdaGatesKernel, args);
  return c.Launched();
}

Status KdaGates(const StepContext& c) {
  return KdaGatesOf(c, c.Floats(plan::Slot::kDecay), c.Floats(plan::Slot::kBeta),
                    c.Floats(plan::Slot::kOutGate));
}

}  // namespace glint::cuda
