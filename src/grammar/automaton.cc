#include "grammar/automaton.h"

#include <fmt/core.h>

#include <algorithm>

namespace glint::grammar {
namespace {

constexpr size_t kFewEdges = 4;      // are looked through one after the other
constexpr size_t kMostRows = 16384;  // of 512 bytes
constexpr size_t kMostAtOnce = 2048;
constexpr size_t kMostPerState = std::numeric_limits<uint16_t>::max() - 1;

}  // namespace

bool Automaton::PassGuard(const Guard& guard, uint32_t& count) const {
  const auto object = [&]() -> const Object& { return objects_[guard.a]; };
  switch (guard.kind) {
    case Guard::Kind::kNone:
      return true;
    case Guard::Kind::kCount:
      if (count >= guard.a) return false;
      ++count;
      return true;
    case Guard::Kind::kBelow:
      return count < guard.a;
    case Guard::Kind::kAtLeast:
      return count >= guard.a;
    case Guard::Kind::kKeys: {
      const auto first = lists_.begin() + guard.b + 1, last = first + lists_[guard.b];
      const auto next = std::lower_bound(first, last, count);
      return next != last && *next <= object().next_required[count];
    }
    case Guard::Kind::kKey:
      if (guard.b < count || guard.b > object().next_required[count]) return false;
      count = guard.b + 1;
      return true;
    case Guard::Kind::kDone:
      return object().next_required[count] + 1 == object().next_required.size();
    case Guard::Kind::kMore:
      return object().additional || count + 1 < object().next_required.size();
    case Guard::Kind::kAdditional: {
      const auto properties = static_cast<uint32_t>(object().next_required.size() - 1);
      if (object().next_required[count] != properties) return false;
      count = properties;
      return true;
    }
  }
  return false;
}

uint64_t Automaton::CountKey(const State& s, uint32_t count, uint32_t longest) const {
  const Rule& rule = rules_[s.rule];
  if (rule.exact) return count;
  // A token of n bytes adds at most n to the count.
  const uint64_t missing = std::min(rule.least > count ? rule.least - count : 0, longest + 1);
  const uint64_t left = std::min(rule.most == kNoBound ? kNoBound : rule.most - count, longest + 1);
  return missing << 32 | left;
}

size_t Automaton::bytes() const {
  return states_.size() * sizeof(State) + edges_.size() * sizeof(Edge) + calls_.size() * sizeof(Call) +
         tokens_.size() * sizeof(TokenEdge) + rows_.size() * sizeof(uint16_t) +
         guards_.size() * sizeof(Guard) + lists_.size() * sizeof(uint32_t);
}

uint32_t Builder::AddRule() {
  a_.rules_.emplace_back();
  return static_cast<uint32_t>(a_.rules_.size() - 1);
}

uint32_t Builder::AddState(uint32_t rule) {
  if (full()) return 0;
  states_.emplace_back().rule = rule;
  return static_cast<uint32_t>(states_.size() - 1);
}

void Builder::AddEdge(uint32_t from, uint8_t lo, uint8_t hi, uint32_t to, uint32_t guard) {
  if (!full()) states_[from].edges.push_back({lo, hi, guard, to});
}

void Builder::AddByte(uint32_t from, char byte, uint32_t to, uint32_t guard) {
  AddEdge(from, static_cast<uint8_t>(byte), static_cast<uint8_t>(byte), to, guard);
}

void Builder::AddCall(uint32_t from, uint32_t rule, uint32_t to, uint32_t guard) {
  if (!full()) states_[from].calls.push_back({rule, guard, to});
}

void Builder::AddToken(uint32_t from, int32_t token, uint32_t to, uint32_t guard) {
  if (!full()) states_[from].tokens.push_back({token, guard, to});
}

void Builder::SetEnd(uint32_t state, uint32_t guard) {
  if (!full()) states_[state].end = guard;
}

uint32_t Builder::AddText(uint32_t from, std::string_view text) {
  for (const char c : text) {
    if (full()) return 0;
    const uint32_t to = AddState(states_[from].rule);
    AddByte(from, c, to);
    from = to;
  }
  return from;
}

uint32_t Builder::AddGuard(const Guard& guard) {
  if (a_.guards_.empty()) a_.guards_.emplace_back();  // kNoGuard
  if (guard == a_.guards_.back()) return static_cast<uint32_t>(a_.guards_.size() - 1);
  a_.guards_.push_back(guard);
  return static_cast<uint32_t>(a_.guards_.size() - 1);
}

uint32_t Builder::AddObject(const std::vector<bool>& required, bool additional) {
  auto& object = a_.objects_.emplace_back();
  object.additional = additional;
  auto next = static_cast<uint32_t>(required.size());
  object.next_required.assign(required.size() + 1, next);
  for (uint32_t i = next; i-- > 0;) {
    if (required[i]) next = i;
    object.next_required[i] = next;
  }
  return static_cast<uint32_t>(a_.objects_.size() - 1);
}

uint32_t Builder::AddList(const std::vector<uint32_t>& properties) {
  const auto at = static_cast<uint32_t>(a_.lists_.size());
  a_.lists_.push_back(static_cast<uint32_t>(properties.size()));
  a_.lists_.insert(a_.lists_.end(), properties.begin(), properties.end());
  return at;
}

Result<Automaton> Builder::Finish(uint32_t root) && {
  if (full()) {
    return Status(Code::kUnsupported,
                  fmt::format("the schema is too large: it needs {} states or more", max_states_));
  }
  if (a_.guards_.empty()) a_.guards_.emplace_back();
  a_.states_.reserve(states_.size());
  for (Draft& draft : states_) {
    if (std::max({draft.edges.size(), draft.calls.size(), draft.tokens.size()}) > kMostPerState)
      return Status(Code::kUnsupported,
                    fmt::format("the schema is too large: more than {} ways from one place", kMostPerState));
    auto& s = a_.states_.emplace_back();
    std::sort(draft.edges.begin(), draft.edges.end(),
              [](const Edge& a, const Edge& b) { return a.lo < b.lo; });
    s.edges = static_cast<uint32_t>(a_.edges_.size());
    s.calls = static_cast<uint32_t>(a_.calls_.size());
    s.tokens = static_cast<uint32_t>(a_.tokens_.size());
    s.n_edges = static_cast<uint16_t>(draft.edges.size());
    s.n_calls = static_cast<uint16_t>(draft.calls.size());
    s.n_tokens = static_cast<uint16_t>(draft.tokens.size());
    s.end = draft.end;
    s.rule = draft.rule;
    if (draft.edges.size() > kFewEdges && a_.rows_.size() < kMostRows * 256) {
      s.row = static_cast<int32_t>(a_.rows_.size() / 256);
      a_.rows_.resize(a_.rows_.size() + 256, Automaton::kNoEdge);
      uint16_t* const row = &a_.rows_[static_cast<size_t>(s.row) * 256];
      for (size_t i = 0; i < draft.edges.size(); ++i)
        std::fill(row + draft.edges[i].lo, row + draft.edges[i].hi + 1, static_cast<uint16_t>(i));
    }
    a_.edges_.insert(a_.edges_.end(), draft.edges.begin(), draft.edges.end());
    a_.calls_.insert(a_.calls_.end(), draft.calls.begin(), draft.calls.end());
    a_.tokens_.insert(a_.tokens_.end(), draft.tokens.begin(), draft.tokens.end());
    draft = {};
  }
  a_.root_ = root;
  // What one state leads to without a byte must stay a set that can be looked at as a whole.
  for (const auto& s : a_.states_) {
    size_t met = 0;
    std::vector<const Automaton::State*> todo = {&s};
    std::vector<bool> seen;
    while (!todo.empty() && met <= kMostAtOnce) {
      const auto* const at = todo.back();
      todo.pop_back();
      met += at->n_calls;
      for (const Call& call : a_.Calls(*at)) {
        const auto* const start = &a_.states_[a_.rules_[call.rule].start];
        if (start->n_calls == 0) continue;
        if (seen.empty()) seen.resize(a_.rules_.size());
        if (call.to == kTail && seen[call.rule]) continue;
        seen[call.rule] = true;
        todo.push_back(start);
      }
    }
    if (met > kMostAtOnce) {
      return Status(
          Code::kUnsupported,
          fmt::format("the schema is too wide: more than {} alternatives in one place", kMostAtOnce));
    }
  }
  return std::move(a_);
}

}  // namespace glint::grammar
