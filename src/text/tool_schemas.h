// What a caller's tools say of their arguments: which kinds of JSON each may be.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "glint/status.h"

namespace glint::text {

// A set of kinds of JSON values.
using JsonKinds = uint8_t;
namespace json_kind {
inline constexpr JsonKinds kNull = 1, kBool = 2, kInteger = 4, kFraction = 8, kString = 16, kArray = 32,
                           kObject = 64, kNumber = kInteger | kFraction, kAny = 127;
}  // namespace json_kind

// The kinds a JSON schema admits: type (one or a list), enum, const, anyOf, oneOf, allOf, nullable and $ref within `root`. All
// else is not looked at: what comes out is for telling a string from other kinds, not for validation. kAny where the schema says
// nothing, contradicts itself, or is too entangled (bounded steps).
JsonKinds KindsOf(const Json& schema, const Json& root);

// A value as the model spelled it, as JSON of one of the `kinds`. Strings stand in the model's calls verbatim and others as JSON,
// so: with kString alone, whatever was spelled is that string; else it is JSON if it reads as JSON of an admitted kind, with
// numbers as spelled (but 5.0 is 5 where only an integer will do); else it is a string. A union of string and integer takes only
// what is spelled as an integer is: 007 and 1e5 stay strings. `spelled` is well-formed UTF-8.
std::string TypedJson(std::string_view spelled, JsonKinds kinds);

// Immutable; safe to share between threads.
class ToolSchemas {
 public:
  // `tools` as ChatOptions has them; kBadInput for one that is not a JSON object or has no name. The schema is the member "parameters",
  // or "input_schema".
  static Result<ToolSchemas> Read(std::span<const std::string> tools);

  bool empty() const { return tools_.empty(); }
  bool Has(std::string_view name) const { return tools_.contains(name); }
  bool Declares(std::string_view name, std::string_view argument) const;
  // kAny for an unknown tool or an argument of which the schema says nothing.
  JsonKinds Kinds(std::string_view name, std::string_view argument) const;
  // The tool with the longest name that begins `text` and is followed by an argument that it declares, with or without white
  // space around it: for a call whose tag between the two is missing.
  bool Split(std::string_view text, std::string& name, std::string& argument) const;

 private:
  const Json* Argument(std::string_view name, std::string_view argument) const;
  std::map<std::string, Json, std::less<>> tools_;  // schema of the parameters, by name
};

inline constexpr std::string_view kAsciiSpace = " \t\r\n\v\f";
// Without ASCII white space at both ends.
std::string_view StripAscii(std::string_view text);

}  // namespace glint::text
