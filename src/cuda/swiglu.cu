#include "cuda/swiglu.h"

#include <cuda_runtime.h>

#include "cuda/async.cuh"
#include "cuda/digits.h"
#include "cuda/launch.h"
#include "cuda/math.cuh"
#include "cuda/product.h"
#include "cuda/round.cuh"

namespace glint::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;

struct SwiGluArgs {
  const float *gate, *up;  // [rows][width]; up may be h
  float* h;
  float limit;
  Digits digits;    // of h; or none
  uint32_t blocks;  // of 32 columns that a row has, there or with the digits
  uint32_t rows;
  int64_t width;
};

// A warp a block of 32 columns.
__global__ void __launch_bounds__(kThreads) SwiGluKernel(const SwiGluArgs a) {
  LetNextLaunchBegin();
  WaitForLaunchesBefore();
  const uint32_t lane = threadIdx.x % 32, index = blockIdx.x * kWarps + threadIdx.x / 32;
  const uint32_t row = index / a.blocks, block = index % a.blocks;
  if (row >= a.rows) return;  // the whole warp
  const int64_t column = block * 32 + lane, at = row * a.width + column;
  float h = 0;
  if (column < a.width) {
    const float u = StdMin(StdMax(a.up[at], -a.limit), a.limit);
    h = Silu(StdMin(a.gate[at], a.limit)) * u;
    a.h[at] = h;
  }
  if (a.digits.digits != nullptr) StoreRounded(a.digits, row, block, static_cast<int>(lane), h);
}

}  // namespace

Status SwiGlu(const StepContext& c, const float* gate, const float* up, plan::Slot slot, int64_t rows,
              int64_t width) {
  if (rows <= 0 || width <= 0) return {};
  SwiGluArgs args{gate, up, c.Floats(slot), c.hp.swiglu_limit, c.MakeDigits(slot), 0, 0, width};
  const int64_t blocks = args.digits.digits != nullptr ? args.digits.blocks : (width + 31) / 32;
  args.blocks = static_cast<uint32_t>(blocks), args.rows = static_cast<uint32_t>(rows);
  LaunchEarly(c, Blocks(rows * blocks, kWarps), kThreads, 0, SwiGluKernel, args);
  return c.Launched();
}

Status GateUp(const StepContext& c, const model::Matrix& gate, const model::Matrix& up, plan::Slot slot) {
  const int64_t width = gate.rows;
  float *const g = c.scratch.Take<float>(c.rows * width), *const hidden = c.Floats(slot);
  if (g == nullptr) return NoScratch(c);
  Operand x(c, c.Floats(plan::Slot::kX), c.hp.hidden, c.rows, c.hp.hidden);
  if (Status s = x.TimesAll({{&gate, g, width}, {&up, hidden, width}}); !s.ok()) return s;
  return SwiGlu(c, g, hidden, slot, c.rows, width);
}

}  // namespace glint::cuda
