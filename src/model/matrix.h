// A weight matrix, or a stack of them, as it lies in memory: the view every product takes.
#pragma once
#include <cstddef>
#include <cstdint>

#include "quant/format.h"

namespace glint::model {

// W[slice][row][column]: y = W x with x of `columns` entries, times scales[slice] where there are scales: NVFP4 files keep
// such a factor beside a tensor. Rows are contiguous, `row_bytes` apart; slices (experts, heads) follow one another. Does not
// own: the Weights' owner keeps the bytes alive. No alignment is promised.
struct Matrix {
  quant::Type type = quant::Type::kF32;
  int64_t columns = 0, rows = 0, slices = 1;
  const std::byte* data = nullptr;
  size_t row_bytes = 0;
  const float* scales = nullptr;  // [slices], finite; null: none

  bool empty() const { return data == nullptr; }
  const std::byte* Row(int64_t slice, int64_t row) const {
    return data +
           (static_cast<size_t>(slice) * static_cast<size_t>(rows) + static_cast<size_t>(row)) * row_bytes;
  }
  uint64_t bytes() const {
    return uint64_t{row_bytes} * static_cast<uint64_t>(rows) * static_cast<uint64_t>(slices);
  }
};

}  // namespace glint::model
