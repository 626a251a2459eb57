// Weights as kernels see them: device addresses and shapes, small enough to be a kernel's argument.
#pragma once
#include <cstdint>

#include "quant/format.h"

namespace glint::cuda {

// model::Matrix on the device: W[slice][row][column] in the layout of cuda/tiles.h (integer formats), or plain rows (F32, F16,
// BF16). y = W x, times scales[slice] where there are scales.
struct Matrix {
  quant::Type type = quant::Type::kF32;
  int64_t columns = 0, rows = 0, slices = 1;
  const uint8_t* data = nullptr;
  uint64_t slice_bytes = 0;
  const float* scales = nullptr;    // [slices], or null
  const uint8_t* table = nullptr;   // the format's grid (cuda/tables.h), or null
  const uint8_t* spread = nullptr;  // what its decoder makes of it, or null
};

}  // namespace glint::cuda
