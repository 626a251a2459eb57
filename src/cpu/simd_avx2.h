// The operations of AVX2 with FMA and F16C: 8 weight rows at once. Included by files built with those flags
// (cmake/layers.cmake); unnamed for the reason in cpu/simd_integer.h.
#pragma once
#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cpu/kernels.h"

namespace glint::cpu {
namespace {

struct V {
  static constexpr int kLanes = 8, kGroup = 4;
  using Base = V;
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

  // Bytes by themselves.
  static inline I AddBytes(I a, I b) { return _mm256_add_epi8(a, b); }
  static inline I AverageBytes(I a, I b) { return _mm256_avg_epu8(a, b); }  // (a + b + 1) / 2
  static inline I Table16(const int8_t* at) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
  }
  static inline I Lookup16(I table, I index) { return _mm256_shuffle_epi8(table, index); }  // bytes below 16
  // Byte j of a lane: all ones where bit 4 g + j of the lane is set.
  static inline I BitBytes(I bits, int g) {
    const I byte = _mm256_add_epi32(
        Set1(g / 2 * 0x01010101),
        _mm256_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c, 0, 0x04040404, 0x08080808, 0x0c0c0c0c));
    const I bit = Set1(g % 2 ? static_cast<int32_t>(0x80402010) : 0x08040201);
    return _mm256_cmpeq_epi8(And(_mm256_shuffle_epi8(bits, byte), bit), bit);
  }
  // Byte j of a lane: value's where bit 4 g + j of `bits` is set, else 0.
  static inline I IfBits(I bits, int g, I value) { return And(BitBytes(bits, g), value); }
  // Byte j of a lane: bias + x, or bias - x where bit 4 g + j of `signs` is set.
  static inline I AddSigned(I bias, I x, I signs, int g) {
    const I minus = BitBytes(signs, g);
    return _mm256_add_epi8(bias, _mm256_sub_epi8(Xor(x, minus), minus));
  }
  // out[h], lane l: coordinates 4 h ... 4 h + 3 of point index[l].
  static inline void Points8(const int8_t (*grid)[8], I index, I* out) {
    alignas(32) int32_t n[kLanes];
    Store(n, index);
    __m256 v[2];  // rows 0, 1, 4, 5 and rows 2, 3, 6, 7
    for (int i = 0; i < 2; ++i) {
      const auto two = [&](int l) {
        const __m128i low = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(grid[n[l]]));
        return _mm_castps_si128(
            _mm_loadh_pi(_mm_castsi128_ps(low), reinterpret_cast<const __m64*>(grid[n[l + 1]])));
      };
      v[i] =
          _mm256_castsi256_ps(_mm256_inserti128_si256(_mm256_castsi128_si256(two(2 * i)), two(2 * i + 4), 1));
    }
    out[0] = AsInt(_mm256_shuffle_ps(v[0], v[1], 0x88));
    out[1] = AsInt(_mm256_shuffle_ps(v[0], v[1], 0xdd));
  }
  // The same of four coordinates.
  static inline I Points4(const int8_t (*grid)[4], I index) {
    alignas(32) int32_t n[kLanes];
    Store(n, index);
    const auto point = [&](int l) {
      int32_t v;
      std::memcpy(&v, grid[n[l]], sizeof v);
      return v;
    };
    return _mm256_setr_epi32(point(0), point(1), point(2), point(3), point(4), point(5), point(6), point(7));
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

}  // namespace
}  // namespace glint::cpu
