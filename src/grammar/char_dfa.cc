#include "grammar/char_dfa.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "base/printable.h"
#include "grammar/automaton.h"

namespace glint::grammar {

bool CharDfa::Accepts(std::u32string_view text) const {
  if (empty()) return false;
  uint32_t at = 0;
  for (const char32_t c : text) {
    const auto& edges = states[at].edges;
    const auto edge =
        std::find_if(edges.begin(), edges.end(), [&](const Edge& e) { return c >= e.lo && c <= e.hi; });
    if (edge == edges.end()) return false;
    at = edge->to;
  }
  return states[at].final;
}

bool CharDfa::Unbounded() const {
  return !empty() && std::all_of(states.begin(), states.end(),
                                 [](const State& s) { return s.final && !s.edges.empty(); });
}

CharDfa Trimmed(CharDfa dfa) {
  const size_t n = dfa.states.size();
  if (n == 0) return dfa;
  std::vector<bool> reached(n), alive(n);
  std::vector<std::vector<uint32_t>> from(n);
  std::vector<uint32_t> todo = {0};
  reached[0] = true;
  while (!todo.empty()) {
    const uint32_t s = todo.back();
    todo.pop_back();
    for (const auto& e : dfa.states[s].edges) {
      from[e.to].push_back(s);
      if (!reached[e.to]) reached[e.to] = true, todo.push_back(e.to);
    }
  }
  for (uint32_t s = 0; s < n; ++s) {
    if (reached[s] && dfa.states[s].final) alive[s] = true, todo.push_back(s);
  }
  while (!todo.empty()) {
    const uint32_t s = todo.back();
    todo.pop_back();
    for (const uint32_t f : from[s]) {
      if (!alive[f]) alive[f] = true, todo.push_back(f);
    }
  }
  CharDfa out;
  if (!alive[0]) return out;
  std::vector<uint32_t> id(n);
  uint32_t next = 0;
  for (uint32_t s = 0; s < n; ++s) {
    if (alive[s]) id[s] = next++;
  }
  for (uint32_t s = 0; s < n; ++s) {
    if (!alive[s]) continue;
    auto& state = out.states.emplace_back();
    state.final = dfa.states[s].final;
    for (const auto& e : dfa.states[s].edges) {
      if (!alive[e.to]) continue;
      const uint32_t to = id[e.to];
      if (!state.edges.empty() && state.edges.back().to == to && state.edges.back().hi + 1 == e.lo)
        state.edges.back().hi = e.hi;
      else
        state.edges.push_back({e.lo, e.hi, to});
    }
  }
  return out;
}

Result<CharDfa> Intersect(const CharDfa& a, const CharDfa& b, size_t max_states) {
  CharDfa out;
  if (a.empty() || b.empty()) return out;
  std::unordered_map<uint64_t, uint32_t> ids;
  std::vector<std::pair<uint32_t, uint32_t>> pairs;
  const auto id = [&](uint32_t x, uint32_t y) {
    const auto [at, is_new] = ids.emplace(uint64_t{x} << 32 | y, static_cast<uint32_t>(pairs.size()));
    if (is_new) pairs.emplace_back(x, y);
    return at->second;
  };
  id(0, 0);
  size_t edges = 0;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const auto [x, y] = pairs[i];
    CharDfa::State state;
    state.final = a.states[x].final && b.states[y].final;
    const auto &left = a.states[x].edges, &right = b.states[y].edges;
    for (size_t l = 0, r = 0; l < left.size() && r < right.size();) {
      const char32_t lo = std::max(left[l].lo, right[r].lo), hi = std::min(left[l].hi, right[r].hi);
      if (lo <= hi) state.edges.push_back({lo, hi, id(left[l].to, right[r].to)});
      left[l].hi < right[r].hi ? ++l : ++r;
    }
    edges += state.edges.size();
    out.states.push_back(std::move(state));
    if (pairs.size() > max_states || edges > 16 * max_states) {
      return Status(Code::kUnsupported,
                    fmt::format("these conditions together need more than {} states; simpler ones would do",
                                max_states));
    }
  }
  return Trimmed(std::move(out));
}

CharDfa AnyText() { return {{{{{0, kLastChar, 0}}, true}}}; }

CharDfa Lengths(uint32_t least, uint32_t most) {
  CharDfa out;
  if (least > most) return out;
  const uint32_t last = most == kNoBound ? least : most;
  for (uint32_t i = 0; i <= last; ++i) {
    auto& state = out.states.emplace_back();
    state.final = i >= least;
    if (i < last) state.edges.push_back({0, kLastChar, i + 1});
    if (i == last && most == kNoBound) state.edges.push_back({0, kLastChar, i});
  }
  return out;
}

CharDfa AllBut(const std::vector<std::u32string>& texts) {
  std::vector<std::map<char32_t, uint32_t>> next(1);
  std::vector<bool> excluded(1);
  for (const auto& text : texts) {
    uint32_t at = 0;
    for (const char32_t c : text) {
      const auto [edge, is_new] = next[at].emplace(c, static_cast<uint32_t>(next.size()));
      at = edge->second;
      if (is_new) next.emplace_back(), excluded.push_back(false);
    }
    excluded[at] = true;
  }
  const auto free = static_cast<uint32_t>(next.size());
  CharDfa out;
  for (uint32_t s = 0; s < free; ++s) {
    auto& state = out.states.emplace_back();
    state.final = !excluded[s];
    char32_t from = 0;
    for (const auto& [c, to] : next[s]) {
      if (c > from) state.edges.push_back({from, c - 1, free});
      state.edges.push_back({c, c, to});
      from = c + 1;
    }
    if (from <= kLastChar) state.edges.push_back({from, kLastChar, free});
  }
  out.states.push_back({{{0, kLastChar, free}}, true});
  return out;
}

CharDfa Without(std::string_view mark) {
  CharDfa out;
  for (uint32_t matched = 0; matched < mark.size(); ++matched) {
    // As the first character does not come again, what does not go on the match begins it anew or drops it.
    std::map<char32_t, uint32_t> special = {{static_cast<uint8_t>(mark[0]), 1}};
    special[static_cast<uint8_t>(mark[matched])] = matched + 1;
    auto& state = out.states.emplace_back();
    state.final = true;
    char32_t from = 0;
    for (const auto& [c, to] : special) {
      if (c > from) state.edges.push_back({from, c - 1, 0});
      if (to < mark.size()) state.edges.push_back({c, c, to});
      from = c + 1;
    }
    state.edges.push_back({from, kLastChar, 0});
  }
  return out;
}

std::u32string CodePoints(std::string_view utf8) {
  std::u32string out;
  while (!utf8.empty()) {
    char32_t c = 0;
    const size_t n = std::max<size_t>(DecodeUtf8(utf8, c), 1);
    out += c;
    utf8.remove_prefix(n);
  }
  return out;
}

}  // namespace glint::grammar
