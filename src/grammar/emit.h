// From nodes to an automaton: how values are spelled.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "glint/status.h"
#include "grammar/automaton.h"
#include "grammar/schema.h"

namespace glint::grammar {

// Rules that every automaton begins with, at the same places: what is known about their states serves all grammars of a vocabulary.
struct CommonRules {
  uint32_t newline, string, number, integer, null, boolean, object, array, value;
  uint32_t states;  // their number: states below it are these rules'
};

// The tokens of GLM's form of a tool call, and the last one's spelling.
struct ToolMarks {
  int32_t call = -1, end_call = -1, key = -1, end_key = -1, value = -1, end_value = -1;
  std::string end_value_text;
};

struct ToolRules {
  std::string name;
  const Schema* arguments = nullptr;  // of an object
};

Result<Automaton> EmitJson(const Schema& schema, const CompileLimits& limits);
// One call after the other, `most` at the most. A tool whose arguments' schema is no object is refused, by its name.
Result<Automaton> EmitToolCalls(const std::vector<ToolRules>& tools, const ToolMarks& marks, uint32_t most,
                                const CompileLimits& limits);
// How many states the common rules have; the same for all automata.
uint32_t CommonStates();

}  // namespace glint::grammar
