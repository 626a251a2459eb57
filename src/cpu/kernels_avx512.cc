// AVX-512 (F, BW, DQ, VL, VNNI): 16 weight rows at once. Built with those flags, called only where the processor has them.
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__) && \
    defined(__AVX512VNNI__)
#include "cpu/kernels_x86.h"
#include "cpu/simd_avx512.h"
#include "cpu/simd_table.h"

namespace glint::cpu {
namespace {

struct S {
  static constexpr int kGroup = 4, kWeightRows = 4, kDecodeRows = 8;
  __m512 v;

  static inline S Zero() { return {_mm512_setzero_ps()}; }
  static inline S LoadF32(const std::byte* at) { return {_mm512_loadu_ps(at)}; }
  static inline S LoadF16(const std::byte* at) { return {_mm512_cvtph_ps(V::Load32(at))}; }
  static inline S LoadBF16(const std::byte* at) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(V::Load32(at)), 16))};
  }
  inline void Store(float* at) const { _mm512_storeu_ps(at, v); }
  static inline S Fma(S a, S b, S c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }

  // The tree of Dot16.
  inline float Sum() const {
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
};

bool IntegerRows(const RowsArgs& a) {
  return BlockRowsAvx512(a) || SuperblockRowsAvx512(a) || GridRowsAvx512(a);
}
// Only grids gain from the byte permutations of VBMI.
bool IntegerRowsVbmi(const RowsArgs& a) {
  return BlockRowsAvx512(a) || SuperblockRowsAvx512(a) || GridRowsAvx512Vbmi(a);
}

}  // namespace

constinit const Kernels kAvx512Table = MakeKernels<V, S, IntegerRows>("avx512");
constinit const Kernels kAvx512VbmiTable = MakeKernels<V, S, IntegerRowsVbmi>("avx512vbmi");

}  // namespace glint::cpu
#endif
