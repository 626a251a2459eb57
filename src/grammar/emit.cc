#include "grammar/emit.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "base/printable.h"

namespace glint::grammar {
namespace {

constexpr uint32_t kMostIndent = 64;  // spaces and tabs after a newline
constexpr uint32_t kMostDigits = 40;
constexpr char32_t kSurrogates = 0xd800, kSurrogatesEnd = 0xe000;

// Characters as bytes: inside a JSON string, or as they are.
enum class Spelling : uint8_t { kJson, kRaw };

struct ByteRange {
  uint8_t lo, hi;
  friend auto operator<=>(const ByteRange&, const ByteRange&) = default;
};
// A set of byte sequences of one length, and the state of the CharDfa that they lead to.
struct Sequence {
  std::vector<ByteRange> bytes;
  uint32_t to;
  friend auto operator<=>(const Sequence&, const Sequence&) = default;
};

size_t Utf8Length(char32_t c) { return c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4; }

void Utf8Bytes(char32_t c, uint8_t* out) {
  const size_t n = Utf8Length(c);
  for (size_t i = n; i-- > 1; c >>= 6) out[i] = static_cast<uint8_t>(0x80 | (c & 0x3f));
  constexpr uint8_t kLead[] = {0, 0, 0xc0, 0xe0, 0xf0};
  out[0] = static_cast<uint8_t>(kLead[n] | c);
}

// [lo, hi] without surrogates, cut so that each piece is a product of byte ranges.
void AddUtf8(char32_t lo, char32_t hi, uint32_t to, std::vector<Sequence>& out) {
  if (lo > hi) return;
  if (lo < kSurrogatesEnd && hi >= kSurrogates) {
    AddUtf8(lo, kSurrogates - 1, to, out);
    AddUtf8(std::max(lo, kSurrogatesEnd), hi, to, out);
    return;
  }
  for (const char32_t last : {0x7fu, 0x7ffu, 0xffffu}) {
    if (lo <= last && hi > last) {
      AddUtf8(lo, last, to, out);
      AddUtf8(last + 1, hi, to, out);
      return;
    }
  }
  // Below a byte that differs, all bytes must take their full range.
  const size_t n = Utf8Length(lo);
  for (size_t i = 1; i < n; ++i) {
    const char32_t low = (char32_t{1} << (6 * i)) - 1;
    if ((lo & ~low) == (hi & ~low)) break;
    if ((lo & low) != 0) {
      AddUtf8(lo, lo | low, to, out);
      AddUtf8((lo | low) + 1, hi, to, out);
      return;
    }
    if ((hi & low) != low) {
      AddUtf8(lo, (hi & ~low) - 1, to, out);
      AddUtf8(hi & ~low, hi, to, out);
      return;
    }
  }
  uint8_t a[4], b[4];
  Utf8Bytes(lo, a);
  Utf8Bytes(hi, b);
  Sequence s{{}, to};
  for (size_t i = 0; i < n; ++i) s.bytes.push_back({a[i], b[i]});
  out.push_back(std::move(s));
}

void AddChars(char32_t lo, char32_t hi, uint32_t to, Spelling spelling, std::vector<Sequence>& out) {
  if (spelling == Spelling::kRaw) return AddUtf8(lo, hi, to, out);
  // The one spelling JSON writers use: short escapes where there are, \u00.. for other controls, all else as it is.
  for (char32_t c = lo; c <= hi && c <= '\\'; ++c) {
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    const std::string escape = JsonText(std::string_view(std::string(1, static_cast<char>(c))));
    Sequence s{{}, to};
    for (size_t i = 1; i + 1 < escape.size(); ++i) {
      const auto byte = static_cast<uint8_t>(escape[i]);
      s.bytes.push_back({byte, byte});
    }
    out.push_back(std::move(s));
  }
  const std::array<std::pair<char32_t, char32_t>, 3> plain = {
      {{0x20, '"' - 1}, {'"' + 1, '\\' - 1}, {'\\' + 1, kLastChar}}};
  for (const auto& [first, last] : plain) AddUtf8(std::max(lo, first), std::min(hi, last), to, out);
}

class Emitter {
 public:
  explicit Emitter(const CompileLimits& limits) : limits_(limits), b_(limits.states) { Common(); }

  const CommonRules& common() const { return common_; }

