#include "cli/units.h"

#include <fmt/core.h>

#include <charconv>
#include <cmath>

namespace glint::cli {
namespace {

// Three significant figures below 1000.
std::string ThreeFigures(double value) {
  if (value < 9.995) return fmt::format("{:.2f}", value);
  if (value < 99.95) return fmt::format("{:.1f}", value);
  return fmt::format("{:.0f}", value);
}

}  // namespace

std::string Counted(uint64_t value, std::string_view what) {
  return Grouped(value) + " " + std::string(what) + (value == 1 ? "" : "s");
}

std::string Grouped(uint64_t value) {
  std::string digits = fmt::format("{}", value);
  for (size_t at = digits.size(); at > 3;) digits.insert(at -= 3, 1, ',');
  return digits;
}

std::string Bytes(uint64_t bytes) {
  if (bytes < 1000) return fmt::format("{} B", bytes);
  auto value = static_cast<double>(bytes);
  const char* const units[] = {"kB", "MB", "GB", "TB", "PB", "EB"};
  size_t unit = 0;
  for (value /= 1000; value >= 999.5 && unit + 1 < std::size(units); ++unit) value /= 1000;
  return ThreeFigures(value) + " " + units[unit];
}

std::optional<uint64_t> ParseBytes(std::string_view text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, value, std::chars_format::fixed);
  if (error != std::errc() || !(value >= 0)) return std::nullopt;
  std::string_view unit(last, static_cast<size_t>(end - last));
  if (unit.starts_with(' ')) unit.remove_prefix(1);
  if (unit.ends_with('B')) unit.remove_suffix(1);
  constexpr std::string_view kUnits = "KMGTP";
  if (!unit.empty()) {
    const size_t at = unit.size() == 1 ? kUnits.find(unit == "k" ? 'K' : unit[0]) : std::string_view::npos;
    if (at == std::string_view::npos) return std::nullopt;
    for (size_t i = 0; i <= at; ++i) value *= 1000;
  }
  constexpr double kMost = 9e18;
  if (value > kMost) return std::nullopt;
  return static_cast<uint64_t>(value);
}

std::string Duration(double seconds) {
  if (!(seconds >= 0)) return "?";
  if (seconds < 9.95) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<uint64_t>(std::llround(std::fmin(seconds, 1e9)));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string Rate(double per_second) {
  if (!std::isfinite(per_second) || per_second < 0) return "?";
  if (per_second < 0.9995) return fmt::format("{:.3f}", per_second);
  if (per_second < 999.5) return ThreeFigures(per_second);
  return Grouped(static_cast<uint64_t>(std::llround(std::fmin(per_second, 1e18))));
}

}  // namespace glint::cli
