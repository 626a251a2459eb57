// Stages whose scratch memory grows with the list of a row or with its context take a long batch some rows at a time. How many, and what
// they take then: for the stages and for ScratchBytes.
#pragma once
#include <algorithm>
#include <cstdint>

#include "model/glm_flash/hparams.h"

namespace glint::cuda {

inline constexpr int64_t kGroupBytes = int64_t{64} << 20;
inline constexpr int64_t kMostGroupRows = 65535;  // what the third dimension of a grid may be
inline constexpr int64_t kAttendPart = 128;       // entries of a list whose sums run on their own

inline int64_t GroupRows(int64_t rows, int64_t bytes_per_row) {
  return std::clamp<int64_t>(kGroupBytes / std::max<int64_t>(bytes_per_row, 1), 1,
                             std::clamp<int64_t>(rows, 1, kMostGroupRows));
}

// dsa.select: a score for each complete pool of a row; none while all of them fit.
inline int64_t SelectBytesPerRow(const model::HParams& hp, int64_t capacity) {
  const int64_t pools = capacity / hp.index_kpool;
  return pools <= hp.pools_kept() ? 0 : pools * int64_t{sizeof(float)};
}

// dsa.attend, beside two operands of as many rows times heads: queries, scores, and for each part of the list its mix, its largest
// score and its sum of weights.
inline int64_t AttendParts(const model::HParams& hp) {
  return (hp.max_selected() + kAttendPart - 1) / kAttendPart;
}
inline int64_t AttendBytesPerRow(const model::HParams& hp) {
  return hp.heads * int64_t{sizeof(float)} *
         (hp.kv_lora_rank + hp.max_selected() + AttendParts(hp) * (hp.kv_lora_rank + 2));
}

}  // namespace glint::cuda