  Result<Automaton> Json(const Schema& schema) {
    schema_ = &schema;
    const uint32_t root = b_.AddRule();
    const uint32_t start = b_.AddState(root), go = b_.AddState(root);
    b_.SetRule(root, {.start = start});
    for (const uint32_t s : {start, go}) b_.AddCall(s, RuleOf(schema.root, Spelling::kJson), kTail);
    Space(start, go);
    MakePending();
    return std::move(b_).Finish(root);
  }

  Result<Automaton> ToolCalls(const std::vector<ToolRules>& tools, const ToolMarks& marks, uint32_t most) {
    marks_ = marks;
    without_mark_ = Without(marks.end_value_text);
    const uint32_t root = b_.AddRule();
    const uint32_t start = b_.AddState(root), named = b_.AddState(root), end = b_.AddState(root);
    b_.SetRule(root, {.start = start, .most = most});
    b_.AddToken(start, marks.call, named);
    for (const ToolRules& tool : tools) {
      if (tool.arguments->nodes[tool.arguments->root].kind != Node::Kind::kObject) {
        return Status(Code::kUnsupported,
                      fmt::format("tool {}: its parameters must be one object", Quoted(tool.name)));
      }
      schema_ = tool.arguments;
      rules_.clear();
      b_.AddCall(named, Tool(tool), end);
      MakePending();
      if (b_.full()) break;
    }
    b_.SetEnd(end);
    const uint32_t more = b_.AddGuard({Guard::Kind::kCount, most - 1, 0});
    if (most > 1) b_.AddToken(end, marks.call, named, more);
    return std::move(b_).Finish(root);
  }

 private:
  struct Pending {
    uint32_t node, rule;
    Spelling spelling;
  };

  void Start(uint32_t rule, uint32_t state) { b_.SetRule(rule, {.start = state}); }

  // --- Rules that need no schema.

  void Common() {
    common_.newline = b_.AddRule();
    {
      const uint32_t start = b_.AddState(common_.newline), indent = b_.AddState(common_.newline);
      b_.SetRule(common_.newline, {.start = start, .most = kMostIndent});
      const uint32_t count = b_.AddGuard({Guard::Kind::kCount, kMostIndent, 0});
      b_.AddByte(start, '\n', indent);
      b_.AddByte(indent, ' ', indent, count);
      b_.AddByte(indent, '\t', indent, count);
      b_.SetEnd(indent);
    }
    common_.string = PlainString(0, kNoBound);
    common_.number = Number(true);
    common_.integer = Number(false);
    common_.null = Texts({"null"});
    common_.boolean = Texts({"false", "true"});
    common_.object = b_.AddRule();
    common_.array = b_.AddRule();
    common_.value = b_.AddRule();
    {
      const uint32_t rule = common_.value, start = b_.AddState(rule);
      Start(rule, start);
      for (const uint32_t r :
           {common_.string, common_.number, common_.null, common_.boolean, common_.object, common_.array})
        b_.AddCall(start, r, kTail);
    }
    {
      const uint32_t rule = common_.object;
      const uint32_t start = b_.AddState(rule), open = b_.AddState(rule), key = b_.AddState(rule);
      const uint32_t colon = b_.AddState(rule), after = b_.AddState(rule), comma = b_.AddState(rule);
      const uint32_t end = b_.AddState(rule);
      Start(rule, start);
      b_.AddByte(start, '{', open);
      const uint32_t opened = b_.AddState(rule);
      Space(open, opened);
      for (const uint32_t s : {open, opened}) b_.AddByte(s, '}', end);
      const uint32_t next = b_.AddState(rule);
      Space(comma, next);
      for (const uint32_t s : {open, opened, comma, next}) b_.AddCall(s, common_.string, colon);
      b_.AddByte(colon, ':', key);
      Value(key, common_.value, after);
      b_.AddByte(after, ',', comma);
      Close(after, '}', end);
    }
    {
      const uint32_t rule = common_.array;
      const uint32_t start = b_.AddState(rule), open = b_.AddState(rule), opened = b_.AddState(rule);
      const uint32_t after = b_.AddState(rule), comma = b_.AddState(rule), next = b_.AddState(rule);
      const uint32_t end = b_.AddState(rule);
      Start(rule, start);
      b_.AddByte(start, '[', open);
      Space(open, opened);
      for (const uint32_t s : {open, opened}) b_.AddByte(s, ']', end);
      Space(comma, next);
      for (const uint32_t s : {open, opened, comma, next}) b_.AddCall(s, common_.value, after);
      b_.AddByte(after, ',', comma);
      Close(after, ']', end);
    }
    common_.states = static_cast<uint32_t>(b_.states());
  }

