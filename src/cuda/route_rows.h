// The temporary memory of moe.route.
#pragma once
#include <cstdint>

namespace glint::cuda {

// Of one row: a list of candidates, keys and sigmoids of its experts, ids and sigmoids of the chosen. A multiple of 16.
constexpr int64_t RouteRowBytes(int64_t experts, int64_t used) {
  return (experts * (8 + 4) + 32 * 8 + used * (4 + 4) + 15) / 16 * 16;
}

}  // namespace glint::cuda
