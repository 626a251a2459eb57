#include "grammar/configs.h"

#include <algorithm>
#include <array>

namespace glint::grammar {
namespace {

// Keeps the configurations of a set apart: small ones by looking, large ones by a table that is emptied by counting up.
class Distinct {
 public:
  Distinct(std::vector<Config>& set, size_t begin) : set_(set), begin_(begin) {}
  size_t size() const { return set_.size() - begin_; }

  void Insert(const Config& config) {
    if (size() < kSmall) {
      if (std::find(set_.begin() + static_cast<ptrdiff_t>(begin_), set_.end(), config) == set_.end())
        set_.push_back(config);
      return;
    }
    if (table_ == nullptr) {
      static thread_local Table table;
      table_ = &table;
      if (++table.round == 0) table.slots.fill({}), table.round = 1;
      for (size_t i = begin_; i < set_.size(); ++i) Put(set_[i], i);
    }
    if (Put(config, set_.size())) set_.push_back(config);
  }

 private:
  static constexpr size_t kSmall = 16;
  struct Table {
    struct Slot {
      uint32_t round = 0, at = 0;
    };
    std::array<Slot, 4 * kMostClosed> slots;
    uint32_t round = 0;
  };
  bool Put(const Config& c, size_t at) {
    uint64_t h = (c.state * 0x9e3779b97f4a7c15u ^ c.count) * 0xbf58476d1ce4e5b9u;
    h = (h ^ (h >> 31) ^ c.stack) * 0x94d049bb133111ebu;
    for (size_t slot = (h >> 20) % table_->slots.size();; slot = (slot + 1) % table_->slots.size()) {
      auto& s = table_->slots[slot];
      if (s.round != table_->round) {
        s = {table_->round, static_cast<uint32_t>(at - begin_)};
        return true;
      }
      if (set_[begin_ + s.at] == c) return false;
    }
  }

  std::vector<Config>& set_;
  const size_t begin_;
  Table* table_ = nullptr;
};

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
  Distinct distinct(set, begin);
  // One of the given configurations after the other, each with all that follows from it.
  size_t done = set.size();
  for (size_t given = begin, first_new = done; given < first_new; ++given) {
    if (distinct.size() >= kMostClosed / 2) break;
    const auto follow = [&](size_t i) {
      const Config c = set[i];
      const auto& s = a.state(c.state);
      if (s.plain()) return;
      uint32_t count = c.count;
      if (s.end != kNoEnd && a.Pass(s.end, count)) {
        if (c.stack == kBase) {
          ends.base = true;
        } else if (c.stack == kBottom) {
          ends.bottom = true;
        } else {
          const auto& f = stacks.frame(c.stack);
          distinct.Insert({f.state, f.count, f.parent});
        }
      }
      for (const Call& call : a.Calls(s)) {
        count = c.count;
        if (distinct.size() >= kMostClosed || !a.Pass(call.guard, count)) continue;
        const uint32_t stack = call.to == kTail ? c.stack : stacks.Push({call.to, count, c.stack});
        distinct.Insert({a.rule(call.rule).start, 0, stack});
      }
    };
    follow(given);
    while (done < set.size()) follow(done++);
  }
  return ends;
}

void Step(const Automaton& a, const std::vector<Config>& set, size_t begin, size_t end, uint8_t byte,
          std::vector<Config>& to, size_t to_begin) {
  Distinct distinct(to, to_begin);
  for (size_t i = begin; i < end; ++i) {
    const Config c = set[i];  // `to` may be `set`
    const Edge* const e = a.Find(a.state(c.state), byte);
    uint32_t count = c.count;
    if (e == nullptr || !a.Pass(e->guard, count)) continue;
    if (distinct.size() >= kMostConfigs) return;
    distinct.Insert({e->to, count, c.stack});
  }
}

}  // namespace glint::grammar
