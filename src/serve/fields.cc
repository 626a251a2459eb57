#include "serve/fields.h"

#include <fmt/core.h>

#include <cmath>

#include "serve/json_out.h"

namespace glint::serve {
namespace {

// Deep enough for any schema that the grammar takes; and a body of a few megabytes can't cost gigabytes.
constexpr JsonLimits kLimits{.depth = 64, .values = size_t{2} << 20};

std::string_view Called(const Json& value) {
  switch (value.kind()) {
    case Json::Kind::kNull:
      return "null";
    case Json::Kind::kBool:
      return "a boolean";
    case Json::Kind::kInteger:
      return "an integer";
    case Json::Kind::kFloat:
      return "a decimal";
    case Json::Kind::kString:
      return "a string";
    case Json::Kind::kArray:
      return "an array";
    case Json::Kind::kObject:
      return "an object";
  }
  return "";
}

bool IsEmpty(const Json& value) {
  switch (value.kind()) {
    case Json::Kind::kNull:
      return true;
    case Json::Kind::kBool:
      return !std::get<bool>(value.data());
    case Json::Kind::kString:
      return std::get<std::string>(value.data()).empty();
    case Json::Kind::kArray:
      return value.items().empty();
    case Json::Kind::kObject:
      return value.members().empty();
    default:
      return value.Get<double>("").ok() && value.Get<double>("").value() == 0;
  }
}

std::string Short(double value) { return fmt::format("{}", value); }

}  // namespace

void Trouble::Report(std::string_view path, std::string_view message, std::string_view code) {
  if (!ok()) return;
  if (dialect == Dialect::kAnthropic) {
    error = ApiError{400, path.empty() ? std::string(message) : fmt::format("{}: {}", path, message),
                     std::string(path)};
  } else {
    error =
        ApiError{400, path.empty() ? std::string(message) : fmt::format("Invalid '{}': {}", path, message),
                 std::string(path), std::string(code)};
  }
}

void Trouble::Say(std::string_view path, std::string_view message, std::string_view code) {
  if (ok()) error = ApiError{400, std::string(message), std::string(path), std::string(code)};
}

void Trouble::Missing(std::string_view path) {
  if (!ok()) return;
  if (dialect == Dialect::kAnthropic) return Report(path, "Field required");
  error = ApiError{400, fmt::format("Missing required parameter: '{}'.", path), std::string(path),
                   "missing_required_parameter"};
}

void Trouble::WrongType(std::string_view path, std::string_view wanted, const Json& got) {
  if (!ok()) return;
  if (dialect == Dialect::kAnthropic)
    return Report(path, fmt::format("Input should be {}, not {}", wanted, Called(got)));
  error = ApiError{
      400, fmt::format("Invalid type for '{}': expected {}, but got {} instead.", path, wanted, Called(got)),
      std::string(path), "invalid_type"};
}

void Trouble::Unsupported(std::string_view path, std::string_view why) {
  if (!ok()) return;
  if (dialect == Dialect::kAnthropic) return Report(path, fmt::format("not supported: {}", why));
  error = ApiError{400, fmt::format("Unsupported parameter: '{}': {}.", path, why), std::string(path),
                   "unsupported_parameter"};
}

std::string Trouble::Member(std::string_view path, std::string_view key) const {
  return path.empty() ? std::string(key) : fmt::format("{}.{}", path, key);
}

std::string Trouble::Item(std::string_view path, size_t index) const {
  return dialect == Dialect::kOpenAi ? fmt::format("{}[{}]", path, index) : fmt::format("{}.{}", path, index);
}

Fields::Fields(Trouble& trouble, const Json& object, std::string path)
    : trouble_(trouble), object_(&object), path_(std::move(path)) {
  if (object.kind() != Json::Kind::kObject) {
    trouble_.WrongType(path_, "an object", object);
  }
}

const Json* Fields::Take(std::string_view key) {
  for (const Json::Member& member : object_->members()) {
    if (member.key != key) continue;
    taken_.insert(member.key);
    return member.value.kind() == Json::Kind::kNull ? nullptr : &member.value;
  }
  return nullptr;
}

const Json* Fields::Require(std::string_view key) {
  const Json* value = Take(key);
  if (value == nullptr) trouble_.Missing(PathOf(key));
  return value;
}

std::optional<bool> Fields::Bool(std::string_view key) {
  const Json* value = Take(key);
  if (value == nullptr) return {};
  if (const bool* flag = std::get_if<bool>(&value->data())) return *flag;
  trouble_.WrongType(PathOf(key), "a boolean", *value);
  return {};
}

std::optional<int64_t> Fields::Integer(std::string_view key, int64_t low, int64_t high) {
  const Json* value = Take(key);
  if (value == nullptr) return {};
  const std::string path = PathOf(key);
  // 3.0 is an integer of JSON Schema's, and some clients write all numbers so.
  const Result<double> number = value->Get<double>("");
  if (value->kind() != Json::Kind::kInteger &&
      (value->kind() != Json::Kind::kFloat || !number.ok() || number.value() != std::floor(number.value()))) {
    trouble_.WrongType(path, "an integer", *value);
    return {};
  }
  const bool above = number.ok() && number.value() > 0;
  const Result<int64_t> whole = value->Get<int64_t>("");
  if (whole.ok() && whole.value() >= low && whole.value() <= high) return whole.value();
  const bool too_high = whole.ok() ? whole.value() > high : above;
  trouble_.Report(
      path,
      too_high ? fmt::format("integer above maximum value. Expected a value <= {}, but got {} instead.", high,
                             ToText(*value))
               : fmt::format("integer below minimum value. Expected a value >= {}, but got {} instead.", low,
                             ToText(*value)),
      too_high ? "integer_above_max_value" : "integer_below_min_value");
  return {};
}

std::optional<double> Fields::Number(std::string_view key, double low, double high) {
  const Json* value = Take(key);
  if (value == nullptr) return {};
  const std::string path = PathOf(key);
  if (value->kind() != Json::Kind::kInteger && value->kind() != Json::Kind::kFloat) {
    trouble_.WrongType(path, "a decimal", *value);
    return {};
  }
  const Result<double> number = value->Get<double>("");
  if (number.ok() && number.value() >= low && number.value() <= high) return number.value();
  const bool too_high = number.ok() && number.value() > high;
  trouble_.Report(
      path,
      too_high ? fmt::format("decimal above maximum value. Expected a value <= {}, but got {} instead.",
                             Short(high), ToText(*value))
               : fmt::format("decimal below minimum value. Expected a value >= {}, but got {} instead.",
                             Short(low), ToText(*value)),
      too_high ? "decimal_above_max_value" : "decimal_below_min_value");
  return {};
}

std::optional<std::string> Fields::String(std::string_view key) {
  const Json* value = Take(key);
  if (value == nullptr) return {};
  std::optional<std::string> text = AsString(*value);
  if (!text) trouble_.WrongType(PathOf(key), "a string", *value);
  return text;
}

std::optional<std::string> Fields::RequireString(std::string_view key) {
  return Require(key) == nullptr ? std::nullopt : String(key);
}

std::optional<std::string> Fields::Word(std::string_view key, std::initializer_list<std::string_view> words) {
  std::optional<std::string> text = String(key);
  if (!text) return {};
  std::string list;
  for (const std::string_view word : words) {
    if (*text == word) return text;
    list += fmt::format("{}'{}'", list.empty() ? "" : ", ", word);
  }
  trouble_.Report(PathOf(key), fmt::format("'{}' is none of the supported values: {}.", *text, list));
  return {};
}

const Json* Fields::Array(std::string_view key) {
  const Json* value = Take(key);
  if (value == nullptr || value->kind() == Json::Kind::kArray) return value;
  trouble_.WrongType(PathOf(key), "an array", *value);
  return nullptr;
}

const Json* Fields::Object(std::string_view key) {
  const Json* value = Take(key);
  if (value == nullptr || value->kind() == Json::Kind::kObject) return value;
  trouble_.WrongType(PathOf(key), "an object", *value);
  return nullptr;
}

void Fields::Ignore(std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) (void)Take(key);
}

