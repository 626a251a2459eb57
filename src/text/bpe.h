// Byte-pair merging on ids.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace glint::text {

// The merges of a vocabulary: a pair of ids becomes another, lower ranks first. An open-addressed table, as
// the look-up of a pair is what encoding spends its time on.
class MergeTable {
 public:
  struct Merge {
    uint32_t rank = kNoRank;
    int32_t id = -1;
  };
  static constexpr uint32_t kNoRank = UINT32_MAX;

  explicit MergeTable(size_t merges);
  // Of a pair added twice the first stays. At most as many pairs as the constructor was told.
  void Add(int32_t left, int32_t right, Merge merge);
  Merge Find(int32_t left, int32_t right) const;

 private:
  struct Slot {
    uint64_t pair = kEmpty;
    Merge merge;
  };
  static constexpr uint64_t kEmpty = UINT64_MAX;  // no pair of ids from 0 to INT32_MAX
  static uint64_t Pair(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  size_t SlotOf(uint64_t pair) const;
  std::vector<Slot> slots_;  // a power of two, at most half full
};

// Applies, again and again, the merge of lowest rank, the leftmost among equals. O(n log n) in the length of
// the piece, about 24 bytes of memory for each of its bytes; the memory is reused from call to call. One
// object per thread.
class Bpe {
 public:
  Bpe(const MergeTable& merges, const std::array<int32_t, 256>& byte_ids)
      : merges_(merges), byte_ids_(byte_ids) {}

  // Appends the ids of a piece of at most kLongest bytes.
  void Encode(std::string_view piece, std::vector<int32_t>& out);
  static constexpr size_t kLongest = size_t{1} << 30;

 private:
  // A stretch of the piece that has become one token; symbols of `id` -1 were merged into their left
  // neighbour.
  struct Symbol {
    int32_t id;
    uint32_t previous, next;  // indices; kEnd at the edges
    uint32_t rank;  // of merging with `next`; tells a queued merge that is still meant from a stale one
  };
  static constexpr uint32_t kEnd = UINT32_MAX;
  void Rank(uint32_t at);

  const MergeTable& merges_;
  const std::array<int32_t, 256>& byte_ids_;
  std::vector<Symbol> symbols_;
  std::vector<uint64_t> queue_;  // min-heap of rank << 32 | index of the left symbol
};

}  // namespace glint::text
