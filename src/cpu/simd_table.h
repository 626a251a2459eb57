// The kernel table of an instruction set, from its operations V (lanes of weight rows) and S (16 lanes of Dot16).
// Included once by each kernels_ISA.cc; why everything is unnamed: cpu/simd_integer.h.
#pragma once
#include "cpu/kernels.h"
#include "cpu/simd_float.h"

namespace glint::cpu {
namespace {

// kInteger: the products with quantised weights; false for a format that it has not.
template <class S, bool (*kInteger)(const RowsArgs&)>
void Rows(const RowsArgs& a) {
  switch (a.type) {
    case quant::Type::kF32:
      return FloatRows<S, F32Weights<S>>(a);
    case quant::Type::kF16:
      return FloatRows<S, F16Weights<S>>(a);
    case quant::Type::kBF16:
      return FloatRows<S, BF16Weights<S>>(a);
    default:
      if (!kInteger(a)) ScalarKernels().rows(a);
  }
}

template <class V, class S, bool (*kInteger)(const RowsArgs&)>
constexpr Kernels MakeKernels(const char* name) {
  return {name,      V::kDigitOrder, Rows<S, kInteger>, Round<V>, Dot16<S>,   Axpy<V>,
          ExpAll<V>, Sigmoids<V>,    SwiGlu<V>,         Conv<V>,  Combine<V>, Dots<S>};
}

}  // namespace
}  // namespace glint::cpu
