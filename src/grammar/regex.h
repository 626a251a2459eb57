// Patterns of JSON schemas: a subset of ECMA-262's regular expressions, compiled to a CharDfa in bounded time and memory.
#pragma once
#include <cstddef>
#include <string_view>

#include "glint/status.h"
#include "grammar/char_dfa.h"

namespace glint::grammar {

struct RegexLimits {
  size_t nesting = 64;      // of groups
  size_t parts = 20'000;    // of the expression, repetitions written out
  size_t states = 4'096;    // of the automaton
  size_t work = 4'000'000;  // steps of the construction
};

// Texts in which the pattern (UTF-8) is found, anywhere unless ^ and $ say otherwise. Supported: literals, ., classes and their escapes (\d \w
// \s and capitals, ASCII but for \s), escapes of characters (\n \t \xHH \uHHHH \u{H...} \cX), groups of any kind that are no assertions,
// |, ^, $, and * + ? {n} {n,} {n,m}, greedy or not. kUnsupported names what is not (look-around, back references, \b, \p) or the limit;
// kBadInput says what is no expression, and where.
Result<CharDfa> CompileRegex(std::string_view pattern, const RegexLimits& limits = {});

}  // namespace glint::grammar
