#include <cuda_runtime.h>

#include "cuda/async.cuh"
#include "cuda/context.h"
#include "cuda/launch.h"
#include "cuda/product.h"

namespace glint::cuda {
namespace {

constexpr int kThreads = 256;

// Grid: wanted rows x columns.
__global__ void __launch_bounds__(kThreads)
    GatherRowsKernel(const float* x, const int32_t* rows, int64_t d, float* out) {
  LetNextLaunchBegin();
  WaitForLaunchesBefore();
  const int64_t i = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (i < d) out[int64_t{blockIdx.x} * d + i] = x[rows[blockIdx.x] * d + i];
}

}  // namespace

Status HeadLogits(const StepContext& c) {
  const int64_t d = c.hp.hidden;
  if (c.wanted == 0) return {};
  const float* x = c.Floats(plan::Slot::kFinal);
  if (c.wanted != c.rows) {  // else it is all of them, in order
    float* const gathered = c.scratch.Take<float>(c.wanted * d);
    if (gathered == nullptr) return NoScratch(c);
    const dim3 grid(static_cast<unsigned>(c.wanted), Blocks(d, kThreads));
    LaunchEarly(c, grid, kThreads, 0, GatherRowsKernel, x, c.batch.wanted, d, gathered);
    if (Status s = c.Launched("gathering rows"); !s.ok()) return s;
    x = gathered;
  }
  Operand rows(c, x, d, c.wanted, d);
  return rows.Times(c.weights.head, c.batch.logits, c.hp.vocab_size);
}

}  // namespace glint::cuda
