// How all state of one sequence lies in one stretch of memory, the same on every device.
#pragma once
#include <cstdint>
#include <limits>
#include <vector>

#include "glint/status.h"
#include "model/glm_flash/hparams.h"

namespace glint::plan {

// Of a sequence: positions are int32 in the selected lists.
inline constexpr int64_t kMostTokens = std::numeric_limits<int32_t>::max();

// Offsets of the parts, in floats: first the fixed-size parts of all layers (what a mark copies), then the
// per-token rows.
class StateLayout {
 public:
  StateLayout(const model::HParams& hp, int64_t capacity, bool mtp);

  int64_t capacity, block, kpool, layers;
  bool mtp;
  // Rows that the convolution may read back from any position of the current block, the block's own included.
  int64_t conv_ring;
  // Rows that rebuild the open pool after truncation to any position of the current block. In the MTP block,
  // which has no grid, the same number bounds how far it may be truncated.
  int64_t raw_ring;
  int64_t kda_width, head_dim, kv_lora, index_dim;  // floats a row

  struct Part {
    int64_t offset = 0, floats = 0;
  };
  struct LayerParts {
    bool kda = false;
    Part s, kf, delta, g, conv;              // KDA
    Part raw_key, raw_gate, latent, pooled;  // DSA
  };
  std::vector<LayerParts> parts;  // [layers], and one more for the MTP block

  int64_t BlockStart(int64_t position) const { return position - position % block; }
  int64_t PoolStart(int64_t position) const { return position - position % kpool; }
  int64_t fixed_floats = 0, total_floats = 0;
  uint64_t bytes() const { return 4 * static_cast<uint64_t>(total_floats); }
};

// For Backend::StateBytes: the largest number where there can be no such sequence.
uint64_t StateBytes(const model::HParams& hp, int64_t capacity, bool mtp);
// For Backend::NewState. kBadInput for a capacity that no sequence has, and for `mtp` where the model has no such block.
Result<StateLayout> NewStateLayout(const model::HParams& hp, bool has_mtp, int64_t capacity, bool mtp);

}  // namespace glint::plan