  // White space from `from` to `to`: a space, or a new line with what indents it. `to` itself must be able to do without more.
  void Space(uint32_t from, uint32_t to, uint32_t guard = kNoGuard) {
    b_.AddByte(from, ' ', to, guard);
    b_.AddCall(from, common_.newline, to, guard);
  }

  // A value after a colon: at once, or after a space.
  void Value(uint32_t from, uint32_t rule, uint32_t after) {
    const uint32_t rule_of = RuleOfState(from), spaced = b_.AddState(rule_of);
    b_.AddByte(from, ' ', spaced);
    for (const uint32_t s : {from, spaced}) b_.AddCall(s, rule, after);
  }

  // The bracket that closes, at once or after white space.
  void Close(uint32_t from, char bracket, uint32_t end, uint32_t guard = kNoGuard) {
    const uint32_t spaced = b_.AddState(RuleOfState(from));
    Space(from, spaced, guard);
    for (const uint32_t s : {from, spaced}) b_.AddByte(s, bracket, end, guard);
    b_.SetEnd(end);
  }

  uint32_t RuleOfState(uint32_t state) const { return b_.RuleOf(state); }

  // With all of JSON's escapes; a character outside the BMP may be written as two of them.
  uint32_t PlainString(uint32_t least, uint32_t most) {
    const bool counted = least > 0 || most != kNoBound;
    const uint32_t rule = b_.AddRule();
    const uint32_t start = b_.AddState(rule), body = b_.AddState(rule), end = b_.AddState(rule);
    b_.SetRule(rule, {.start = start, .least = least, .most = most});
    const uint32_t one = most != kNoBound ? b_.AddGuard({Guard::Kind::kCount, most, 0})
                         : counted        ? b_.AddGuard({Guard::Kind::kCount, kNoBound, 0})
                                          : kNoGuard;
    const uint32_t below = most != kNoBound ? b_.AddGuard({Guard::Kind::kBelow, most, 0}) : kNoGuard;
    const uint32_t enough = least > 0 ? b_.AddGuard({Guard::Kind::kAtLeast, least, 0}) : kNoGuard;
    b_.AddByte(start, '"', body);
    b_.AddByte(body, '"', end, enough);
    b_.SetEnd(end);
    b_.AddEdge(body, 0x20, '"' - 1, body, one);
    b_.AddEdge(body, '"' + 1, '\\' - 1, body, one);
    b_.AddEdge(body, '\\' + 1, 0x7f, body, one);
    // UTF-8 (Unicode, table 3-7): the first byte says how many follow, and the second may be restricted.
    std::array<uint32_t, 4> more = {body};
    for (size_t i = 1; i <= 3; ++i) {
      more[i] = b_.AddState(rule);
      b_.AddEdge(more[i], 0x80, 0xbf, more[i - 1], i == 1 ? one : kNoGuard);
    }
    const auto lead = [&](uint8_t lo, uint8_t hi, uint8_t second_lo, uint8_t second_hi, size_t following) {
      uint32_t to = more[following];
      if (second_lo != 0x80 || second_hi != 0xbf) {
        to = b_.AddState(rule);
        b_.AddEdge(to, second_lo, second_hi, more[following - 1]);
      }
      b_.AddEdge(body, lo, hi, to, below);
    };
    lead(0xc2, 0xdf, 0x80, 0xbf, 1);
    lead(0xe0, 0xe0, 0xa0, 0xbf, 2);
    lead(0xe1, 0xec, 0x80, 0xbf, 2);
    lead(0xed, 0xed, 0x80, 0x9f, 2);
    lead(0xee, 0xef, 0x80, 0xbf, 2);
    lead(0xf0, 0xf0, 0x90, 0xbf, 3);
    lead(0xf1, 0xf3, 0x80, 0xbf, 3);
    lead(0xf4, 0xf4, 0x80, 0x8f, 3);
    // Escapes.
    const uint32_t escape = b_.AddState(rule), unicode = b_.AddState(rule);
    b_.AddByte(body, '\\', escape, below);
    for (const char c : {'"', '\\', '/', 'b', 'f', 'n', 'r', 't'}) b_.AddByte(escape, c, body, one);
    b_.AddByte(escape, 'u', unicode);
    const auto hex = [&](uint32_t from, uint32_t to, uint32_t guard = kNoGuard) {
      b_.AddEdge(from, '0', '9', to, guard);
      b_.AddEdge(from, 'A', 'F', to, guard);
      b_.AddEdge(from, 'a', 'f', to, guard);
    };
    std::array<uint32_t, 3> digits;
    for (auto& d : digits) d = b_.AddState(rule);
    hex(digits[0], digits[1]), hex(digits[1], digits[2]), hex(digits[2], body, one);
    b_.AddEdge(unicode, '0', '9', digits[0]);
    for (const char base : {'a', 'A'}) {
      const auto at = [&](char c) { return static_cast<uint8_t>(base + (c - 'a')); };
      b_.AddEdge(unicode, at('a'), at('c'), digits[0]);
      b_.AddEdge(unicode, at('e'), at('f'), digits[0]);
    }
    // \ud800 to \udbff, and then \udc00 to \udfff.
    std::array<uint32_t, 8> pair;
    for (auto& p : pair) p = b_.AddState(rule);
    b_.AddByte(unicode, 'd', pair[0]), b_.AddByte(unicode, 'D', pair[0]);
    b_.AddEdge(pair[0], '0', '7', digits[1]);
    b_.AddEdge(pair[0], '8', '9', pair[1]), b_.AddEdge(pair[0], 'a', 'b', pair[1]),
        b_.AddEdge(pair[0], 'A', 'B', pair[1]);
    hex(pair[1], pair[2]), hex(pair[2], pair[3]);
    b_.AddByte(pair[3], '\\', pair[4]);
    b_.AddByte(pair[4], 'u', pair[5]);
    b_.AddByte(pair[5], 'd', pair[6]), b_.AddByte(pair[5], 'D', pair[6]);
    b_.AddEdge(pair[6], 'c', 'f', digits[1]), b_.AddEdge(pair[6], 'C', 'F', digits[1]);
    return rule;
  }

