// AVX2 with FMA and F16C: 8 weight rows at once. Built with those flags, called only where the processor has them.
#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include <immintrin.h>

#include "cpu/kernels_x86.h"
#include "cpu/simd_table.h"

namespace glint::cpu {
namespace {

struct V {
  static constexpr int kLanes = 8, kGroup = 4;
  using I = __m256i;
  using F = __m256;

  static inline I Set1(int32_t v) { return _mm256_set1_epi32(v); }
  static inline F Set1(float v) { return _mm256_set1_ps(v); }
  static inline F Load(const float* at) { return _mm256_loadu_ps(at); }
  static inline void Store(float* at, F v) { _mm256_storeu_ps(at, v); }
  static inline void Store(int32_t* at, I v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), v); }
  static inline I AsInt(F v) { return _mm256_castps_si256(v); }
  static inline F AsFloat(I v) { return _mm256_castsi256_ps(v); }

  static inline I Add(I a, I b) { return _mm256_add_epi32(a, b); }
  static inline I Sub(I a, I b) { return _mm256_sub_epi32(a, b); }
  static inline I Max(I a, I b) { return _mm256_max_epi32(a, b); }
  static inline I And(I a, I b) { return _mm256_and_si256(a, b); }
  static inline I Or(I a, I b) { return _mm256_or_si256(a, b); }
  static inline I Xor(I a, I b) { return _mm256_xor_si256(a, b); }
  static inline I Shl(I v, int n) { return _mm256_sll_epi32(v, _mm_cvtsi32_si128(n)); }
  static inline I Shr(I v, int n) { return _mm256_srl_epi32(v, _mm_cvtsi32_si128(n)); }
  static inline I Sra(I v, int n) { return _mm256_sra_epi32(v, _mm_cvtsi32_si128(n)); }
  static inline I Times(I a, I b) { return _mm256_mullo_epi32(a, b); }
  static inline int32_t Sum(I v) {
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
    return _mm_cvtsi128_si32(s);
  }
  static inline int32_t Largest(I v) {
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
    return _mm_cvtsi128_si32(m);
  }

  static inline F Add(F a, F b) { return _mm256_add_ps(a, b); }
  static inline F Sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static inline F Mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static inline F Div(F a, F b) { return _mm256_div_ps(a, b); }
  static inline F Fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static inline F Min(F a, F b) { return _mm256_min_ps(a, b); }
  static inline F Max(F a, F b) { return _mm256_max_ps(a, b); }
  static inline F ToFloat(I v) { return _mm256_cvtepi32_ps(v); }
  static inline I Nearest(F v) { return _mm256_cvtps_epi32(v); }  // ties to even
  // a < b ? yes : no
  static inline F IfLess(F a, F b, F yes, F no) {
    return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
  }
  static inline F IfNaN(F nan, F no) {
    return _mm256_blendv_ps(no, nan, _mm256_cmp_ps(nan, nan, _CMP_UNORD_Q));
  }

  // Products of digits with codes as pairs of 16 bits: columns 0 and 2 of a quad, then 1 and 3.
  static constexpr DigitOrder kDigitOrder = DigitOrder::kPairs;
  static constexpr int kQuadBytes = 8;
  struct Code {
    I even, odd;
  };
  using Products = I;
  static inline Products NoProducts() { return _mm256_setzero_si256(); }
  static inline Code Split(I quad) { return {And(quad, Set1(0x00ff00ff)), _mm256_srli_epi16(quad, 8)}; }
  static inline Products Product(Products p, Code code, const std::byte* digits) {
    p = Add(p, _mm256_madd_epi16(code.even, Broadcast(digits)));
    return Add(p, _mm256_madd_epi16(code.odd, Broadcast(digits + 4)));
  }
  static inline I Total(Products p) { return p; }
  static inline I Broadcast(const std::byte* dword) {
    int32_t v;
    std::memcpy(&v, dword, sizeof v);
    return _mm256_set1_epi32(v);
  }

  // The digits of a block from their values, column by column. A pack works within 128 bits, so that a register and its
  // middle dwords exchanged are what remains to be put right.
  static inline void PutDigits(const I* n, int16_t* out) {
    const I order =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
    for (int i = 0; i < 2; ++i) {
      const I packed = _mm256_permute4x64_epi64(_mm256_packs_epi32(n[2 * i], n[2 * i + 1]), 0xd8);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out) + i, _mm256_shuffle_epi8(packed, order));
    }
  }

  static inline F Halfs(const uint16_t* at) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
  }
  static inline F LowHalfs(I v) {
    const I low = And(v, Set1(0xffff));
    return _mm256_cvtph_ps(_mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1)));
  }

  // Per 128 bits: v[i] holds four dwords of row i; becomes dword i of the four rows.
  static inline void Transpose4(I* v) {
    const I a = _mm256_unpacklo_epi32(v[0], v[1]), b = _mm256_unpackhi_epi32(v[0], v[1]);
    const I c = _mm256_unpacklo_epi32(v[2], v[3]), d = _mm256_unpackhi_epi32(v[2], v[3]);
    v[0] = _mm256_unpacklo_epi64(a, c), v[1] = _mm256_unpackhi_epi64(a, c);
    v[2] = _mm256_unpacklo_epi64(b, d), v[3] = _mm256_unpackhi_epi64(b, d);
  }

  static inline __m128i Load16(const std::byte* at) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
  }
  static inline I Load32(const std::byte* at) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
  }

  // out[g], lane l: dword g of the 16 bytes at row[l] + at.
  static inline void Dwords4(const std::byte* const* row, size_t at, I* out) {
    for (int i = 0; i < 4; ++i)
      out[i] =
          _mm256_inserti128_si256(_mm256_castsi128_si256(Load16(row[i] + at)), Load16(row[4 + i] + at), 1);
    Transpose4(out);
  }

  // out[g], lane l: dword g of the 32 bytes at row[l] + at.
  static inline void Quads8(const std::byte* const* row, size_t at, I* out) {
    I v[8];
    for (int i = 0; i < 8; ++i) v[i] = Load32(row[i] + at);
    Transpose4(v);
    Transpose4(v + 4);
    for (int k = 0; k < 4; ++k) {
      out[k] = _mm256_permute2x128_si256(v[k], v[4 + k], 0x20);
      out[4 + k] = _mm256_permute2x128_si256(v[k], v[4 + k], 0x31);
    }
  }
};

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

}  // namespace

constinit const Kernels kAvx2Table = MakeKernels<V, S>("avx2");

}  // namespace glint::cpu
#endif
