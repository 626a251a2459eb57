// The best ternary block: x ~ scale * code, code -1, 0 or 1.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "quant/fit.h"
#include "quant/fit_scale.h"

namespace glint::quant {

// Returns the scale's half. Exact but for the rounding of the scale: for any scale the codes that are not 0 belong to the largest
// magnitudes, so that only kN sets of them need trying; a set with weights w |x| and w loses least at the scale sum w |x| / sum w and
// then saves (sum w |x|)^2 / sum w.
template <size_t kN>
uint16_t EncodeTernary(const float* in, const float* importance, int8_t* code) {
  std::fill_n(code, kN, int8_t{0});
  const ScaledBlock<kN> b(in, importance);
  if (b.largest == 0) return 0;
  uint64_t order[kN];  // magnitudes are ordered as their bits are; then the place, so that the order is one
  for (size_t i = 0; i < kN; ++i)
    order[i] = uint64_t{~std::bit_cast<uint32_t>(std::fabs(b.x[i]))} << 32 | static_cast<uint64_t>(i);
  std::sort(order, order + kN);
  double wx = 0, w = 0, most = 0;
  float scale = 0;
  for (const uint64_t at : order) {
    const size_t i = at & 0xffffffffu;
    wx += static_cast<double>(b.w[i]) * std::fabs(b.x[i]), w += b.w[i];
    if (wx * wx > most * w) most = wx * wx / w, scale = static_cast<float>(wx / w);
  }
  const uint16_t half = b.Half(scale);
  Codes(b.x, kN, b.Step(half), -1, 1, code);
  return half;
}

}  // namespace glint::quant
