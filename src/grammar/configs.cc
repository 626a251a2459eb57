#include "grammar/configs.h"

#include <algorithm>

namespace glint::grammar {
namespace {

void Insert(std::vector<Config>& set, size_t begin, const Config& config) {
  if (set.size() - begin >= kMostConfigs) return;
  if (std::find(set.begin() + static_cast<ptrdiff_t>(begin), set.end(), config) == set.end()) set.push_back(config);
}

}  // namespace

size_t Stacks::Slot(const Frame& frame) const {
  const size_t mask = slots_.size() - 1;
  uint64_t h = frame.state * 0x9e3779b97f4a7c15u;
  h = (h ^ (h >> 29) ^ frame.count) * 0xbf58476d1ce4e5b9u;
  h = (h ^ (h >> 32) ^ frame.parent) * 0x94d049bb133111ebu;
  size_t at = (h ^ (h >> 31)) & mask;
  while (slots_[at] != kFree) {
    const Frame& f = frames_[slots_[at]];
    if (f.state == frame.state && f.count == frame.count && f.parent == frame.parent) break;
    at = (at + 1) & mask;
  }
  return at;
}

uint32_t Stacks::Push(const Frame& frame) {
  if (2 * (frames_.size() + 1) > slots_.size()) {
    // In their order, so that forgetting the youngest still leaves every other where it is found.
    slots_.assign(std::max<size_t>(64, 2 * slots_.size()), kFree);
    for (uint32_t i = 0; i < frames_.size(); ++i) slots_[Slot(frames_[i])] = i;
  }
  const size_t at = Slot(frame);
  if (slots_[at] == kFree) {
    slots_[at] = static_cast<uint32_t>(frames_.size());
    frames_.push_back(frame);
  }
  return slots_[at];
}

void Stacks::Truncate(size_t size) {
  while (frames_.size() > size) {
    slots_[Slot(frames_.back())] = kFree;
    frames_.pop_back();
  }
}

Ends Close(const Automaton& a, std::vector<Config>& set, size_t begin, Stacks& stacks) {
  Ends ends;
  for (size_t i = begin; i < set.size(); ++i) {
    const Config c = set[i];
    const auto& s = a.state(c.state);
    if (s.plain()) continue;
    uint32_t count = c.count;
    if (s.end != kNoEnd && a.Pass(s.end, count)) {
      if (c.stack == kBase) {
        ends.base = true;
      } else if (c.stack == kBottom) {
        ends.bottom = true;
      } else {
        const auto& f = stacks.frame(c.stack);
        Insert(set, begin, {f.state, f.count, f.parent});
      }
    }
    for (const Call& call : a.Calls(s)) {
      count = c.count;
      if (!a.Pass(call.guard, count)) continue;
      const uint32_t stack = call.to == kTail ? c.stack : stacks.Push({call.to, count, c.stack});
      Insert(set, begin, {a.rule(call.rule).start, 0, stack});
    }
  }
  return ends;
}

void Step(const Automaton& a, const std::vector<Config>& set, size_t begin, size_t end, uint8_t byte,
          std::vector<Config>& to, size_t to_begin) {
  for (size_t i = begin; i < end; ++i) {
    const Config c = set[i];  // `to` may be `set`
    const Edge* const e = a.Find(a.state(c.state), byte);
    uint32_t count = c.count;
    if (e != nullptr && a.Pass(e->guard, count)) Insert(to, to_begin, {e->to, count, c.stack});
  }
}

}  // namespace glint::grammar
