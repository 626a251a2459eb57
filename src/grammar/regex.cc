#include "grammar/regex.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/printable.h"

namespace glint::grammar {
namespace {

// Two more characters, before and after every text: ^ and $ are found as these.
constexpr char32_t kBegin = kLastChar + 1, kEnd = kLastChar + 2;
// Code points that are no characters: no text has them.
constexpr char32_t kSurrogates = 0xd800, kSurrogatesEnd = 0xe000;
constexpr uint32_t kMany = 0xffffffff;
constexpr uint32_t kMostRepeats = 10'000;

struct Range {
  char32_t lo, hi;
};
using Ranges = std::vector<Range>;

Ranges Normalized(Ranges r) {
  std::sort(r.begin(), r.end(), [](const Range& a, const Range& b) { return a.lo < b.lo; });
  Ranges out;
  for (const Range& x : r) {
    if (!out.empty() && x.lo <= out.back().hi + 1)
      out.back().hi = std::max(out.back().hi, x.hi);
    else
      out.push_back(x);
  }
  return out;
}

Ranges Complement(Ranges r) {
  Ranges out;
  char32_t from = 0;
  for (const Range& x : Normalized(std::move(r))) {
    if (x.lo > from) out.push_back({from, x.lo - 1});
    from = x.hi + 1;
  }
  if (from <= kLastChar) out.push_back({from, kLastChar});
  return out;
}

const Ranges& Digits() {
  static const Ranges r = {{'0', '9'}};
  return r;
}
const Ranges& WordCharacters() {
  static const Ranges r = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
  return r;
}
const Ranges& Spaces() {  // ECMA-262, WhiteSpace and LineTerminator
  static const Ranges r = {{9, 13},          {' ', ' '},       {0xa0, 0xa0},     {0x1680, 0x1680},
                           {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f},
                           {0x3000, 0x3000}, {0xfeff, 0xfeff}};
  return r;
}
const Ranges& LineEnds() {
  static const Ranges r = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
  return r;
}

struct Node {
  enum class Kind : uint8_t { kSet, kSequence, kEither, kRepeat } kind = Kind::kSequence;
  Ranges set;
  std::vector<std::unique_ptr<Node>> parts;
  uint32_t least = 0, most = 0;
};
using NodePtr = std::unique_ptr<Node>;

class Parser {
 public:
  Parser(std::u32string_view text, const RegexLimits& limits) : text_(text), limits_(limits) {}

  Result<NodePtr> Parse() {
    NodePtr node = Either(0);
    if (status_.ok() && at_ < text_.size()) Bad("an unmatched ')'");
    if (!status_.ok()) return status_;
    return node;
  }

 private:
  bool More() const { return at_ < text_.size(); }
  bool Is(char32_t c) const { return More() && text_[at_] == c; }
  bool Take(char32_t c) { return Is(c) && (++at_, true); }
  bool Failed() const { return !status_.ok(); }
  void Fail(Code code, std::string why) {
    if (status_.ok()) status_ = {code, fmt::format("{} at character {}", why, at_)};
  }
  void Bad(std::string why) { Fail(Code::kBadInput, std::move(why)); }
  void Unsupported(std::string what) { Fail(Code::kUnsupported, std::move(what) + " is not supported,"); }

  NodePtr Either(size_t depth) {
    auto node = std::make_unique<Node>();
    if (depth > limits_.nesting) {
      Fail(Code::kUnsupported, fmt::format("groups nested more than {} deep,", limits_.nesting));
      return node;
    }
    node->kind = Node::Kind::kEither;
    do {
      node->parts.push_back(Sequence(depth));
    } while (!Failed() && Take('|'));
    return node->parts.size() == 1 ? std::move(node->parts[0]) : std::move(node);
  }

