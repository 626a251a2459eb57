// All state of one sequence on the CPU (docs/design.md, "State").
#pragma once
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "plan/backend.h"

namespace glint::cpu {

// Zeroed pages from the system that cost nothing until they are touched.
class Pages {
 public:
  static Result<Pages> Reserve(uint64_t bytes);
  // All of it will be used soon: asks the system for large pages, since rows of activations lie many small pages apart.
  static Result<Pages> ReserveLarge(uint64_t bytes);
  Pages() = default;
  Pages(Pages&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Pages& operator=(Pages&& other) noexcept {
    std::swap(data_, other.data_), std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Pages();
  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  void Zero();  // gives the memory back; it reads as zero

 private:
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
};

// What a KDA layer keeps. Rows of the unfinished block lie at their offset in the block; conv rows at their
// position modulo conv_ring.
struct KdaState {
  float* s;      // [heads][K key][K value] at the start of the current block
  float* kf;     // [block][heads * K] k * exp(-G)
  float* delta;  // [block][heads * K]
  float* g;      // [block][heads * K] cumulated log-decay
  float* conv;   // [conv_ring][3][heads * K] inputs of the convolution
};

// What a DSA layer keeps. Raw rows lie at their position modulo raw_ring.
struct DsaState {
  float* latent;    // [capacity][kv_lora]
  float* pooled;    // [capacity / kpool][index_head_dim]
  float* raw_key;   // [raw_ring][index_head_dim]
  float* raw_gate;  // [raw_ring][index_head_dim]
};

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

// Rows of this object are written by the stages during a pass; the position moves only when the pass is done.
class SequenceState final : public plan::SequenceState {
 public:
  // poison: memory that holds nothing of the sequence is NaN at any time between passes. For tests; slow.
  static Result<std::unique_ptr<SequenceState>> Create(const StateLayout& layout, bool poison = false);

  int64_t position() const override { return trunk_.position; }
  int64_t mtp_position() const override { return mtp_.position; }
  int64_t capacity() const override { return layout_.capacity; }
  uint64_t bytes() const override { return pages_.bytes(); }
  Result<std::unique_ptr<plan::StateMark>> Mark() const override;
  Status Return(const plan::StateMark& mark) override;
  Status Truncate(int64_t position) override;
  Status TruncateMtp(int64_t position) override;
  void Clear() override;
  Result<std::unique_ptr<plan::SequenceState>> Clone() const override;
  std::vector<plan::StatePart> Parts(int64_t position, int64_t mtp_position) const override;
  Status Read(const plan::StatePart& part, float* out) const override;
  Status Write(const plan::StatePart& part, const float* in) override;
  Status Place(int64_t position, int64_t mtp_position) override;
  Status CopyFrom(const plan::SequenceState& other) override;

  const StateLayout& layout() const { return layout_; }
  KdaState Kda(int layer);
  DsaState Dsa(int layer);  // layer == layers: the MTP block
  void Advance(plan::Pass pass, int64_t rows);

 private:
  // One line of rows: the trunk's or the MTP block's.
  struct Line {
    int64_t position = 0;
    int64_t raw_from = 0;  // rows [raw_from, position) are still in the raw rings
    // Where the line was cut back: (serial, position), both ascending; rows from `position` on were forgotten
    // then.
    std::vector<std::pair<uint64_t, int64_t>> cuts;
    void Cut(uint64_t serial, int64_t to);
    bool Untouched(uint64_t since, int64_t below) const;
  };
  struct MarkImpl;

  // Where the rows of a kind of part lie: row r at data + r % ring * width, or at r where ring is 0.
  struct Rows {
    float* data = nullptr;
    int64_t width = 0, ring = 0, end = 0;  // rows [0, end) can exist
  };

  SequenceState(const StateLayout& layout, Pages pages, bool poison);
  float* At(const StateLayout::Part& part) const {
    return reinterpret_cast<float*>(pages_.data()) + part.offset;
  }
  bool CanRebuildPool(const Line& line, int64_t position) const;
  Rows RowsOf(plan::StatePart::Kind kind, int layer) const;  // width 0: the layer has none of the kind
  // fn(part's offset in floats, where it lies, floats) over stretches that are contiguous in memory.
  template <class F>
  Status ForStretches(const plan::StatePart& part, F&& fn) const;
  // Everything but the live parts becomes NaN, if this sequence is one of those.
  void PoisonDead();

  StateLayout layout_;
  Pages pages_;
  Line trunk_, mtp_;
  static constexpr int64_t kNoRow = std::numeric_limits<int64_t>::max();
  int64_t mtp_raw_written_ = kNoRow;  // first raw row of the MTP block that Write brought, for Place
  const bool poison_;
  uint64_t id_;
  // Sequences this one was cloned from, with the serial at which it parted from them: their marks from before
  // are its own.
  std::vector<std::pair<uint64_t, uint64_t>> ancestors_;
};

}  // namespace glint::cpu