  uint32_t Number(bool fraction) {
    const uint32_t rule = b_.AddRule();
    const uint32_t start = b_.AddState(rule), minus = b_.AddState(rule), zero = b_.AddState(rule),
                   whole = b_.AddState(rule);
    b_.SetRule(rule, {.start = start, .most = kMostDigits});
    const uint32_t one = b_.AddGuard({Guard::Kind::kCount, kMostDigits, 0});
    const uint32_t below = b_.AddGuard({Guard::Kind::kBelow, kMostDigits, 0});
    b_.AddByte(start, '-', minus);
    b_.AddByte(start, '0', zero);
    for (const uint32_t s : {start, minus}) b_.AddEdge(s, '1', '9', whole, one);
    b_.AddEdge(whole, '0', '9', whole, one);
    b_.SetEnd(zero);
    b_.SetEnd(whole);
    if (!fraction) return rule;
    b_.AddByte(minus, '0', zero);
    const uint32_t point = b_.AddState(rule), digits = b_.AddState(rule), e = b_.AddState(rule);
    const uint32_t sign = b_.AddState(rule), first = b_.AddState(rule), last = b_.AddState(rule);
    for (const uint32_t s : {zero, whole}) b_.AddByte(s, '.', point, below);
    for (const uint32_t s : {point, digits}) b_.AddEdge(s, '0', '9', digits, one);
    b_.SetEnd(digits);
    for (const uint32_t s : {zero, whole, digits}) b_.AddByte(s, 'e', e), b_.AddByte(s, 'E', e);
    b_.AddByte(e, '+', sign), b_.AddByte(e, '-', sign);
    for (const uint32_t s : {e, sign}) b_.AddEdge(s, '0', '9', first);
    b_.AddEdge(first, '0', '9', last);
    b_.SetEnd(first);
    b_.SetEnd(last);
    return rule;
  }

  // One of some texts.
  uint32_t Texts(const std::vector<std::string>& texts) {
    const uint32_t rule = b_.AddRule(), start = b_.AddState(rule);
    Start(rule, start);
    std::map<std::pair<uint32_t, char>, uint32_t> next;
    for (const auto& text : texts) {
      uint32_t at = start;
      for (const char c : text) {
        if (b_.full()) return rule;
        const auto [edge, is_new] = next.try_emplace({at, c}, 0);
        if (is_new) {
          edge->second = b_.AddState(rule);
          b_.AddByte(at, c, edge->second);
        }
        at = edge->second;
      }
      b_.SetEnd(at);
    }
    return rule;
  }