  NodePtr Sequence(size_t depth) {
    auto node = std::make_unique<Node>();
    while (!Failed() && More() && !Is('|') && !Is(')')) {
      bool assertion = false;
      NodePtr part = Atom(depth, assertion);
      if (Failed()) break;
      node->parts.push_back(Repeated(std::move(part), assertion));
    }
    return node;
  }

  NodePtr Repeated(NodePtr part, bool assertion) {
    uint32_t least = 0, most = kMany;
    if (Take('*')) {
    } else if (Take('+')) {
      least = 1;
    } else if (Take('?')) {
      most = 1;
    } else if (!Braces(least, most)) {
      return part;
    }
    if (Failed()) return part;
    if (assertion) return Bad("nothing to repeat"), std::move(part);
    Take('?');  // lazy: the same texts
    size_t ignored = at_;
    uint32_t a = 0, b = 0;
    if (Is('*') || Is('+') || Is('?') || Braces(a, b)) {
      at_ = ignored;
      Bad("nothing to repeat");
    }
    auto node = std::make_unique<Node>();
    node->kind = Node::Kind::kRepeat;
    node->least = least, node->most = most;
    node->parts.push_back(std::move(part));
    return node;
  }

  // {n}, {n,}, {n,m}; what only begins like one is text, as browsers have it.
  bool Braces(uint32_t& least, uint32_t& most) {
    if (!Is('{')) return false;
    const size_t start = at_++;
    const auto number = [&](uint32_t& out) {
      size_t digits = 0;
      out = 0;
      for (; More() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_, ++digits)
        out = std::min(out * 10 + static_cast<uint32_t>(text_[at_] - '0'), kMostRepeats + 1);
      return digits > 0;
    };
    bool good = number(least);
    most = least;
    if (good && Take(',') && !number(most)) most = kMany;
    if (!good || !Take('}')) {
      at_ = start;
      return false;
    }
    if (least > kMostRepeats || (most != kMany && most > kMostRepeats))
      Fail(Code::kUnsupported, fmt::format("a repetition of more than {},", kMostRepeats));
    else if (most < least)
      Bad("numbers out of order in {}");
    return true;
  }

  static NodePtr Set(Ranges set) {
    auto node = std::make_unique<Node>();
    node->kind = Node::Kind::kSet;
    node->set = Normalized(std::move(set));
    return node;
  }
  static NodePtr One(char32_t c) { return Set({{c, c}}); }

  NodePtr Atom(size_t depth, bool& assertion) {
    const char32_t c = text_[at_++];
    switch (c) {
      case '^':
      case '$':
        assertion = true;
        return One(c == '^' ? kBegin : kEnd);
      case '.':
        return Set(Complement(LineEnds()));
      case '(':
        return Group(depth);
      case '[':
        return Class();
      case '\\':
        return Escape();
      case '*':
      case '+':
      case '?':
        --at_;
        Bad("nothing to repeat");
        return One(c);
      case '{': {
        uint32_t a = 0, b = 0;
        --at_;
        const bool counts = Braces(a, b);
        if (counts) Bad("nothing to repeat");
        if (!counts) ++at_;
        return One(c);
      }
      default:
        return One(c);
    }
  }

  NodePtr Group(size_t depth) {
    if (Take('?')) {
      if (Take(':')) {
      } else if (Is('<') && at_ + 1 < text_.size() && text_[at_ + 1] != '=' && text_[at_ + 1] != '!') {
        while (More() && !Is('>')) ++at_;
        if (!Take('>')) Bad("a group's name without end");
      } else {
        Unsupported("a group (?... that looks around or sets flags");
      }
    }
    if (Failed()) return One(0);
    NodePtr node = Either(depth + 1);
    if (!Failed() && !Take(')')) Bad("a '(' without its ')'");
    return node;
  }

