#include "serve/tools.h"

#include <fmt/core.h>

#include <algorithm>

#include "serve/json_out.h"

namespace glint::serve {

void CheckToolName(std::string_view name, std::string_view path, std::set<std::string>& names,
                   Trouble& trouble) {
  const bool fits = !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
  if (!fits) {
    trouble.Report(path, fmt::format("'{}' does not match '^[a-zA-Z0-9_-]{{1,64}}$'.", name));
  } else if (!names.emplace(name).second) {
    trouble.Report(path, fmt::format("tool names must be unique, and '{}' comes twice.", name));
  }
}

std::string ToolJson(std::string_view name, std::string_view description, const Json* schema) {
  JsonOut out;
  out.Begin('{').String("type", "function").Key("function").Begin('{').String("name", name);
  if (!description.empty()) out.String("description", description);
  if (schema != nullptr) out.Key("parameters").Raw(ToText(*schema));
  return out.End('}').End('}').Take();
}

}  // namespace glint::serve
