// The signs of the IQ2 and IQ3 formats: their grids have positive coordinates only.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>

namespace glint::quant {

// Eight sign bits from the seven that IQ2_XXS, IQ2_XS and IQ3_XXS store: the eighth makes their number even.
inline unsigned EvenSigns(unsigned seven) {
  return seven | (static_cast<unsigned>(std::popcount(seven)) & 1u) << 7;
}

// code[i] = point[i], negated where bit i of `signs` is set.
template <size_t kColumns>
inline void PutSigned(const int8_t (&point)[kColumns], unsigned signs, int8_t* code) {
  for (size_t i = 0; i < kColumns; ++i) code[i] = static_cast<int8_t>(signs >> i & 1u ? -point[i] : point[i]);
}

}  // namespace glint::quant
