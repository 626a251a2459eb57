// Where an automaton stands: sets of configurations, and the stacks that they share.
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "grammar/automaton.h"

namespace glint::grammar {

// Stacks that are no frame's number: the end of the text, and what was below a state when it began to be looked at alone (reach.h).
constexpr uint32_t kBottom = std::numeric_limits<uint32_t>::max();
constexpr uint32_t kBase = kBottom - 1;
// In one set after a byte; more are left out. What is left out only narrows what is allowed: each configuration that stays can be completed.
constexpr size_t kMostConfigs = 512;
// In a closed set; beyond, the configurations not yet looked at are not followed. Builder::Finish sees to it that one alone stays below.
constexpr size_t kMostClosed = 16 * kMostConfigs;

struct Config {
  uint32_t state = 0, count = 0, stack = kBottom;
  friend bool operator==(const Config&, const Config&) = default;
};

// Frames of all stacks, each once: equal stacks have equal numbers. Forgotten in the reverse order of their making.
class Stacks {
 public:
  struct Frame {
    uint32_t state, count, parent;  // where to go on, with which count, above what
  };
  const Frame& frame(uint32_t id) const { return frames_[id]; }
  uint32_t Push(const Frame& frame);
  size_t size() const { return frames_.size(); }
  void Truncate(size_t size);

 private:
  static constexpr uint32_t kFree = kBottom;
  size_t Slot(const Frame& frame) const;  // where it is, or would be
  std::vector<Frame> frames_;
  std::vector<uint32_t> slots_;  // open addressing, at most half full; a power of two
};

struct Ends {
  bool base = false, bottom = false;  // the rule above kBase, or the whole text, may end
};

// Adds what set[begin...] reaches without a byte: the rules called, and where rules that may end return to.
Ends Close(const Automaton& a, std::vector<Config>& set, size_t begin, Stacks& stacks);
// Adds to `to`, from `to_begin` on, where set[begin, end) goes over a byte.
void Step(const Automaton& a, const std::vector<Config>& set, size_t begin, size_t end, uint8_t byte,
          std::vector<Config>& to, size_t to_begin);

}  // namespace glint::grammar
