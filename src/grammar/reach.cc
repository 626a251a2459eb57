#include "grammar/reach.h"

#include <algorithm>
#include <bit>

namespace glint::grammar {
namespace {

constexpr size_t kSparse = 32;  // a list of ids is smaller than a mask where fewer than one in so many is set

void Set(std::span<uint64_t> mask, int32_t id) {
  mask[static_cast<size_t>(id) / 64] |= uint64_t{1} << (static_cast<size_t>(id) % 64);
}

}  // namespace

size_t Reach::bytes() const {
  return sizeof(Reach) + mask.size() * sizeof(uint64_t) + few.size() * sizeof(int32_t) + exits.size() * sizeof(Exit);
}

void Walker::Walk(uint32_t begin, uint32_t end, std::span<const Config> from, std::span<uint64_t> mask,
                  std::vector<uint32_t>* exits) {
  if (begin >= end) return;
  pool_.assign(from.begin(), from.end());
  levels_.assign(1, {0, pool_.size(), stacks_.size()});
  const size_t base = trie_.depth[begin] - 1u;
  for (uint32_t i = begin; i < end;) {
    const size_t depth = trie_.depth[i] - base;
    // Deeper levels than this node's parent are done with, and so are their stacks.
    if (levels_.size() > depth) {
      stacks_.Truncate(levels_[depth].stacks);
      levels_.resize(depth);
    }
    const Level& parent = levels_.back();
    pool_.resize(parent.end);
    const size_t at = pool_.size();
    const Level level{at, at, stacks_.size()};
    steps_ += parent.end - parent.begin;
    Step(a_, pool_, parent.begin, parent.end, trie_.byte[i], pool_, at);
    if (pool_.size() == at) {
      i = trie_.end[i];
      continue;
    }
    if (trie_.token[i] >= 0) Set(mask, trie_.token[i]);
    if (trie_.end[i] == i + 1) {
      ++i;
      continue;
    }
    bool more = true;
    if (pool_.size() != at + 1 || !a_.state(pool_[at].state).plain()) {
      const Ends ends = Close(a_, pool_, at, stacks_);
      steps_ += pool_.size() - at;
      if (ends.base && exits != nullptr) exits->push_back(i);
      // What has neither bytes nor calls left only returns.
      more = std::any_of(pool_.begin() + static_cast<ptrdiff_t>(at), pool_.end(),
                         [&](const Config& c) { return a_.state(c.state).n_edges > 0; });
    }
    if (!more || steps_ > kMostSteps) {
      stacks_.Truncate(level.stacks);
      i = trie_.end[i];
      continue;
    }
    levels_.push_back({at, pool_.size(), level.stacks});
    ++i;
  }
  if (levels_.size() > 1) stacks_.Truncate(levels_[1].stacks);
}

std::shared_ptr<const Reach> ReachCache::Find(uint32_t state, uint64_t count_key) const {
  const std::lock_guard lock(mutex_);
  const auto at = known_.find({count_key, state});
  return at == known_.end() ? nullptr : at->second;
}

void ReachCache::Insert(uint32_t state, uint64_t count_key, std::shared_ptr<const Reach> reach) {
  const std::lock_guard lock(mutex_);
  if (bytes_ + reach->bytes() > max_bytes_) known_.clear(), bytes_ = 0;
  bytes_ += reach->bytes();
  known_.insert_or_assign({count_key, state}, std::move(reach));
}

size_t ReachCache::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

std::shared_ptr<const Reach> ComputeReach(const Automaton& automaton, const Vocabulary& vocabulary, uint32_t state,
                                          uint32_t count) {
  const Trie& trie = vocabulary.trie();
  auto reach = std::make_shared<Reach>();
  reach->mask.resize(vocabulary.mask_words());
  Stacks stacks;
  std::vector<Config> start = {{state, count, kBase}};
  reach->ends = Close(automaton, start, 0, stacks).base;
  std::vector<uint32_t> ends;
  Walker(automaton, trie, stacks).Walk(1, static_cast<uint32_t>(trie.size()), start, reach->mask, &ends);
  for (const uint32_t node : ends) {
    for (uint32_t child = node + 1; child < trie.end[node]; child = trie.end[child])
      reach->exits.push_back({trie.byte[child], child});
  }
  std::stable_sort(reach->exits.begin(), reach->exits.end(),
                   [](const Reach::Exit& a, const Reach::Exit& b) { return a.byte < b.byte; });
  size_t allowed = 0;
  for (const uint64_t word : reach->mask) allowed += static_cast<size_t>(std::popcount(word));
  if (allowed * kSparse < static_cast<size_t>(vocabulary.size())) {
    for (size_t w = 0; w < reach->mask.size(); ++w) {
      for (uint64_t word = reach->mask[w]; word != 0; word &= word - 1)
        reach->few.push_back(static_cast<int32_t>(w * 64) + std::countr_zero(word));
    }
    reach->mask = {};
  }
  return reach;
}

}  // namespace glint::grammar
