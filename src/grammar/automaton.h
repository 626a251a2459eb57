// A compiled grammar: rules of states over bytes, that call each other. A pushdown automaton whose byte steps are deterministic inside a rule;
// where it has a choice, it is between calls.
//
// A running rule has one number of its own, its *count*: characters of a string, elements of an array, the next property of an object. Edges
// may ask and change it (their guard), so that maxLength or a hundred optional properties cost no states.
//
// Every state that can be reached, guards included, can be completed: who builds an automaton sees to it (emit.cc). So what has a next
// byte is never a dead end, and with a token for every byte there always is a token.
#pragma once
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "glint/status.h"

namespace glint::grammar {

struct Guard {
  enum class Kind : uint8_t {
    kNone,
    kCount,       // count < a, and one more from then on
    kBelow,       // count < a
    kAtLeast,     // count >= a
    kKeys,        // object a: one of the list of properties at b may come now
    kKey,         // object a: property b may come now; from then on those after it
    kDone,        // object a: no property is missing
    kMore,        // object a: some property may still come
    kAdditional,  // object a: none is missing; from then on none of the declared
  };
  Kind kind = Kind::kNone;
  uint32_t a = 0, b = 0;
  friend bool operator==(const Guard&, const Guard&) = default;
};

constexpr uint32_t kNoGuard = 0;  // index of a Guard of kind kNone
constexpr uint32_t kNoEnd =
    std::numeric_limits<uint32_t>::max();  // as a state's end: the rule can't end here
constexpr uint32_t kTail =
    std::numeric_limits<uint32_t>::max();  // as a call's return: where the caller returns to
constexpr uint32_t kNoBound = std::numeric_limits<uint32_t>::max();  // of counts

// On a byte from lo to hi.
struct Edge {
  uint8_t lo = 0, hi = 0;
  uint32_t guard = kNoGuard;
  uint32_t to = 0;
};
// Into another rule, and on in state `to` of this one when it ends.
struct Call {
  uint32_t rule = 0;
  uint32_t guard = kNoGuard;
  uint32_t to = kTail;
};
// On one token as a whole; for marks that are no text.
struct TokenEdge {
  int32_t token = -1;
  uint32_t guard = kNoGuard;
  uint32_t to = 0;
};

struct Rule {
  uint32_t start = 0;
  // What the count can be compared with: counts that differ only beyond what one token reaches allow the same tokens.
  uint32_t least = 0, most = kNoBound;
  bool exact = false;  // counts are all different (objects)
};

class Automaton {
 public:
  struct State {
    uint32_t edges = 0, calls = 0, tokens = 0;  // the first of each
    uint16_t n_edges = 0, n_calls = 0, n_tokens = 0;
    int32_t row = -1;       // of rows_, if it has many edges
    uint32_t end = kNoEnd;  // the guard under which the rule may end here
    uint32_t rule = 0;
    bool plain() const { return n_calls == 0 && end == kNoEnd; }
  };

  const State& state(uint32_t s) const { return states_[s]; }
  const Rule& rule(uint32_t r) const { return rules_[r]; }
  size_t states() const { return states_.size(); }
  uint32_t root() const { return root_; }  // the rule that the whole text is

  // The edge for a byte, or null. Its guard is not looked at.
  const Edge* Find(const State& s, uint8_t byte) const {
    if (s.row >= 0) {
      const uint16_t at = rows_[static_cast<size_t>(s.row) * 256 + byte];
      return at == kNoEdge ? nullptr : &edges_[s.edges + at];
    }
    for (const Edge *e = edges_.data() + s.edges, *end = e + s.n_edges; e != end; ++e) {
      if (byte >= e->lo && byte <= e->hi) return e;
    }
    return nullptr;
  }
  std::span<const Edge> Edges(const State& s) const { return std::span(edges_).subspan(s.edges, s.n_edges); }
  std::span<const Call> Calls(const State& s) const { return std::span(calls_).subspan(s.calls, s.n_calls); }
  std::span<const TokenEdge> Tokens(const State& s) const {
    return std::span(tokens_).subspan(s.tokens, s.n_tokens);
  }
  // Whether the guard holds; it may change the count.
  bool Pass(uint32_t guard, uint32_t& count) const {
    if (guard == kNoGuard) return true;
    const Guard& g = guards_[guard];
    if (g.kind != Guard::Kind::kCount) return PassGuard(g, count);
    return count < g.a && ++count > 0;
  }
  // One number for all counts of a rule that allow the same tokens of at most `longest` bytes.
  uint64_t CountKey(const State& s, uint32_t count, uint32_t longest) const;
  size_t bytes() const;  // of memory

 private:
  friend class Builder;
  static constexpr uint16_t kNoEdge = std::numeric_limits<uint16_t>::max();
  // The properties of an object by index. next_required[i]: the first required one at or after i, or their number.
  struct Object {
    std::vector<uint32_t> next_required;  // [properties + 1]
    bool additional = false;
  };
  bool PassGuard(const Guard& guard, uint32_t& count) const;

  std::vector<State> states_;
  std::vector<Edge> edges_;
  std::vector<Call> calls_;
  std::vector<TokenEdge> tokens_;
  std::vector<uint16_t> rows_;  // [rows][256]: of a state's edges the one for the byte
  std::vector<Guard> guards_;
  std::vector<Rule> rules_;
  std::vector<Object> objects_;
  std::vector<uint32_t> lists_;  // of properties: length, then rising indices
  uint32_t root_ = 0;
};

// Makes one, state by state. Past the limit of states nothing is added any more and Finish fails: callers need not look earlier.
class Builder {
 public:
  explicit Builder(size_t max_states) : max_states_(max_states) {}

  uint32_t AddRule();  // its start state is set later
  void SetRule(uint32_t rule, const Rule& r) { a_.rules_[rule] = r; }
  uint32_t AddState(uint32_t rule);
  // Byte edges of a state must not overlap.
  void AddEdge(uint32_t from, uint8_t lo, uint8_t hi, uint32_t to, uint32_t guard = kNoGuard);
  void AddByte(uint32_t from, char byte, uint32_t to, uint32_t guard = kNoGuard);
  void AddCall(uint32_t from, uint32_t rule, uint32_t to, uint32_t guard = kNoGuard);
  void AddToken(uint32_t from, int32_t token, uint32_t to, uint32_t guard = kNoGuard);
  void SetEnd(uint32_t state, uint32_t guard = kNoGuard);
  // A chain of bytes; returns its last state.
  uint32_t AddText(uint32_t from, std::string_view text);
  uint32_t AddGuard(const Guard& guard);
  uint32_t AddObject(const std::vector<bool>& required, bool additional);
  uint32_t AddList(const std::vector<uint32_t>& properties);

  uint32_t RuleOf(uint32_t state) const { return states_[state].rule; }
  bool full() const { return states_.size() >= max_states_; }
  size_t states() const { return states_.size(); }
  // kUnsupported if it was too large.
  Result<Automaton> Finish(uint32_t root) &&;

 private:
  struct Draft {
    std::vector<Edge> edges;
    std::vector<Call> calls;
    std::vector<TokenEdge> tokens;
    uint32_t end = kNoEnd;
    uint32_t rule = 0;
  };
  Automaton a_;
  std::vector<Draft> states_;
  size_t max_states_;
};

}  // namespace glint::grammar
