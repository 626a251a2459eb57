#include "text/tool_schemas.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/json_pointer.h"
#include "text/python_json.h"

namespace glint::text {
namespace {

using json_kind::kAny;
using json_kind::kArray;
using json_kind::kBool;
using json_kind::kFraction;
using json_kind::kInteger;
using json_kind::kNull;
using json_kind::kNumber;
using json_kind::kObject;
using json_kind::kString;

constexpr int kDepth = 32, kSteps = 1000;  // of the walk through a schema

JsonKinds KindOfName(std::string_view name) {
  if (name == "null") return kNull;
  if (name == "boolean") return kBool;
  if (name == "integer") return kInteger;
  if (name == "number") return kNumber;
  if (name == "string") return kString;
  if (name == "array") return kArray;
  if (name == "object") return kObject;
  return kAny;  // no type of JSON schema: it says nothing
}

JsonKinds KindOfValue(const Json& value) {
  switch (value.kind()) {
    case Json::Kind::kNull:
      return kNull;
    case Json::Kind::kBool:
      return kBool;
    case Json::Kind::kInteger:
      return kInteger;
    case Json::Kind::kFloat:
      return kNumber;
    case Json::Kind::kString:
      return kString;
    case Json::Kind::kArray:
      return kArray;
    case Json::Kind::kObject:
      return kObject;
  }
  return kAny;
}

class SchemaReader {
 public:
  explicit SchemaReader(const Json& root) : root_(root) {}

  // 0 if nothing is admitted.
  JsonKinds Read(const Json& schema, int depth) {
    if (depth > kDepth || ++steps_ > kSteps) return kAny;
    JsonKinds kinds = kAny;
    const auto also = [&](JsonKinds admitted) { kinds = static_cast<JsonKinds>(kinds & admitted); };
    bool nullable = false;
    for (const Json::Member& member : schema.members()) {
      const Json& value = member.value;
      if (member.key == "type") {
        also(Types(value));
      } else if (member.key == "enum") {
        JsonKinds any = 0;
        for (const Json& item : value.items()) any |= KindOfValue(item);
        if (any != 0) also(any);
      } else if (member.key == "const") {
        also(KindOfValue(value));
      } else if (member.key == "anyOf" || member.key == "oneOf") {
        JsonKinds any = 0;
        for (const Json& item : value.items()) any |= Read(item, depth + 1);
        if (!value.items().empty()) also(any);
      } else if (member.key == "allOf") {
        for (const Json& item : value.items()) also(Read(item, depth + 1));
      } else if (member.key == "$ref") {
        const auto* reference = std::get_if<std::string>(&value.data());
        const Json* target = reference != nullptr ? FindReference(root_, *reference) : nullptr;
        if (target != nullptr) also(Read(*target, depth + 1));
      } else if (member.key == "nullable") {
        const auto* flag = std::get_if<bool>(&value.data());
        nullable = flag != nullptr && *flag;
      }
    }
    return static_cast<JsonKinds>(kinds | (nullable ? kNull : 0));
  }

 private:
  static JsonKinds Types(const Json& value) {
    if (const auto* name = std::get_if<std::string>(&value.data())) return KindOfName(*name);
    JsonKinds any = 0;
    for (const Json& item : value.items()) {
      const auto* name = std::get_if<std::string>(&item.data());
      any |= name != nullptr ? KindOfName(*name) : kAny;
    }
    return any != 0 ? any : kAny;
  }

  const Json& root_;
  int steps_ = 0;
};

// The schema of an argument: among the properties of `schema`, or of one that it refers to or is composed of.
const Json* FindProperty(const Json& schema, const Json& root, std::string_view name, int depth, int& steps) {
  if (depth > kDepth || ++steps > kSteps) return nullptr;
  const Json* found = nullptr;
  if (const Json* properties = schema.Find("properties")) found = properties->Find(name);
  for (const Json::Member& member : schema.members()) {
    if (found != nullptr) break;
    if (member.key == "$ref") {
      const auto* reference = std::get_if<std::string>(&member.value.data());
      const Json* target = reference != nullptr ? FindReference(root, *reference) : nullptr;
      if (target != nullptr) found = FindProperty(*target, root, name, depth + 1, steps);
    } else if (member.key == "allOf" || member.key == "anyOf" || member.key == "oneOf") {
      for (const Json& item : member.value.items()) {
        if (found == nullptr) found = FindProperty(item, root, name, depth + 1, steps);
      }
    }
  }
  return found;
}

// The same number without a point or an exponent, if it is whole and a double holds it exactly.
std::optional<std::string> AsInteger(const Json& number) {
  const auto* value = std::get_if<double>(&number.data());
  if (value == nullptr || *value != std::trunc(*value) || std::abs(*value) > 0x1p53) return std::nullopt;
  return std::to_string(static_cast<int64_t>(*value));
}

std::string Quote(std::string_view text) {
  std::string out;
  AppendJsonString(text, out);
  return out;
}

}  // namespace

std::string_view StripAscii(std::string_view text) {
  const size_t first = text.find_first_not_of(kAsciiSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kAsciiSpace) + 1 - first);
}

