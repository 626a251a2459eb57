// Deterministic automata over characters (code points): what a string may contain, before it is spelled as JSON or as plain text.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "glint/status.h"

namespace glint::grammar {

constexpr char32_t kLastChar = 0x10ffff;

// State 0 is the start. Every state can reach a final one; no states at all: the empty language.
struct CharDfa {
  struct Edge {
    char32_t lo, hi;
    uint32_t to;
  };
  struct State {
    std::vector<Edge> edges;  // by rising lo, without overlap
    bool final = false;
  };
  std::vector<State> states;

  bool empty() const { return states.empty(); }
  bool Accepts(std::u32string_view text) const;
  // Whether every text that it accepts can go on, to texts of every greater length: then a bound on the length can be counted beside it.
  bool Unbounded() const;
};

// Without the states that can't be reached, or from which nothing final can.
CharDfa Trimmed(CharDfa dfa);
// kUnsupported if the product has more than max_states.
Result<CharDfa> Intersect(const CharDfa& a, const CharDfa& b, size_t max_states);
CharDfa AnyText();
CharDfa Lengths(uint32_t least, uint32_t most);  // most may be kNoBound
// All texts but these.
CharDfa AllBut(const std::vector<std::u32string>& texts);
// All texts in which `mark` does not occur; it must be ASCII, and its first character come only once in it.
CharDfa Without(std::string_view mark);

std::u32string CodePoints(std::string_view utf8);  // of well-formed UTF-8

}  // namespace glint::grammar
