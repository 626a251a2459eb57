#include "cli/config_file.h"

#include <fmt/core.h>

#include <toml++/toml.h>
#include <algorithm>
#include <optional>
#include <sstream>

#include "base/file.h"
#include "base/printable.h"

namespace glint::cli {
namespace {

using Kind = ConfigEntry::Kind;

// What a value would look like on a command line; nothing for kinds that no option has.
std::optional<std::pair<Kind, std::string>> Scalar(const toml::node& node) {
  if (const auto* text = node.as_string()) return std::pair{Kind::kString, text->get()};
  if (const auto* number = node.as_integer()) return std::pair{Kind::kInteger, std::to_string(number->get())};
  if (const auto* number = node.as_floating_point())
    return std::pair{Kind::kNumber, fmt::format("{}", number->get())};
  if (const auto* truth = node.as_boolean())
    return std::pair{Kind::kBool, std::string(truth->get() ? "true" : "false")};
  return std::nullopt;
}

}  // namespace

std::string_view Name(Kind kind) {
  switch (kind) {
    case Kind::kString:
      return "a string";
    case Kind::kInteger:
      return "a whole number";
    case Kind::kNumber:
      return "a number";
    case Kind::kBool:
      return "true or false";
    case Kind::kStrings:
      return "a list of strings";
  }
  return "a value";
}

std::string TomlString(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    char32_t c = 0;
    const size_t bytes = DecodeUtf8(text, c);
    if (bytes == 0) {
      out += "\xef\xbf\xbd";
    } else if (c == '"' || c == '\\') {
      out.append("\\").append(text.substr(0, 1));
    } else if (c < 0x20 || (c >= 0x7f && c < 0xa0)) {
      out += fmt::format("\\u{:04x}", uint32_t{c});
    } else {
      out += text.substr(0, bytes);
    }
    text.remove_prefix(std::max<size_t>(bytes, 1));
  }
  return out + '"';
}

Result<std::vector<ConfigEntry>> ParseConfig(std::string_view text, std::string_view name) {
  const toml::parse_result parsed = toml::parse(text);
  if (!parsed) {
    const toml::parse_error& error = parsed.error();
    return Status(Code::kBadFile,
                  fmt::format("{}:{}: {}", name, error.source().begin.line, error.description()));
  }
  std::vector<ConfigEntry> entries;
  for (const auto& [key, node] : parsed.table()) {
    ConfigEntry entry{std::string(key.str()), Kind::kString, {}, key.source().begin.line};
    const auto bad = [&](std::string_view what) {
      return Status(Code::kBadFile, fmt::format("{}:{}: {}: {}", name, entry.line, Quoted(entry.key), what));
    };
    if (const toml::array* list = node.as_array()) {
      entry.kind = Kind::kStrings;
      for (const toml::node& item : *list) {
        const auto* one = item.as_string();
        if (one == nullptr) return bad("a list holds strings alone");
        entry.values.push_back(one->get());
      }
    } else if (const auto scalar = Scalar(node)) {
      entry.kind = scalar->first;
      entry.values.push_back(scalar->second);
    } else if (node.is_table()) {
      return bad("is a table; keys are the options' long names, all at the top");
    } else {
      return bad("is a date or a time, which no option takes");
    }
    entries.push_back(std::move(entry));
  }
  std::stable_sort(entries.begin(), entries.end(),
                   [](const auto& a, const auto& b) { return a.line < b.line; });
  return entries;
}

Result<std::vector<ConfigEntry>> ReadConfig(const std::string& path) {
  const auto text = ReadFile(path, uint64_t{1} << 20);
  if (!text.ok()) return text.status();
  return ParseConfig(*text, path);
}

}  // namespace glint::cli
