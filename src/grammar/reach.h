// What tokens a state allows by itself, whatever called it: found out once and kept. Masks are put together from these.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/configs.h"
#include "grammar/vocabulary.h"

namespace glint::grammar {

struct Reach {
  // Tokens that end inside the rule, in what it calls, or exactly at its end; one of the two is filled.
  std::vector<uint64_t> mask;
  std::vector<int32_t> few;
  // Trie nodes one byte beyond an end of the rule, by that byte: what the caller thinks of them decides.
  struct Exit {
    uint8_t byte;
    uint32_t node;
  };
  std::vector<Exit> exits;
  bool ends = false;   // the rule may end before any byte
  size_t largest = 0;  // set of configurations met

  size_t bytes() const;
};

// Goes down the trie with sets of configurations, one a depth.
class Walker {
 public:
  // Steps of configurations in one walk. Beyond, only single bytes are looked at (so that something stays allowed): a bound on
  // time for grammars that branch without measure.
  static constexpr uint64_t kMostSteps = 10'000'000;

  Walker(const Automaton& automaton, const Trie& trie, Stacks& stacks)
      : a_(automaton), trie_(trie), stacks_(stacks) {}

  // Of the nodes in [begin, end), whose parents have the closed set `from`: sets the bits of tokens reached, and if `exits` is given
  // adds to it the nodes at which the rule above kBase may end.
  void Walk(uint32_t begin, uint32_t end, std::span<const Config> from, std::span<uint64_t> mask,
            std::vector<uint32_t>* exits);

  size_t largest() const { return largest_; }  // set met, after a byte

 private:
  // Of siblings from `begin` to before `end`, and all below them, from the closed set pool_[set_begin, set_end).
  void General(uint32_t begin, uint32_t end, size_t set_begin, size_t set_end);
  // From one configuration, as long as what follows is one that neither calls nor ends: most of a string.
  void Single(uint32_t begin, uint32_t end, const Config& from);
  // Below node i, from pool_[at ...], not closed yet; forgets it.
  void Below(uint32_t i, size_t at);

  const Automaton& a_;
  const Trie& trie_;
  Stacks& stacks_;
  uint64_t steps_ = 0;
  size_t largest_ = 1;
  std::span<uint64_t> mask_;
  std::vector<uint32_t>* exits_ = nullptr;
  std::vector<Config> pool_;
};

// Thread-safe. What it gave out stays valid when it forgets (all, when it grows beyond its bound).
class ReachCache {
 public:
  explicit ReachCache(size_t max_bytes = size_t{64} << 20) : max_bytes_(max_bytes) {}
  std::shared_ptr<const Reach> Find(uint32_t state, uint64_t count_key) const;
  void Insert(uint32_t state, uint64_t count_key, std::shared_ptr<const Reach> reach);
  size_t bytes() const;

 private:
  struct Key {
    uint64_t count;
    uint32_t state;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct KeyHash {
    size_t operator()(const Key& k) const {
      return (k.count * 0x9e3779b97f4a7c15u) ^ (k.state * 0xbf58476d1ce4e5b9u);
    }
  };
  mutable std::mutex mutex_;
  std::unordered_map<Key, std::shared_ptr<const Reach>, KeyHash> known_;
  size_t bytes_ = 0, max_bytes_;
};

std::shared_ptr<const Reach> ComputeReach(const Automaton& automaton, const Vocabulary& vocabulary,
                                          uint32_t state, uint32_t count);

}  // namespace glint::grammar