  // Characters of a CharDfa, between quotes or not. least and most only for one that is Unbounded().
  uint32_t Characters(const CharDfa& dfa, Spelling spelling, uint32_t least = 0, uint32_t most = kNoBound) {
    const uint32_t rule = b_.AddRule();
    const bool counted = least > 0 || most != kNoBound;
    const uint32_t one = counted ? b_.AddGuard({Guard::Kind::kCount, most, 0}) : kNoGuard;
    const uint32_t below = counted ? b_.AddGuard({Guard::Kind::kBelow, most, 0}) : kNoGuard;
    const uint32_t enough = least > 0 ? b_.AddGuard({Guard::Kind::kAtLeast, least, 0}) : kNoGuard;
    const uint32_t start = b_.AddState(rule);
    std::vector<uint32_t> ids;
    for (size_t i = 0; i < dfa.states.size(); ++i)
      ids.push_back(spelling == Spelling::kRaw && i == 0 ? start : b_.AddState(rule));
    b_.SetRule(rule, {.start = start, .least = least, .most = most});
    uint32_t end = start;
    if (spelling == Spelling::kJson) {
      end = b_.AddState(rule);
      b_.AddByte(start, '"', ids[0]);
      b_.SetEnd(end);
    }
    std::map<std::vector<Sequence>, uint32_t> between;
    std::vector<std::pair<std::vector<Sequence>, uint32_t>> todo;
    for (size_t i = 0; i < dfa.states.size() && !b_.full(); ++i) {
      const auto& state = dfa.states[i];
      if (state.final && spelling == Spelling::kRaw) b_.SetEnd(ids[i], enough);
      if (state.final && spelling == Spelling::kJson) b_.AddByte(ids[i], '"', end, enough);
      std::vector<Sequence> all;
      for (const auto& e : state.edges) AddChars(e.lo, e.hi, e.to, spelling, all);
      todo.emplace_back(std::move(all), ids[i]);
      while (!todo.empty() && !b_.full()) {
        const std::vector<Sequence> sequences = std::move(todo.back().first);
        const uint32_t from = todo.back().second;
        todo.pop_back();
        const bool first = from == ids[i];
        std::vector<uint32_t> cuts;
        for (const Sequence& s : sequences) cuts.push_back(s.bytes[0].lo), cuts.push_back(s.bytes[0].hi + 1u);
        std::sort(cuts.begin(), cuts.end());
        cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
        // Edges of neighbouring ranges to the same place become one.
        std::optional<Edge> last;
        const auto flush = [&] {
          if (last) b_.AddEdge(from, last->lo, last->hi, last->to, last->guard);
          last.reset();
        };
        for (size_t k = 0; k + 1 < cuts.size(); ++k) {
          std::vector<Sequence> rest;
          for (const Sequence& s : sequences) {
            if (s.bytes[0].lo <= cuts[k] && cuts[k] <= s.bytes[0].hi)
              rest.push_back({{s.bytes.begin() + 1, s.bytes.end()}, s.to});
          }
          if (rest.empty()) continue;
          Edge edge{static_cast<uint8_t>(cuts[k]), static_cast<uint8_t>(cuts[k + 1] - 1),
                    first ? below : kNoGuard, 0};
          if (rest[0].bytes.empty()) {
            edge.to = ids[rest[0].to];
            edge.guard = one;
          } else {
            const auto [at, is_new] = between.try_emplace(rest, 0);
            if (is_new) {
              at->second = b_.AddState(rule);
              todo.emplace_back(rest, at->second);
            }
            edge.to = at->second;
          }
          if (last && last->to == edge.to && last->guard == edge.guard && last->hi + 1 == edge.lo) {
            last->hi = edge.hi;
          } else {
            flush();
            last = edge;
          }
        }
        flush();
      }
    }
    return rule;
  }

  // --- Rules of the schema's nodes.

