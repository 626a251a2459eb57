// The chosen experts' products, as moe.beside has them one after the other.
#pragma once
#include "cuda/context.h"

namespace glint::cuda {

// moe.gate_up; `in_one` becomes whether that was one launch.
Status MoeGateUpIn(const StepContext& c, bool* in_one);
// moe.down; `chosen` as in Pairs.
Status MoeDownOf(const StepContext& c, bool chosen);

}  // namespace glint::cuda
