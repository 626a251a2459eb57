// Which kernel tables this machine can run. In a file of its own because it must run everywhere: the tables' files are built with
// flags that need not hold here.
#include "cpu/kernels.h"

#include <initializer_list>

#if defined(__x86_64__) && !defined(GLINT_NO_SIMD)
#include <cpuid.h>

#include "cpu/kernels_x86.h"
#endif

namespace glint::cpu {

// __builtin_cpu_supports also asks whether the system saves the registers.
#if defined(__x86_64__) && !defined(GLINT_NO_SIMD)
namespace {

// clang 14 knows no such name. Its registers are AVX's, so the system's part is asked for with that. Asked once: the instruction traps in a
// virtual machine, and at 16 us a step decoding a small model took six times as long (EPYC Zen 5, 2026-11-30).
bool HasF16c() {
  static const bool has = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
  }();
  return has;
}

}  // namespace

const Kernels* Avx2Kernels() {
  const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && HasF16c();
  return has ? &kAvx2Table : nullptr;
}

const Kernels* Avx512Kernels() {
  const bool has = Avx2Kernels() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                   __builtin_cpu_supports("avx512vnni");
  return has ? &kAvx512Table : nullptr;
}

const Kernels* Avx512VbmiKernels() {
  const bool has = Avx512Kernels() && __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("gfni");
  return has ? &kAvx512VbmiTable : nullptr;
}
#else
const Kernels* Avx2Kernels() { return nullptr; }
const Kernels* Avx512Kernels() { return nullptr; }
const Kernels* Avx512VbmiKernels() { return nullptr; }
#endif

const Kernels& FastestKernels() {
  static const Kernels* const fastest = [] {
    for (const Kernels* table : {Avx512VbmiKernels(), Avx512Kernels(), Avx2Kernels(), NeonKernels()})
      if (table != nullptr) return table;
    return &ScalarKernels();
  }();
  return *fastest;
}

}  // namespace glint::cpu
