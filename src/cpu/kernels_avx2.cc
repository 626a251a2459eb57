// AVX2 with FMA and F16C: 8 weight rows at once. Built with those flags, called only where the processor has them.
#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include "cpu/kernels_x86.h"
#include "cpu/simd_avx2.h"
#include "cpu/simd_table.h"

namespace glint::cpu {
namespace {

struct S {
  static constexpr int kGroup = 2, kWeightRows = 2, kDecodeRows = 4;
  __m256 low, high;

  static inline S Zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static inline S LoadF32(const std::byte* at) {
    const auto* const f = reinterpret_cast<const float*>(at);
    return {_mm256_loadu_ps(f), _mm256_loadu_ps(f + 8)};
  }
  static inline S LoadF16(const std::byte* at) {
    return {_mm256_cvtph_ps(V::Load16(at)), _mm256_cvtph_ps(V::Load16(at + 16))};
  }
  static inline S LoadBF16(const std::byte* at) {
    return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(V::Load16(at)), 16)),
            _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(V::Load16(at + 16)), 16))};
  }
  inline void Store(float* at) const { _mm256_storeu_ps(at, low), _mm256_storeu_ps(at + 8, high); }
  static inline S Fma(S a, S b, S c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
  }

  // The tree of Dot16.
  inline float Sum() const {
    const __m256 eight = _mm256_add_ps(low, high);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
};

bool IntegerRows(const RowsArgs& a) { return BlockRowsAvx2(a) || SuperblockRowsAvx2(a) || GridRowsAvx2(a); }

}  // namespace

constinit const Kernels kAvx2Table = MakeKernels<V, S, IntegerRows>("avx2");

}  // namespace glint::cpu
#endif
