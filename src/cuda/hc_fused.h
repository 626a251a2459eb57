// Levers hc.fused and hc.block: what surrounds a sublayer in one launch, for few rows.
#pragma once
#include <cstdint>

namespace glint::cuda {

// Rows of a batch that the levers are laid for: blocks of one wave of the GPU.
constexpr int64_t kMostFusedRows = 8;

}  // namespace glint::cuda