  uint32_t RuleOf(uint32_t node, Spelling spelling) {
    const Node& n = schema_->nodes[node];
    if (spelling == Spelling::kJson) {
      switch (n.kind) {
        case Node::Kind::kAny:
          return common_.value;
        case Node::Kind::kNull:
          return common_.null;
        case Node::Kind::kBool:
          return common_.boolean;
        case Node::Kind::kNumber:
          return common_.number;
        case Node::Kind::kInteger:
          return common_.integer;
        case Node::Kind::kString:
          if (n.least == 0 && n.most == kNoBound) return common_.string;
          break;
        case Node::Kind::kObject:
          if (n.properties.empty() && n.banned.empty() && n.has_rest &&
              schema_->nodes[n.rest].kind == Node::Kind::kAny)
            return common_.object;
          break;
        default:
          break;
      }
    } else if (n.kind != Node::Kind::kAny && n.kind != Node::Kind::kString && n.kind != Node::Kind::kText &&
               n.kind != Node::Kind::kLiterals && n.kind != Node::Kind::kEither) {
      return RuleOf(node, Spelling::kJson);
    }
    const auto [at, is_new] = rules_.try_emplace({node, spelling}, 0);
    if (is_new) {
      at->second = b_.AddRule();
      pending_.push_back({node, at->second, spelling});
    }
    return at->second;
  }

  // `rule` is what another rule is; both must exist.
  void Alias(uint32_t rule, uint32_t other) {
    const uint32_t start = b_.AddState(rule);
    Start(rule, start);
    b_.AddCall(start, other, kTail);
  }

  void MakePending() {
    while (!pending_.empty() && !b_.full()) {
      const Pending p = pending_.back();
      pending_.pop_back();
      Make(p);
    }
    pending_.clear();
  }

  void Make(const Pending& p) {
    const Node& n = schema_->nodes[p.node];
    const bool raw = p.spelling == Spelling::kRaw;
    switch (n.kind) {
      case Node::Kind::kAny:  // raw: any text, JSON or not
        return Alias(p.rule, Characters(without_mark_, Spelling::kRaw));
      case Node::Kind::kString:
        return Alias(p.rule, raw ? Characters(without_mark_, Spelling::kRaw, n.least, n.most)
                                 : PlainString(n.least, n.most));
      case Node::Kind::kText:
        return Alias(p.rule, Characters(raw ? Unmarked(n.dfa) : n.dfa, p.spelling));
      case Node::Kind::kDigits:
        return Alias(p.rule, Characters(n.dfa, Spelling::kRaw));
      case Node::Kind::kLiterals: {
        std::vector<std::string> texts;
        for (const auto& v : n.literals) {
          const auto* text = std::get_if<std::string>(&v.data());
          texts.push_back(raw && text != nullptr ? *text : JsonText(v));
        }
        return Alias(p.rule, Texts(texts));
      }
      case Node::Kind::kEither: {
        const uint32_t start = b_.AddState(p.rule);
        Start(p.rule, start);
        for (const uint32_t part : n.parts) b_.AddCall(start, RuleOf(part, p.spelling), kTail);
        return;
      }
      case Node::Kind::kArray:
        return Array(n, p.rule);
      case Node::Kind::kObject:
        return Object(n, p.rule);
      default:
        return Alias(p.rule, RuleOf(p.node, Spelling::kJson));
    }
  }

  CharDfa Unmarked(const CharDfa& dfa) {
    auto both = Intersect(dfa, without_mark_, limits_.dfa_states * 16);
    // Nothing left, or too much: then the pattern as it is; what it allows is what the caller asked for.
    return both.ok() && !both->empty() ? *std::move(both) : dfa;
  }

  void Array(const Node& n, uint32_t rule) {
    const auto prefix = static_cast<uint32_t>(n.parts.size());
    const uint32_t least = n.least > prefix ? n.least - prefix : 0;
    const uint32_t most = n.most == kNoBound ? kNoBound : n.most - prefix;
    const bool counted = least > 0 || most != kNoBound;
    const uint32_t start = b_.AddState(rule), open = b_.AddState(rule), opened = b_.AddState(rule),
                   end = b_.AddState(rule);
    b_.SetRule(rule, {.start = start, .least = least, .most = most});
    b_.AddByte(start, '[', open);
    b_.SetEnd(end);
    Space(open, opened);
    if (n.least == 0) {
      for (const uint32_t s : {open, opened}) b_.AddByte(s, ']', end);
    }
    if (n.most == 0) return;
    const uint32_t enough = least > 0 ? b_.AddGuard({Guard::Kind::kAtLeast, least, 0}) : kNoGuard;
    const uint32_t one = counted ? b_.AddGuard({Guard::Kind::kCount, most, 0}) : kNoGuard;
    const uint32_t below = most != kNoBound ? b_.AddGuard({Guard::Kind::kBelow, most, 0}) : kNoGuard;
    std::vector<uint32_t> before = {open, opened};  // element i
    for (uint32_t i = 0; i < prefix; ++i) {
      const uint32_t after = b_.AddState(rule);
      for (const uint32_t s : before) b_.AddCall(s, RuleOf(n.parts[i], Spelling::kJson), after);
      if (i + 1 == prefix && most > 0) {
        if (n.least <= prefix) Close(after, ']', end);
        const uint32_t comma = b_.AddState(rule), next = b_.AddState(rule);
        b_.AddByte(after, ',', comma);
        Space(comma, next);
        before = {comma, next};
      } else {
        if (i + 1 >= n.least) Close(after, ']', end);
        if (i + 1 < prefix) {
          const uint32_t comma = b_.AddState(rule), next = b_.AddState(rule);
          b_.AddByte(after, ',', comma);
          Space(comma, next);
          before = {comma, next};
        }
      }
      if (b_.full()) return;
    }
    if (most == 0) return;
    const uint32_t after = b_.AddState(rule), comma = b_.AddState(rule), next = b_.AddState(rule);
    for (const uint32_t s : {before[0], before[1], comma, next})
      b_.AddCall(s, RuleOf(n.rest, Spelling::kJson), after, one);
    b_.AddByte(after, ',', comma, below);
    Space(comma, next);
    Close(after, ']', end, enough);
  }

