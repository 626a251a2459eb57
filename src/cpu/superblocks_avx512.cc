// Formats with blocks of 256 columns, AVX-512. Built with those flags, called only where the processor has them.
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__) && \
    defined(__AVX512VNNI__)
#include "cpu/kernels_x86.h"
#include "cpu/simd_avx512.h"
#include "cpu/simd_superblocks.h"

namespace glint::cpu {
bool SuperblockRowsAvx512(const RowsArgs& a) {
  return a.one_digit ? SuperblockRows<OneDigitOf<V>>(a) : SuperblockRows<V>(a);
}
}  // namespace glint::cpu
#endif