void Fields::Refuse(std::initializer_list<std::string_view> keys, std::string_view why) {
  for (const std::string_view key : keys) {
    const Json* value = Take(key);
    if (value != nullptr && !IsEmpty(*value)) trouble_.Unsupported(PathOf(key), why);
  }
}

void Fields::RefuseOthers() {
  for (const Json::Member& member : object_->members()) {
    if (taken_.contains(member.key) || !trouble_.ok()) continue;
    const std::string path = PathOf(member.key);
    if (trouble_.dialect == Dialect::kAnthropic) {
      trouble_.Report(path, "Extra inputs are not permitted");
    } else {
      trouble_.error =
          ApiError{400, fmt::format("Unknown parameter: '{}'.", path), path, "unknown_parameter"};
    }
  }
}

Parsed<Json> ParseBody(std::string_view body, Dialect dialect) {
  Result<Json> root = ParseJson(body, "body", kLimits);
  if (!root.ok()) {
    return ApiError{400,
                    fmt::format("The body of the request is not valid JSON: {}", root.status().message())};
  }
  if (root->kind() != Json::Kind::kObject) {
    return ApiError{400, fmt::format("The body of the request must be a JSON object, not {}.", Called(*root)),
                    "", dialect == Dialect::kOpenAi ? "invalid_type" : ""};
  }
  return std::move(root).value();
}

std::optional<std::string> AsString(const Json& value) {
  if (const auto* text = std::get_if<std::string>(&value.data())) return *text;
  return {};
}

}  // namespace glint::serve