  char32_t Hex(size_t least, size_t most) {
    char32_t value = 0;
    size_t digits = 0;
    for (; digits < most && More(); ++at_, ++digits) {
      const char32_t c = text_[at_];
      const char32_t d = c >= '0' && c <= '9'   ? c - '0'
                         : c >= 'a' && c <= 'f' ? c - 'a' + 10
                         : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                : 16;
      if (d == 16) break;
      value = value * 16 + d;
    }
    if (digits < least) Bad("an escape without its digits");
    return value;
  }

  // After the backslash. A class (\d) goes to `set`, else the character is returned.
  char32_t EscapeValue(std::optional<Ranges>& set) {
    if (!More()) return Bad("a '\\' at the end"), 0;
    const char32_t c = text_[at_++];
    switch (c) {
      case 'd':
      case 'D':
        set = c == 'd' ? Digits() : Complement(Digits());
        return 0;
      case 'w':
      case 'W':
        set = c == 'w' ? WordCharacters() : Complement(WordCharacters());
        return 0;
      case 's':
      case 'S':
        set = c == 's' ? Spaces() : Complement(Spaces());
        return 0;
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'f':
        return '\f';
      case 'v':
        return '\v';
      case 'x':
        return Hex(2, 2);
      case 'u': {
        if (Take('{')) {
          const char32_t value = Hex(1, 6);
          if (!Take('}') || value > kLastChar) Bad("a bad \\u{...}");
          return value;
        }
        const char32_t high = Hex(4, 4);
        if (high >= 0xd800 && high < 0xdc00 && at_ + 1 < text_.size() && Is('\\') && text_[at_ + 1] == 'u') {
          const size_t before = at_;
          at_ += 2;
          const char32_t low = Hex(4, 4);
          if (low >= 0xdc00 && low < 0xe000) return 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
          at_ = before;
        }
        return high;
      }
      case 'c':
        if (More() && ((text_[at_] | 32) >= 'a' && (text_[at_] | 32) <= 'z')) return text_[at_++] & 31;
        return Bad("\\c without a letter"), 0;
      case '0':
        if (More() && text_[at_] >= '0' && text_[at_] <= '9') Unsupported("an octal escape");
        return 0;
      default:
        if (c >= '1' && c <= '9') return Unsupported("a back reference"), 0;
        if (c == 'k') return Unsupported("a back reference"), 0;
        if (c == 'p' || c == 'P') return Unsupported("\\p"), 0;
        if ((c | 32) >= 'a' && (c | 32) <= 'z' && c < 128)
          return Unsupported(fmt::format("the escape \\{}", static_cast<char>(c))), 0;
        return c;
    }
  }

  NodePtr Escape() {
    if (Is('b') || Is('B')) return Unsupported("\\b"), One(0);
    std::optional<Ranges> set;
    const char32_t c = EscapeValue(set);
    return set ? Set(*std::move(set)) : One(c);
  }

  NodePtr Class() {
    const bool negated = Take('^');
    Ranges set;
    bool closed = false;
    while (!Failed() && More()) {
      if (Take(']')) {
        closed = true;
        break;
      }
      std::optional<Ranges> lo_set, hi_set;
      const char32_t lo = ClassAtom(lo_set);
      if (Is('-') && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        const char32_t hi = ClassAtom(hi_set);
        if (lo_set || hi_set) {
          Bad("a range with a class as its end");
        } else if (hi < lo) {
          Bad("a range out of order");
        } else {
          set.push_back({lo, hi});
        }
      } else if (lo_set) {
        set.insert(set.end(), lo_set->begin(), lo_set->end());
      } else {
        set.push_back({lo, lo});
      }
    }
    if (!closed) Bad("a '[' without its ']'");
    return Set(negated ? Complement(std::move(set)) : std::move(set));
  }

  char32_t ClassAtom(std::optional<Ranges>& set) {
    const char32_t c = text_[at_++];
    if (c != '\\') return c;
    if (Take('b')) return '\b';
    if (Take('-')) return '-';
    return EscapeValue(set);
  }

