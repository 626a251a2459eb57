// The greedy choice among logits in device memory.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace glint::cuda {

// Keys that LaunchBest wants as temporary memory, for so many rows.
constexpr int64_t BestKeys(int64_t rows) { return rows < 32 ? 128 : rows * 4; }

struct BestArgs {
  const float* logits;  // [rows][vocab]
  int64_t rows, vocab;
  int64_t usable;     // ids below it only
  uint64_t* keys;     // [BestKeys(rows)]
  uint32_t* arrived;  // DeviceBatch's
  int32_t* best;      // [rows], as plan::BestId chooses
};
void LaunchBest(const BestArgs& args, cudaStream_t stream);

}  // namespace glint::cuda
