// Products with weights that are plain numbers: Dot16 of docs/design.md, entry by entry. For Operand::Times and DecodeRows.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/product_args.h"

namespace glint::cuda {

struct FloatArgs {
  const uint8_t* data;
  uint64_t slice_bytes;
  int64_t rows, columns;
  const float* scales;  // [slices], or null
  const float* x;
  int64_t x_stride;
  float* y;
  int64_t y_stride, out_rows;
  Pairs::Kind pairs;
  const int32_t* ids;
  int64_t per_row, slices;
  bool overlap;  // the device can begin a launch early
};

// F32, F16 and BF16.
bool IsFloat(quant::Type type);
void LaunchFloatProduct(quant::Type type, const FloatArgs& p, cudaStream_t stream);
void LaunchFloatDecode(quant::Type type, const DecodeArgs& p, int64_t rows, cudaStream_t stream);

}  // namespace glint::cuda
