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
  return sizeof(Reach) + mask.size() * sizeof(uint64_t) + few.size() * sizeof(int32_t) +
         exits.size() * sizeof(Exit);
}

void Walker::Walk(uint32_t begin, uint32_t end, std::span<const Config> from, std::span<uint64_t> mask,
                  std::vector<uint32_t>* exits) {
  if (begin >= end) return;
  mask_ = mask;
  exits_ = exits;
  pool_.assign(from.begin(), from.end());
  General(begin, end, 0, pool_.size());
}

void Walker::Single(uint32_t begin, uint32_t end, const Config& from) {
  if (begin >= end) return;
  Config path[kLongestToken + 1];
  path[0] = from;
  const size_t base = trie_[begin].depth - 1u;
  for (uint32_t i = begin; i < end;) {
    const TrieNode& node = trie_[i];
    const size_t depth = node.depth - base;
    Config c = path[depth - 1];
    ++steps_;
    const Edge* const e = a_.Find(a_.state(c.state), node.byte);
    if (e == nullptr || !a_.Pass(e->guard, c.count)) {
      i = node.end;
      continue;
    }
    c.state = e->to;
    if (node.token >= 0) Set(mask_, node.token);
    if (node.end > i + 1 && !a_.state(c.state).plain()) {
      const size_t at = pool_.size();
      pool_.push_back(c);
      Below(i, at);
      i = node.end;
      continue;
    }
    path[depth] = c;
    i = steps_ > kMostSteps ? node.end : i + 1;
  }
}

void Walker::Below(uint32_t i, size_t at) {
  const uint32_t end = trie_[i].end;
  const size_t stacks = stacks_.size();
  if (pool_.size() == at + 1 && a_.state(pool_[at].state).plain()) {
    const Config only = pool_[at];
    pool_.resize(at);
    return Single(i + 1, end, only);
  }
  const Ends ends = Close(a_, pool_, at, stacks_);
  steps_ += pool_.size() - at;
  if (ends.base && exits_ != nullptr) exits_->push_back(i);
  // What has no bytes only returns or calls.
  const bool more = std::any_of(pool_.begin() + static_cast<ptrdiff_t>(at), pool_.end(),
                                [&](const Config& c) { return a_.state(c.state).n_edges > 0; });
  if (more && steps_ <= kMostSteps) General(i + 1, end, at, pool_.size());
  pool_.resize(at);
  stacks_.Truncate(stacks);
}

void Walker::General(uint32_t begin, uint32_t end, size_t set_begin, size_t set_end) {
  for (uint32_t i = begin; i < end; i = trie_[i].end) {
    const size_t at = pool_.size();
    steps_ += set_end - set_begin;
    Step(a_, pool_, set_begin, set_end, trie_[i].byte, pool_, at);
    if (pool_.size() == at) continue;
    largest_ = std::max(largest_, pool_.size() - at);
    if (trie_[i].token >= 0) Set(mask_, trie_[i].token);
    if (trie_[i].end > i + 1 && steps_ <= kMostSteps)
      Below(i, at);
    else
      pool_.resize(at);
  }
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

std::shared_ptr<const Reach> ComputeReach(const Automaton& automaton, const Vocabulary& vocabulary,
                                          uint32_t state, uint32_t count) {
  const Trie& trie = vocabulary.trie();
  auto reach = std::make_shared<Reach>();
  reach->mask.resize(vocabulary.mask_words());
  Stacks stacks;
  std::vector<Config> start = {{state, count, kBase}};
  reach->ends = Close(automaton, start, 0, stacks).base;
  std::vector<uint32_t> ends;
  Walker walker(automaton, trie, stacks);
  walker.Walk(1, static_cast<uint32_t>(trie.size()), start, reach->mask, &ends);
  reach->largest = std::max(walker.largest(), start.size());
  for (const uint32_t node : ends) {
    for (uint32_t child = node + 1; child < trie[node].end; child = trie[child].end)
      reach->exits.push_back({trie[child].byte, child});
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
