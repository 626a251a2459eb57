// hidden = SwiGLU(gate x, up x), the first half of a feed-forward (spec/model.md 8.1).
#pragma once
#include <cstdint>

#include "cuda/context.h"

namespace glint::cuda {

// h[i] = silu(min(gate[i], limit)) * min(max(up[i], -limit), limit) for n entries in device memory; h may be gate or up.
Status SwiGlu(const StepContext& c, const float* gate, const float* up, float* h, int64_t n);

// Both products with the rows of x, then the activation. hidden [rows][gate.rows]. Scratch: rows * gate.rows floats beside
// what the products take.
Status GateUp(const StepContext& c, const model::Matrix& gate, const model::Matrix& up, float* hidden);

}  // namespace glint::cuda
