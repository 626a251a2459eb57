// JSON text as Python's json.dumps(json.loads(text), ensure_ascii=False) writes it, which is what a template's
// `tojson` puts before the model.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "glint/status.h"

namespace glint::text {

// A member of an object: the key decoded, the value as it stands in the text.
struct RawMember {
  std::string key;
  std::string_view value;
};

// The members in their order; views into `text`. kBadInput if it is not one well-formed JSON object (RFC 8259, UTF-8, no key
// twice, at most 64 deep).
Result<std::vector<RawMember>> ObjectMembers(std::string_view text);

// Well-formed UTF-8 as a JSON string, quotes and all, or the inside of one; escaped only where JSON must.
void AppendJsonString(std::string_view text, std::string& out);
void AppendInsideJsonString(std::string_view text, std::string& out);

// The rest take a value of ObjectMembers.

// Separators ", " and ": ", strings escaped only where JSON must, integers as they are, other numbers by Python's repr.
std::string PythonDumps(std::string_view value);
bool IsString(std::string_view value);
std::string DecodeString(std::string_view value);  // what a string stands for
bool IsTruthy(std::string_view value);  // as Python's bool(): not null, false, a zero, or anything empty

// Python's repr of a float; infinities as json.dumps writes them.
std::string PythonFloat(double value);

}  // namespace glint::text
