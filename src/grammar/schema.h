// A JSON schema taken apart: what a value may be, in a form with no references, merges and contradictions left.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "glint/status.h"
#include "grammar/automaton.h"
#include "grammar/char_dfa.h"

namespace glint::grammar {

struct CompileLimits {
  size_t schema_bytes = size_t{1} << 20;
  size_t depth = 64;           // of the schema as a JSON text
  size_t nodes = 20'000;       // different sub-schemas, merged ones included
  size_t states = 300'000;     // of the automaton
  size_t dfa_states = 20'000;  // of one string's conditions together
  size_t work = 20'000'000;    // steps, of all patterns and merges together
};

// What a value may be. Nodes name others by index, in circles where the schema is recursive.
struct Node {
  enum class Kind : uint8_t {
    kNever,
    kAny,
    kNull,
    kBool,
    kString,    // any, of least ... most characters
    kText,      // a string whose characters are `dfa`
    kNumber,    // any
    kInteger,   // any
    kDigits,    // a number whose digits are `dfa`
    kLiterals,  // one of `literals`
    kArray,
    kObject,
    kEither,  // one of `parts`
  };
  struct Property {
    std::string name;
    uint32_t node = 0;
    bool required = false;
  };

  Kind kind = Kind::kNever;
  uint32_t least = 0, most = kNoBound;  // characters or elements
  CharDfa dfa;
  std::vector<Json> literals;
  std::vector<uint32_t> parts;  // of kEither; of an array its first elements
  uint32_t rest = 0;  // node of an array's further elements, or of an object's undeclared properties
  bool has_rest = false;
  std::vector<Property> properties;  // in the schema's order
  std::vector<std::string> banned;   // names that an undeclared property must not have
  bool wider = false;                // the schema allows more than this node says (docs/grammar.md)
};

struct Schema {
  std::vector<Node> nodes;
  uint32_t root = 0;
};

// `named` begins messages ("response_format.json_schema.schema"); they go on with the JSON pointer of the keyword at fault. kBadInput: no
// schema, or one that no finite value satisfies; kUnsupported: a keyword or size that is not supported.
Result<Schema> ReadSchema(const Json& schema, std::string_view named, const CompileLimits& limits);

// Compact JSON, non-ASCII characters as they are.
std::string JsonText(const Json& value);
std::string JsonText(std::string_view string);  // with its quotes

}  // namespace glint::grammar