JsonKinds KindsOf(const Json& schema, const Json& root) {
  const JsonKinds kinds = SchemaReader(root).Read(schema, 0);
  return kinds != 0 ? kinds : kAny;
}

std::string TypedJson(std::string_view spelled, JsonKinds kinds) {
  if (kinds == kString) return Quote(spelled);
  const bool maybe_string = (kinds & kString) != 0;
  const std::string_view text = StripAscii(spelled);
  const auto json = ParseJson(text, "");
  if (json.ok() && json->kind() != Json::Kind::kString) {
    const bool number = json->kind() == Json::Kind::kInteger || json->kind() == Json::Kind::kFloat;
    const bool whole = number && text.find_first_of(".eE") == std::string_view::npos;
    const JsonKinds kind = !number ? KindOfValue(*json) : whole ? kInteger : kFraction;
    // A string may well begin with a space; a number, a name or a bracket of the model's does not.
    if ((kinds & kind) != 0 && (!maybe_string || text.size() == spelled.size())) return std::string(text);
    if (maybe_string) return Quote(spelled);
    if (number && (kinds & kInteger) != 0) {
      if (const auto integer = AsInteger(*json)) return *integer;
    }
  }
  if (maybe_string) return Quote(spelled);
  // Nothing fits: what Python programmers write, else what is JSON, else the text itself, for the caller to refuse.
  if ((kinds & kBool) != 0 && (text == "True" || text == "False")) return text == "True" ? "true" : "false";
  if ((kinds & kNull) != 0 && text == "None") return "null";
  return json.ok() ? std::string(text) : Quote(spelled);
}

Result<ToolSchemas> ToolSchemas::Read(std::span<const std::string> tools) {
  ToolSchemas out;
  for (size_t i = 0; i < tools.size(); ++i) {
    const auto bad = [&](std::string_view what) {
      return Status(Code::kBadInput, fmt::format("tool {}: {}", i, what));
    };
    const auto json = ParseJson(tools[i], "JSON");
    if (!json.ok()) {
      return Status(json.status().code() == Code::kNoRoom ? Code::kNoRoom : Code::kBadInput,
                    fmt::format("tool {}: {}", i, json.status().message()));
    }
    const Json* tool = json->Find("function");
    if (tool == nullptr) tool = &*json;
    if (tool->kind() != Json::Kind::kObject)
      return bad(fmt::format("{} stands where an object is wanted", Name(tool->kind())));
    const Json* name = tool->Find("name");
    const auto* text = name != nullptr ? std::get_if<std::string>(&name->data()) : nullptr;
    if (text == nullptr || text->empty()) return bad("has no name");
    const Json* schema = tool->Find("parameters");
    if (schema == nullptr) schema = tool->Find("input_schema");
    out.tools_.insert_or_assign(*text, schema != nullptr ? *schema : Json());
  }
  return out;
}

const Json* ToolSchemas::Argument(std::string_view name, std::string_view argument) const {
  const auto tool = tools_.find(name);
  if (tool == tools_.end()) return nullptr;
  int steps = 0;
  return FindProperty(tool->second, tool->second, argument, 0, steps);
}

bool ToolSchemas::Declares(std::string_view name, std::string_view argument) const {
  return Argument(name, argument) != nullptr;
}

JsonKinds ToolSchemas::Kinds(std::string_view name, std::string_view argument) const {
  const auto tool = tools_.find(name);
  if (tool == tools_.end()) return kAny;
  if (const Json* schema = Argument(name, argument)) return KindsOf(*schema, tool->second);
  const Json* others = tool->second.Find("additionalProperties");
  return others != nullptr ? KindsOf(*others, tool->second) : kAny;
}

bool ToolSchemas::Split(std::string_view text, std::string& name, std::string& argument) const {
  text = StripAscii(text);
  name.clear();
  for (const auto& [tool, schema] : tools_) {  // of names that begin alike the longer comes later
    if (!text.starts_with(tool)) continue;
    const std::string_view rest = StripAscii(text.substr(tool.size()));
    if (rest.empty() || !Declares(tool, rest)) continue;
    name = tool, argument = rest;
  }
  return !name.empty();
}

}  // namespace glint::text
