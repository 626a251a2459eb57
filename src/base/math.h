// The elementary functions of the forward pass, written out so that every compiler, library and backend gives the
// same bits: no libm call whose last bit depends on the machine. SIMD and CUDA forms repeat these steps lane by lane.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

namespace glint {

// e^x, within 1.5 ulp on [-87.3, 88.7]; 0 below (no subnormal results), +inf above, NaN for NaN.
// Reduction x = n ln 2 + r, |r| <= ln 2 / 2, with ln 2 in two parts (Cody and Waite), then a polynomial of degree 6:
// 1 + r + r^2 q(r), q fitted for the least relative error (0.05 * 2^-24; Taylor's coefficients leave 3 * 2^-24).
inline float Exp(float x) {
  if (!(x >= -87.33654f)) return x < 0 ? 0.0f : x;  // small, or NaN
  if (x > 88.72283f) return std::bit_cast<float>(0x7f800000u);
  // Adding and subtracting 1.5 * 2^23 rounds to the nearest integer, ties to even.
  const float n = std::fma(x, 1.44269504f, 12582912.0f) - 12582912.0f;
  float r = std::fma(n, -0.693145752f, x);
  r = std::fma(n, -1.42860677e-6f, r);
  float p = 1.38145383e-3f;
  p = std::fma(p, r, 8.36874545e-3f);
  p = std::fma(p, r, 4.16683890e-2f);
  p = std::fma(p, r, 1.66665211e-1f);
  p = std::fma(p, r, 4.99999940e-1f);
  p = std::fma(p, r, 1.0f);
  p = std::fma(p, r, 1.0f);
  // Two steps, so that n = 128 does not overflow the exponent field before the product is formed.
  const auto half = static_cast<int32_t>(n) >> 1;
  const int32_t rest = static_cast<int32_t>(n) - half;
  return p * std::bit_cast<float>((half + 127) << 23) * std::bit_cast<float>((rest + 127) << 23);
}

inline float Sigmoid(float x) { return 1.0f / (1.0f + Exp(-x)); }
inline float Silu(float x) { return x / (1.0f + Exp(-x)); }

}  // namespace glint
