// The small floating-point formats, converted exactly to float and rounded to nearest even from it.
// Plain integer arithmetic: the same bits on every machine.
#pragma once
#include <bit>
#include <cstdint>

namespace glint {

// IEEE 754 binary16. Exact, NaN payloads kept (as the quiet NaN).
inline float HalfToFloat(uint16_t h) {
  const uint32_t sign = uint32_t{h & 0x8000u} << 16;
  uint32_t exponent = (h >> 10) & 31u;
  uint32_t mantissa = h & 0x3ffu;
  if (exponent == 31)
    return std::bit_cast<float>(sign | 0x7f800000u | (mantissa ? 0x400000u | mantissa << 13 : 0));
  if (exponent == 0) {
    if (mantissa == 0) return std::bit_cast<float>(sign);
    exponent = 1;
    while (!(mantissa & 0x400u)) mantissa <<= 1, --exponent;  // wraps below zero; the sum below undoes it
    mantissa &= 0x3ffu;
  }
  return std::bit_cast<float>(sign | (exponent + 112u) << 23 | mantissa << 13);
}

// Overflow gives infinity, as IEEE rounding does.
inline uint16_t FloatToHalf(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);   // NaN
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65520 and above
  if (magnitude < 0x38800000u) {                                               // below 2^-14: subnormal
    // Adding 0.5 puts the wanted 10 bits at the end of the mantissa, rounded by the float unit.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  const uint32_t odd = magnitude >> 13 & 1u;
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13));
}

inline float BFloatToFloat(uint16_t b) { return std::bit_cast<float>(uint32_t{b} << 16); }

inline uint16_t FloatToBFloat(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

// FP8 E4M3 (the "fn" kind: no infinities, 0x7f and 0xff are NaN, largest 448).
inline float Fp8E4M3ToFloat(uint8_t v) {
  const uint32_t sign = uint32_t{v & 0x80u} << 24;
  const uint32_t exponent = v >> 3 & 15u;
  const uint32_t mantissa = v & 7u;
  if (exponent == 15 && mantissa == 7) return std::bit_cast<float>(sign | 0x7fc00000u);
  if (exponent == 0) {
    const float m = static_cast<float>(mantissa) * 0x1p-9f;
    return sign ? -m : m;
  }
  return std::bit_cast<float>(sign | (exponent + 120u) << 23 | mantissa << 20);
}

}  // namespace glint
