#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>

namespace glint::text {

MergeTable::MergeTable(size_t merges) : slots_(std::bit_ceil(2 * merges + 1)) {}

size_t MergeTable::SlotOf(uint64_t pair) const {
  const size_t mask = slots_.size() - 1;
  // Fibonacci hashing; ids are small, so their bits must be spread before the mask.
  const uint64_t hash = (pair ^ pair >> 29) * 0x9e3779b97f4a7c15u;
  size_t at = static_cast<size_t>(hash >> 32) & mask;
  while (slots_[at].pair != kEmpty && slots_[at].pair != pair) at = (at + 1) & mask;
  return at;
}

void MergeTable::Add(int32_t left, int32_t right, Merge merge) {
  const uint64_t pair = Pair(left, right);
  Slot& slot = slots_[SlotOf(pair)];
  if (slot.pair == kEmpty) slot = {pair, merge};
}

MergeTable::Merge MergeTable::Find(int32_t left, int32_t right) const {
  return slots_[SlotOf(Pair(left, right))].merge;
}

// Ranks the pair that begins at a symbol and queues it if it can merge.
void Bpe::Rank(uint32_t at) {
  Symbol& symbol = symbols_[at];
  symbol.rank = MergeTable::kNoRank;
  if (symbol.next == kEnd) return;
  symbol.rank = merges_.Find(symbol.id, symbols_[symbol.next].id).rank;
  if (symbol.rank == MergeTable::kNoRank) return;
  queue_.push_back(uint64_t{symbol.rank} << 32 | at);
  std::push_heap(queue_.begin(), queue_.end(), std::greater<>());
}

void Bpe::Encode(std::string_view piece, std::vector<int32_t>& out) {
  if (piece.empty()) return;
  const auto n = static_cast<uint32_t>(piece.size());
  symbols_.clear();
  queue_.clear();
  for (uint32_t i = 0; i < n; ++i) {
    const int32_t id = byte_ids_[static_cast<uint8_t>(piece[i])];
    symbols_.push_back({id, i == 0 ? kEnd : i - 1, i + 1 == n ? kEnd : i + 1, MergeTable::kNoRank});
  }
  for (uint32_t i = 0; i < n; ++i) Rank(i);

  while (!queue_.empty()) {
    const uint64_t top = queue_.front();
    std::pop_heap(queue_.begin(), queue_.end(), std::greater<>());
    queue_.pop_back();
    const auto at = static_cast<uint32_t>(top);
    Symbol& left = symbols_[at];
    // A pair is queued at most once per rank and place, as a symbol only ever grows; so equal ranks mean this
    // very pair.
    if (left.rank != top >> 32) continue;
    Symbol& right = symbols_[left.next];
    left.id = merges_.Find(left.id, right.id).id;
    left.next = right.next;
    if (right.next != kEnd) symbols_[right.next].previous = at;
    right.id = -1;
    right.rank = MergeTable::kNoRank;
    Rank(at);
    if (left.previous != kEnd) Rank(left.previous);
  }
  for (uint32_t at = 0; at != kEnd; at = symbols_[at].next) out.push_back(symbols_[at].id);
}

}  // namespace glint::text
