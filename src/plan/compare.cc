#include "plan/compare.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace glint::plan {
namespace {

bool IsNan(uint32_t bits) { return (bits & 0x7fffffffu) > 0x7f800000u; }

// Floats in their order, as integers in their order.
int64_t Ordered(uint32_t bits) {
  const auto magnitude = static_cast<int64_t>(bits & 0x7fffffffu);
  return (bits & 0x80000000u) != 0 ? -magnitude - 1 : magnitude;
}

bool SameFloat(uint32_t a, uint32_t b) { return a == b || (IsNan(a) && IsNan(b)); }

}  // namespace

uint64_t UlpsBetween(uint32_t a, uint32_t b) {
  if (IsNan(a) || IsNan(b)) return 0;
  return static_cast<uint64_t>(std::abs(Ordered(a) - Ordered(b)));
}

std::optional<Mismatch> FirstOtherBits(std::span<const uint32_t> got, std::span<const uint32_t> want,
                                       bool integers) {
  if (got.empty() || std::memcmp(got.data(), want.data(), got.size_bytes()) == 0) return {};
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] == want[i] || (!integers && SameFloat(got[i], want[i]))) continue;
    return Mismatch{i, got[i], want[i]};
  }
  return {};
}

Closeness Compare(std::span<const uint32_t> got, std::span<const uint32_t> want, double tolerance) {
  Closeness result;
  for (const uint32_t bits : want) {
    const double value = std::abs(double{std::bit_cast<float>(bits)});
    if (std::isfinite(value)) result.scale = std::max(result.scale, value);
  }
  for (size_t i = 0; i < got.size(); ++i) {
    if (SameFloat(got[i], want[i])) continue;
    const double off = std::abs(double{std::bit_cast<float>(got[i])} - double{std::bit_cast<float>(want[i])});
    if (std::isfinite(off)) result.largest = std::max(result.largest, off);
    if (!(off <= tolerance * result.scale) && !result.first) result.first = Mismatch{i, got[i], want[i]};
  }
  return result;
}

}  // namespace glint::plan