  // The names of an object's properties as a trie. A byte is only taken where some property below it may come now. `leaf(state, i)` ends name i.
  template <class Leaf>
  void Names(const Node& n, uint32_t object, uint32_t rule, uint32_t root,
             const std::vector<std::string>& names, Leaf leaf) {
    struct Place {
      std::map<char, uint32_t> next;  // index of a Place
      std::vector<uint32_t> below;    // properties, rising
      uint32_t property = kNoBound;
    };
    std::vector<Place> places(1);
    for (uint32_t i = 0; i < n.properties.size(); ++i) {
      uint32_t at = 0;
      for (const char c : names[i]) {
        const auto [next, is_new] = places[at].next.try_emplace(c, static_cast<uint32_t>(places.size()));
        at = next->second;
        if (is_new) places.emplace_back();
        places[at].below.push_back(i);
        if (places.size() > limits_.states) {  // far too large: the builder shall say so
          while (!b_.full()) b_.AddState(rule);
          return;
        }
      }
      places[at].property = i;
    }
    std::vector<uint32_t> states = {root};
    for (size_t i = 1; i < places.size(); ++i) states.push_back(b_.AddState(rule));
    for (size_t i = 0; i < places.size() && !b_.full(); ++i) {
      if (places[i].property != kNoBound) leaf(states[i], places[i].property);
      for (const auto& [c, to] : places[i].next) {
        const uint32_t guard = b_.AddGuard({Guard::Kind::kKeys, object, b_.AddList(places[to].below)});
        b_.AddByte(states[i], c, states[to], guard);
      }
    }
  }

  // Names of undeclared properties.
  CharDfa OtherNames(const Node& n) const {
    std::vector<std::u32string> taken;
    for (const auto& p : n.properties) taken.push_back(CodePoints(p.name));
    for (const auto& name : n.banned) taken.push_back(CodePoints(name));
    return AllBut(taken);
  }

  uint32_t ObjectGuards(const Node& n) {
    std::vector<bool> required;
    for (const auto& p : n.properties) required.push_back(p.required);
    return b_.AddObject(required, n.has_rest);
  }