  std::u32string_view text_;
  const RegexLimits& limits_;
  size_t at_ = 0;
  Status status_;
};

// Thompson's construction: each part has one way in and one way out.
class Nfa {
 public:
  struct State {
    Ranges set;
    uint32_t to = 0;                // over `set`
    std::vector<uint32_t> instead;  // without a character
  };
  std::vector<State> states;
  size_t limit = 0;

  bool full() const { return states.size() > limit; }
  uint32_t Add() {
    states.emplace_back();
    return static_cast<uint32_t>(states.size() - 1);
  }
  void Jump(uint32_t from, uint32_t to) { states[from].instead.push_back(to); }

  // From `in`; returns the way out.
  uint32_t Build(const Node& node, uint32_t in) {
    if (full()) return in;
    switch (node.kind) {
      case Node::Kind::kSet: {
        const uint32_t out = Add();
        const uint32_t step = Add();
        states[step].set = node.set;
        states[step].to = out;
        Jump(in, step);
        return out;
      }
      case Node::Kind::kSequence:
        for (const auto& part : node.parts) in = Build(*part, in);
        return in;
      case Node::Kind::kEither: {
        const uint32_t out = Add();
        for (const auto& part : node.parts) {
          const uint32_t way = Add();
          Jump(in, way);
          Jump(Build(*part, way), out);
        }
        return out;
      }
      case Node::Kind::kRepeat: {
        const Node& part = *node.parts[0];
        for (uint32_t i = 0; i < node.least && !full(); ++i) in = Build(part, Step(in));
        if (node.most == kMany) {
          const uint32_t loop = Step(in);
          Jump(Build(part, loop), loop);
          return Step(loop);
        }
        const uint32_t out = Add();
        for (uint32_t i = node.least; i < node.most && !full(); ++i) {
          Jump(in, out);
          in = Build(part, Step(in));
        }
        Jump(in, out);
        return out;
      }
    }
    return in;
  }

 private:
  uint32_t Step(uint32_t from) {
    const uint32_t to = Add();
    Jump(from, to);
    return to;
  }
};

using Set = std::vector<uint32_t>;  // of states, rising

class Determinizer {
 public:
  Determinizer(const Nfa& nfa, uint32_t accept, const RegexLimits& limits)
      : nfa_(nfa), accept_(accept), limits_(limits), seen_(nfa.states.size()) {}

  Result<CharDfa> Run(uint32_t start) {
    CharDfa out;
    Id(Over(Closed({start}), kBegin));
    for (uint32_t i = 0; i < sets_.size(); ++i) {
      const Set set = sets_[i];
      CharDfa::State state;
      const Set after = Over(set, kEnd);
      state.final = std::binary_search(after.begin(), after.end(), accept_);
      std::vector<char32_t> cuts = {0, kSurrogates, kSurrogatesEnd, kLastChar + 1};
      for (const uint32_t s : set) {
        for (const Range& r : nfa_.states[s].set) {
          if (r.lo > kLastChar) continue;
          cuts.push_back(r.lo);
          cuts.push_back(std::min(r.hi, kLastChar) + 1);
        }
      }
      std::sort(cuts.begin(), cuts.end());
      cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
      work_ += cuts.size() + set.size();
      for (size_t k = 0; k + 1 < cuts.size(); ++k) {
        if (cuts[k] >= kSurrogates && cuts[k] < kSurrogatesEnd) continue;
        Set next = Over(set, cuts[k]);
        if (TooMuch()) {
          return Status(
              Code::kUnsupported,
              fmt::format("the pattern is too complex: its automaton needs more than {} states or {} "
                          "steps to make",
                          limits_.states, limits_.work));
        }
        if (next.empty()) continue;
        const uint32_t to = Id(std::move(next));
        if (!state.edges.empty() && state.edges.back().to == to && state.edges.back().hi + 1 == cuts[k])
          state.edges.back().hi = cuts[k + 1] - 1;
        else
          state.edges.push_back({cuts[k], cuts[k + 1] - 1, to});
      }
      out.states.push_back(std::move(state));
    }
    return Trimmed(std::move(out));
  }

