// hidden = SwiGLU(gate x, up x), the first half of a feed-forward (spec/model.md 8.1), for one pair of
// matrices.
#pragma once
#include "cpu/context.h"

namespace glint::cpu {

// Both products, then the activation. hidden [rows][gate.rows].
void GateUp(const StepContext& c, const model::Matrix& gate, const model::Matrix& up, float* hidden);

}  // namespace glint::cpu
