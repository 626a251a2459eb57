// Formats with small blocks, AVX2. Built with those flags, called only where the processor has them.
#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include "cpu/kernels_x86.h"
#include "cpu/simd_avx2.h"
#include "cpu/simd_blocks.h"

namespace glint::cpu {
bool BlockRowsAvx2(const RowsArgs& a) { return BlockRows<V>(a); }
}  // namespace glint::cpu
#endif
