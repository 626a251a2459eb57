// The kernel table of an instruction set, from its operations V (lanes of weight rows) and S (16 lanes of Dot16).
// Included once by each kernels_ISA.cc; why everything is unnamed: cpu/simd_integer.h.
#pragma once
#include "cpu/kernels.h"
#include "cpu/simd_float.h"
#include "cpu/simd_integer.h"

namespace glint::cpu {
namespace {

template <class A, class B>
constexpr bool kSame = false;
template <class A>
constexpr bool kSame<A, A> = true;

// A format without a kernel here goes by the definition.
// One: V for digits of a single byte, or V itself where that is no faster.
template <class V, class S, class One>
void Rows(const RowsArgs& a) {
  if constexpr (!kSame<V, One>)
    if (a.one_digit) return Rows<One, S, One>(a);
  switch (a.type) {
    case quant::Type::kF32:
      return FloatRows<S, F32Weights<S>>(a);
    case quant::Type::kF16:
      return FloatRows<S, F16Weights<S>>(a);
    case quant::Type::kBF16:
      return FloatRows<S, BF16Weights<S>>(a);
    case quant::Type::kQ8_0:
      return IntegerRows<V, Q8_0Rows<V>>(a);
    case quant::Type::kQ4_K:
      return IntegerRows<V, Q4_KRows<V>>(a);
    case quant::Type::kQ6_K:
      return IntegerRows<V, Q6_KRows<V>>(a);
    case quant::Type::kQ5_0:
      return IntegerRows<V, Q5_0Rows<V>>(a);
    default:
      return ScalarKernels().rows(a);
  }
}

template <class V, class S, class One = V>
constexpr Kernels MakeKernels(const char* name) {
  return {name,      V::kDigitOrder, Rows<V, S, One>, Round<V>, Dot16<S>,   Axpy<V>,
          ExpAll<V>, Sigmoids<V>,    SwiGlu<V>,       Conv<V>,  Combine<V>, Dots<S>};
}

}  // namespace
}  // namespace glint::cpu
