// What a request says of tools, the same in both APIs but for its spelling.
#pragma once
#include <set>
#include <string>
#include <string_view>

#include "serve/fields.h"

namespace glint::serve {

// One to 64 letters, digits, '_' and '-'; reports others, and names that come twice.
void CheckToolName(std::string_view name, std::string_view path, std::set<std::string>& names,
                   Trouble& trouble);

// {"type":"function","function":{...}}, as templates take it. `schema` null: no parameters.
std::string ToolJson(std::string_view name, std::string_view description, const Json* schema);

}  // namespace glint::serve
