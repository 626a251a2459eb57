// `format` of JSON schemas as patterns.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace glint::grammar {

// A pattern (regex.h) for the whole text; none if the format is not one of docs/grammar.md.
std::optional<std::string> FormatPattern(std::string_view format);

}  // namespace glint::grammar
