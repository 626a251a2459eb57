// All state of one sequence, whatever device it lies on (docs/design.md, "State"): positions, marks, truncation, parts. A backend
// gives the memory, and its stages write the rows in it.
#pragma once
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "plan/backend.h"
#include "plan/state_layout.h"
#include "plan/state_memory.h"

namespace glint::plan {

// Rows of this object are written by the stages during a pass; the position moves only when the pass is done.
class GridSequence : public SequenceState {
 public:
  int64_t position() const override { return trunk_.position; }
  int64_t mtp_position() const override { return mtp_.position; }
  int64_t capacity() const override { return layout_.capacity; }
  uint64_t bytes() const override { return layout_.bytes(); }
  Result<std::unique_ptr<StateMark>> Mark() const override;
  Status Return(const StateMark& mark) override;
  Status Truncate(int64_t position) override;
  Status TruncateMtp(int64_t position) override;
  void Clear() override;
  Result<std::unique_ptr<SequenceState>> Clone() const override;
  std::vector<StatePart> Parts(int64_t position, int64_t mtp_position) const override;
  Status Read(const StatePart& part, float* out) const override;
  Status Write(const StatePart& part, const float* in) override;
  Status Place(int64_t position, int64_t mtp_position) override;
  Status CopyFrom(const SequenceState& other) override;

  const StateLayout& layout() const { return layout_; }
  void Advance(Pass pass, int64_t rows);

 protected:
  // `memory`: layout.total_floats of them, reading as zero. poison: memory that holds nothing of the sequence is NaN at any time
  // between passes; for tests, slow.
  GridSequence(const StateLayout& layout, std::unique_ptr<StateMemory> memory, bool poison);
  // A sequence of the same backend, layout and poison over other memory, for Clone.
  virtual std::unique_ptr<GridSequence> Over(std::unique_ptr<StateMemory> memory) const = 0;
  StateMemory& memory() { return *memory_; }
  const StateMemory& memory() const { return *memory_; }
  bool poison() const { return poison_; }

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

  // Where the rows of a kind of part lie: row r at `at` + r % ring * width, or at r where ring is 0.
  struct Rows {
    int64_t at = 0, width = 0, ring = 0,
            end = 0;  // rows [0, end) can exist; width 0: the layer has none of the kind
  };

  bool CanRebuildPool(const Line& line, int64_t position) const;
  Rows RowsOf(StatePart::Kind kind, int layer) const;
  // fn(part's offset, where it lies, count), all in floats, over stretches that are contiguous in memory; until it fails.
  template <class F>
  Status ForStretches(const StatePart& part, F&& fn) const;
  // Everything but the live parts becomes NaN, if this sequence is one of those.
  void PoisonDead();

  StateLayout layout_;
  std::unique_ptr<StateMemory> memory_;
  Line trunk_, mtp_;
  static constexpr int64_t kNoRow = std::numeric_limits<int64_t>::max();
  int64_t mtp_raw_written_ = kNoRow;  // first raw row of the MTP block that Write brought, for Place
  const bool poison_;
  uint64_t id_;
  // Sequences this one was cloned from, with the serial at which it parted from them: their marks from before
  // are its own.
  std::vector<std::pair<uint64_t, uint64_t>> ancestors_;
};

}  // namespace glint::plan
