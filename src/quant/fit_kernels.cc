#include "quant/fit_kernels.h"

#include "quant/fit_kernels_lanes.h"
#include "quant/fit_kernels_x86.h"

namespace glint::quant {
namespace {

constexpr FitKernels kPlainTable = FitLoops<4>::Table("plain");

}  // namespace

const FitKernels& PlainFitKernels() { return kPlainTable; }

#if defined(__x86_64__) && !defined(GLINT_NO_SIMD)
// __builtin_cpu_supports also asks whether the system saves the registers. The files are built with more than is asked here, but
// use no more: products and sums are never contracted, and nothing of them is in 16 bits.
const FitKernels* Avx2FitKernels() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &kAvx2FitTable : nullptr;
}

const FitKernels* Avx512FitKernels() {
  const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return has ? &kAvx512FitTable : nullptr;
}
#else
const FitKernels* Avx2FitKernels() { return nullptr; }
const FitKernels* Avx512FitKernels() { return nullptr; }
#endif

const FitKernels& BestFitKernels() {
  static const FitKernels& best = *[] {
    const FitKernels* const wide = Avx512FitKernels();
    const FitKernels* const medium = Avx2FitKernels();
    return wide ? wide : medium ? medium : &PlainFitKernels();
  }();
  return best;
}

}  // namespace glint::quant
