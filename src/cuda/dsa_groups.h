// Stages whose scratch memory grows with the list of a row or with its context take a long batch some rows at a time. How many, and what
// they take then: for the stages and for ScratchBytes.
#pragma once
#include <algorithm>
#include <cstdint>

#include "model/glm_flash/hparams.h"

namespace glint::cuda {

inline constexpr int64_t kGroupBytes = int64_t{64} << 20;
// 512 rows of the released shape and some: whole lists of 512 rows are four turns of an H200's multiprocessors but for 16, where 299 were
// three turns for the work of 2.3.
inline constexpr int64_t kAttendBytes = int64_t{352} << 20;
inline constexpr int64_t kAttendRows = 256;       // rows come in multiples of these where there are more
inline constexpr int64_t kMostGroupRows = 65535;  // what the third dimension of a grid may be
inline constexpr int64_t kAttendPart = 128;       // entries of a list whose sums run on their own
inline constexpr int64_t kAttendTile = 32;        // entries that are scored together
inline constexpr int64_t kMostSplitRows = 24;     // rows whose parts are shared out to blocks

inline int64_t GroupRows(int64_t rows, int64_t bytes_per_row, int64_t bytes = kGroupBytes) {
  return std::clamp<int64_t>(bytes / std::max<int64_t>(bytes_per_row, 1), 1,
                             std::clamp<int64_t>(rows, 1, kMostGroupRows));
}

// dsa.select: a score for each complete pool of a row; none while all of them fit.
inline int64_t SelectBytesPerRow(const model::HParams& hp, int64_t capacity) {
  const int64_t pools = capacity / hp.index_kpool;
  return pools <= hp.pools_kept() ? 0 : pools * int64_t{sizeof(float)};
}

// dsa.attend, beside two operands of as many rows times heads: queries, and the scores with the largest of each tile.
inline int64_t AttendParts(const model::HParams& hp) {
  return (hp.max_selected() + kAttendPart - 1) / kAttendPart;
}
inline int64_t AttendTiles(const model::HParams& hp) {
  return (hp.max_selected() + kAttendTile - 1) / kAttendTile;
}
inline int64_t AttendLanes(const model::HParams& hp) { return (hp.heads + 3) / 4 * 4; }
inline int64_t AttendBytesPerRow(const model::HParams& hp) {
  return int64_t{sizeof(float)} *
         (hp.heads * hp.kv_lora_rank + AttendLanes(hp) * (hp.max_selected() + AttendTiles(hp)));
}
inline int64_t AttendRows(const model::HParams& hp, int64_t rows) {
  const int64_t most = GroupRows(rows, AttendBytesPerRow(hp), kAttendBytes);
  return most > kAttendRows ? most / kAttendRows * kAttendRows : most;
}
// And for each part of the lists of the first few rows its mix and its sum of weights.
inline int64_t AttendSplitBytes(const model::HParams& hp, int64_t rows) {
  return std::min(AttendRows(hp, rows), kMostSplitRows) * hp.heads * AttendParts(hp) * (hp.kv_lora_rank + 1) *
         int64_t{sizeof(float)};
}

}  // namespace glint::cuda
