// The file of `--config`: TOML whose keys are the long names of a command's options.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "glint/status.h"

namespace glint::cli {

struct ConfigEntry {
  enum class Kind : uint8_t { kString, kInteger, kNumber, kBool, kStrings };
  std::string key;
  Kind kind = Kind::kString;
  std::vector<std::string> values;  // as an option's would be typed; "true" or "false"; one, but for kStrings
  uint32_t line = 0;                // from 1
};

// In the order of the file. `name` stands in messages, which begin with name:line. kBadFile: no TOML; a key that comes twice; a table, a
// date or a list of anything but strings.
Result<std::vector<ConfigEntry>> ParseConfig(std::string_view text, std::string_view name);
Result<std::vector<ConfigEntry>> ReadConfig(const std::string& path);

// "a string", "a whole number", ...
std::string_view Name(ConfigEntry::Kind kind);
// As a TOML string, quotes included; bytes that are no UTF-8 become U+FFFD.
std::string TomlString(std::string_view text);

}  // namespace glint::cli