 private:
  bool TooMuch() const { return sets_.size() > limits_.states || work_ > limits_.work; }

  uint32_t Id(Set set) {
    work_ += set.size();
    const auto [at, is_new] = ids_.emplace(std::move(set), static_cast<uint32_t>(sets_.size()));
    if (is_new) sets_.push_back(at->first);
    return at->second;
  }

  Set Closed(Set todo) {
    Set out;
    while (!todo.empty()) {
      const uint32_t s = todo.back();
      todo.pop_back();
      if (seen_[s]) continue;
      seen_[s] = true;
      out.push_back(s);
      work_ += 1 + nfa_.states[s].instead.size();
      todo.insert(todo.end(), nfa_.states[s].instead.begin(), nfa_.states[s].instead.end());
    }
    for (const uint32_t s : out) seen_[s] = false;
    // Only states with a character, and the end, tell sets apart.
    std::erase_if(out, [&](uint32_t s) { return nfa_.states[s].set.empty() && s != accept_; });
    std::sort(out.begin(), out.end());
    return out;
  }

  Set Over(const Set& set, char32_t c) {
    Set next;
    work_ += set.size();
    for (const uint32_t s : set) {
      const Ranges& ranges = nfa_.states[s].set;
      const auto at = std::upper_bound(ranges.begin(), ranges.end(), c,
                                       [](char32_t value, const Range& r) { return value < r.lo; });
      if (at != ranges.begin() && c <= std::prev(at)->hi) next.push_back(nfa_.states[s].to);
    }
    return Closed(std::move(next));
  }

  const Nfa& nfa_;
  const uint32_t accept_;
  const RegexLimits& limits_;
  std::vector<bool> seen_;
  std::map<Set, uint32_t> ids_;
  std::vector<Set> sets_;
  size_t work_ = 0;
};

}  // namespace

Result<CharDfa> CompileRegex(std::string_view pattern, const RegexLimits& limits) {
  const auto named = [&](const Status& status) {
    return Status(status.code(), fmt::format("pattern {}: {}", Quoted(pattern), status.message()));
  };
  if (!ValidUtf8(pattern)) return named({Code::kBadInput, "not UTF-8"});
  const std::u32string text = CodePoints(pattern);
  auto parsed = Parser(text, limits).Parse();
  if (!parsed.ok()) return named(parsed.status());

  // (begin any*)? pattern (any* end)?: the text with its two marks, the pattern found at some place in it.
  Nfa nfa;
  nfa.limit = limits.parts;
  const auto one_mark = [](char32_t mark) {
    Node set;
    set.kind = Node::Kind::kSet;
    set.set = {{mark, mark}};
    return set;
  };
  Node any;
  any.kind = Node::Kind::kSet;
  any.set = {{0, kLastChar}};
  const uint32_t start = nfa.Add();
  const uint32_t in = nfa.Add();
  nfa.Jump(start, in);
  const uint32_t before = nfa.Build(one_mark(kBegin), start);
  nfa.Jump(nfa.Build(any, before), before);
  nfa.Jump(before, in);
  const uint32_t out = nfa.Build(**parsed, in);
  const uint32_t accept = nfa.Add();
  const uint32_t after = nfa.Add();
  nfa.Jump(out, accept);
  nfa.Jump(out, after);
  nfa.Jump(nfa.Build(any, after), after);
  nfa.Jump(nfa.Build(one_mark(kEnd), after), accept);
  if (nfa.full()) {
    return named(
        {Code::kUnsupported,
         fmt::format("too long: more than {} parts with its repetitions written out", limits.parts)});
  }
  auto dfa = Determinizer(nfa, accept, limits).Run(start);
  if (!dfa.ok()) return named(dfa.status());
  return dfa;
}

}  // namespace glint::grammar
