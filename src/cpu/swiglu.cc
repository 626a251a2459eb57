#include "cpu/swiglu.h"

#include <algorithm>

#include "base/mutation.h"

namespace glint::cpu {
namespace {

// Outputs a thread takes at once: gate and up tiles of a few rows stay in its first-level cache.
constexpr int64_t kTile = 64;

// The matrix from row `row` on.
model::Matrix From(model::Matrix w, int64_t row) {
  w.data = w.Row(0, row);
  w.rows -= row;
  return w;
}

}  // namespace

void GateUp(const StepContext& c, const model::Matrix& gate, const model::Matrix& up, float* hidden) {
  const int64_t width = gate.rows;
  float* const g = c.scratch.Floats(0, c.rows * width);
  Operand x(c, c.how, c.Floats(plan::Slot::kX), c.hp.hidden, c.rows, c.scratch);
  x.Times(gate, 0, g, width);
  x.Times(up, 0, hidden, width);
  c.Parallel(c.rows, 1, [&](int64_t begin, int64_t end, Scratch&) {
    for (int64_t r = begin; r < end; ++r) {
      c.how.kernels->swiglu(g + r * width, hidden + r * width, c.hp.swiglu_limit, hidden + r * width, width);
    }
  });
}

void GateUpFused(const StepContext& c, const model::Matrix& gate, const model::Matrix& up, float* hidden) {
  const int64_t width = gate.rows;
  Operand x(c, c.how, c.Floats(plan::Slot::kX), c.hp.hidden, c.rows, c.scratch);
  const Activations &for_gate = x.For(gate), &for_up = x.For(up);
  const Kernels& kernels = *c.how.kernels;
  c.Parallel(width, c.Grain(2 * c.hp.hidden * c.rows, kTile),
             [&](int64_t begin, int64_t end, Scratch& scratch) {
               float* const g = scratch.Floats(0, c.rows * kTile);
               float* const u = scratch.Floats(1, c.rows * kTile);
               for (int64_t at = begin; at < end; at += kTile) {
                 const int64_t count = std::min(kTile, end - at);
                 // A tile's outputs count from its own first row.
                 ProductPart(kernels, From(gate, at), 0, 0, count, for_gate, 0, c.rows, g, kTile);
                 ProductPart(kernels, From(up, at), 0, 0, count, for_up, 0, c.rows, u, kTile);
                 for (int64_t r = 0; r < c.rows; ++r) {
                   kernels.swiglu(g + r * kTile, u + r * (Mutated(Mutation::kFusedStride) ? count : kTile),
                                  c.hp.swiglu_limit, hidden + r * width + at, count);
                 }
               }
             });
}

}  // namespace glint::cpu
