// Quantities as people read them.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace glint::cli {

std::string Counted(uint64_t value, std::string_view what);  // 1 "token", 2,000 "tokens"
std::string Grouped(uint64_t value);                         // 1234567 -> "1,234,567"
std::string Bytes(uint64_t bytes);  // decimal units, three figures: "812 B", "1.50 kB", "18.8 GB"
// "40G", "500M", "1.5 GB", "4096": decimal units; nothing if it is no size that 64 bits hold.
std::optional<uint64_t> ParseBytes(std::string_view text);
std::string Duration(double seconds);  // "0.8 s", "42 s", "3:07", "1:02:09"
std::string Rate(double per_second);   // three figures: "0.512", "8.31", "1,204"

}  // namespace glint::cli