  void Object(const Node& n, uint32_t rule) {
    const uint32_t object = ObjectGuards(n);
    const uint32_t done = b_.AddGuard({Guard::Kind::kDone, object, 0});
    const uint32_t more = b_.AddGuard({Guard::Kind::kMore, object, 0});
    const uint32_t start = b_.AddState(rule), open = b_.AddState(rule), opened = b_.AddState(rule);
    const uint32_t after = b_.AddState(rule), comma = b_.AddState(rule), next = b_.AddState(rule),
                   end = b_.AddState(rule);
    b_.SetRule(rule, {.start = start, .exact = true});
    b_.AddByte(start, '{', open);
    Space(open, opened);
    for (const uint32_t s : {open, opened}) b_.AddByte(s, '}', end, done);
    b_.AddByte(after, ',', comma, more);
    Space(comma, next);
    Close(after, '}', end, done);
    const std::array<uint32_t, 4> keys = {open, opened, comma, next};
    if (!n.properties.empty()) {
      std::vector<uint32_t> all(n.properties.size());
      std::vector<std::string> names;
      for (uint32_t i = 0; i < all.size(); ++i) {
        all[i] = i;
        names.push_back(JsonText(n.properties[i].name).substr(1));  // its end is the quote
      }
      const uint32_t guard = b_.AddGuard({Guard::Kind::kKeys, object, b_.AddList(all)});
      const uint32_t root = b_.AddState(rule);
      for (const uint32_t s : keys) b_.AddByte(s, '"', root, guard);
      Names(n, object, rule, root, names, [&](uint32_t named, uint32_t i) {
        // The quote has been read; the colon passes the guard that counts.
        const uint32_t value = b_.AddState(rule);
        b_.AddByte(named, ':', value, b_.AddGuard({Guard::Kind::kKey, object, i}));
        Value(value, RuleOf(n.properties[i].node, Spelling::kJson), after);
      });
    }
    if (n.has_rest) {
      const bool free = n.properties.empty() && n.banned.empty();
      const uint32_t name = free ? common_.string : Characters(OtherNames(n), Spelling::kJson);
      const uint32_t guard = b_.AddGuard({Guard::Kind::kAdditional, object, 0});
      const uint32_t colon = b_.AddState(rule), value = b_.AddState(rule);
      for (const uint32_t s : keys) b_.AddCall(s, name, colon, guard);
      b_.AddByte(colon, ':', value);
      Value(value, RuleOf(n.rest, Spelling::kJson), after);
    }
  }

  // NAME <arg_key>KEY</arg_key><arg_value>VALUE</arg_value> ... </tool_call>
  uint32_t Tool(const ToolRules& tool) {
    const Node& n = tool.arguments->nodes[tool.arguments->root];
    const uint32_t rule = b_.AddRule(), object = ObjectGuards(n);
    const uint32_t done = b_.AddGuard({Guard::Kind::kDone, object, 0});
    const uint32_t more = b_.AddGuard({Guard::Kind::kMore, object, 0});
    const uint32_t start = b_.AddState(rule), root = b_.AddState(rule), valued = b_.AddState(rule),
                   end = b_.AddState(rule);
    b_.SetRule(rule, {.start = start, .exact = true});
    const uint32_t at = b_.AddText(start, tool.name);
    b_.AddToken(at, marks_.end_call, end, done);
    b_.AddToken(at, marks_.key, root, more);
    b_.AddToken(valued, marks_.end_value, at);
    b_.SetEnd(end);
    const auto value = [&](uint32_t named, uint32_t node, uint32_t guard) {
      const uint32_t key = b_.AddState(rule), open = b_.AddState(rule);
      b_.AddToken(named, marks_.end_key, key, guard);
      b_.AddToken(key, marks_.value, open);
      b_.AddCall(open, RuleOf(node, Spelling::kRaw), valued);
    };
    std::vector<std::string> names;
    for (const auto& p : n.properties) names.push_back(p.name);
    Names(n, object, rule, root, names, [&](uint32_t named, uint32_t i) {
      value(named, n.properties[i].node, b_.AddGuard({Guard::Kind::kKey, object, i}));
    });
    if (n.has_rest) {
      auto any_name = Intersect(OtherNames(n), Lengths(1, kNoBound), limits_.states);
      if (any_name.ok() && !any_name->empty()) {
        const uint32_t named = b_.AddState(rule);
        b_.AddCall(root, Characters(*any_name, Spelling::kRaw), named,
                   b_.AddGuard({Guard::Kind::kAdditional, object, 0}));
        value(named, n.rest, kNoGuard);
      }
    }
    return rule;
  }

  const CompileLimits& limits_;
  Builder b_;
  CommonRules common_{};
  const Schema* schema_ = nullptr;
  std::map<std::pair<uint32_t, Spelling>, uint32_t> rules_;
  std::vector<Pending> pending_;
  ToolMarks marks_;
  CharDfa without_mark_;
};

}  // namespace

Result<Automaton> EmitJson(const Schema& schema, const CompileLimits& limits) {
  return Emitter(limits).Json(schema);
}

Result<Automaton> EmitToolCalls(const std::vector<ToolRules>& tools, const ToolMarks& marks, uint32_t most,
                                const CompileLimits& limits) {
  return Emitter(limits).ToolCalls(tools, marks, most);
}

uint32_t CommonStates() {
  static const uint32_t states = [] {
    const CompileLimits limits;
    return Emitter(limits).common().states;
  }();
  return states;
}

}  // namespace glint::grammar
