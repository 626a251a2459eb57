// Two runs of numbers against one another: the same bits, or within a bound.
#pragma once
#include <cstdint>
#include <optional>
#include <span>

namespace glint::plan {

// Steps from one float to the other through all floats between them (+0 and -0 are one apart); 0 if either is a NaN.
uint64_t UlpsBetween(uint32_t a, uint32_t b);

struct Mismatch {
  size_t at;
  uint32_t got, want;
};
// The first entry whose bits differ. Of floats a NaN equals any NaN: payloads are no part of the arithmetic.
std::optional<Mismatch> FirstOtherBits(std::span<const uint32_t> got, std::span<const uint32_t> want,
                                       bool integers);

struct Closeness {
  double largest = 0;             // |got - want|, over all entries
  double scale = 0;               // largest |want|; both over finite entries
  std::optional<Mismatch> first;  // the first beyond tolerance * scale, or where only one is finite
};
// Floats. `tolerance` is relative to the largest |want|.
Closeness Compare(std::span<const uint32_t> got, std::span<const uint32_t> want, double tolerance);

}  // namespace glint::plan
