// Levers hc.fused, hc.block and hc.moe: what surrounds a sublayer in one launch, for few rows.
#pragma once
#include <cstdint>

#include "cuda/context.h"

namespace glint::cuda {

// The stages with a branch [rows][D] that is not the slot: where hc.moe takes them one after another.
Status MoeCombineOf(const StepContext& c, float* branch);
Status HcPostOf(const StepContext& c, const float* branch);

Status HcMoe(const StepContext& c);  // lever hc.moe: moe.combine and hc.block

// Rows of a batch that the levers are laid for: blocks of one wave of the GPU.
constexpr int64_t kMostFusedRows = 8;

}  // namespace glint::cuda
