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
    h = SwiGlu(a.gate[at], a.up[at], a.limit);
    a.h[at] = h;
  }
  if (a.digits.digits != nullptr) StoreRounded(a.digits, row, block, static_cast<int>(lane), h);
}

}  // namespace

Status GateUp(const StepContext& c, const model::Matrix& gate, const model::Matrix& up, plan::Slot slot,
              Pairs pairs, int64_t out_rows, bool* in_one) {
  const int64_t width = gate.rows;
  if (out_rows <= 0 || width <= 0) return {};
  float* const h = c.Floats(slot);
  const Digits digits = c.MakeDigits(slot);
  Operand x(c, c.Floats(plan::Slot::kX), c.hp.hidden, c.rows, c.hp.hidden);
  const auto done = x.TimesGated(gate, up, {h, c.hp.swiglu_limit, digits}, pairs, out_rows);
  if (in_one != nullptr) *in_one = done.ok() && *done;
  if (!done.ok() || *done) return done.status();

  float* const g = c.scratch.Take<float>(out_rows * width);
  if (g == nullptr) return NoScratch(c);
  if (Status s = x.TimesAll({{&gate, g, width}, {&up, h, width}}, pairs, out_rows); !s.ok()) return s;
  SwiGluArgs args{g, h, h, c.hp.swiglu_limit, digits, 0, static_cast<uint32_t>(out_rows), width};
  const int64_t blocks = digits.digits != nullptr ? digits.blocks : (width + 31) / 32;
  args.blocks = static_cast<uint32_t>(blocks);
  LaunchEarly(c, Blocks(out_rows * blocks, kWarps), kThreads, 0, SwiGluKernel, args);
  return c.Launched();
}

}  // namespace glint::cuda
