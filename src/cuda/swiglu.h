// hidden = SwiGLU(gate x, up x), the first half of a feed-forward (spec/model.md 8.1).
#pragma once
#include <cstdint>

#include "cuda/context.h"

namespace glint::cuda {

// h[i] = silu(min(gate[i], limit)) * min(max(up[i], -limit), limit) for rows of `width` entries, h being the slot; up may be h. The
// slot's digits are made as well where they are kept.
Status SwiGlu(const StepContext& c, const float* gate, const float* up, plan::Slot slot, int64_t rows,
              int64_t width);

// Both products with the rows of x, then the activation into the slot, [rows][gate.rows]. Scratch: rows * gate.rows floats beside
// what the products take.
Status GateUp(const StepContext& c, const model::Matrix& gate, const model::Matrix& up, plan::Slot slot);

}  // namespace glint::cuda
