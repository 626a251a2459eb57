// The operations of AVX-512 (F, BW, DQ, VL, VNNI): 16 weight rows at once. Included by files built with those flags
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
  static constexpr int kLanes = 16, kGroup = 4;
  using Base = V;
  using I = __m512i;
  using F = __m512;

  static inline I Set1(int32_t v) { return _mm512_set1_epi32(v); }
  static inline F Set1(float v) { return _mm512_set1_ps(v); }
  static inline F Load(const float* at) { return _mm512_loadu_ps(at); }
  static inline void Store(float* at, F v) { _mm512_storeu_ps(at, v); }
  static inline void Store(int32_t* at, I v) { _mm512_storeu_si512(at, v); }
  static inline I AsInt(F v) { return _mm512_castps_si512(v); }
  static inline F AsFloat(I v) { return _mm512_castsi512_ps(v); }

  static inline I Add(I a, I b) { return _mm512_add_epi32(a, b); }
  static inline I Sub(I a, I b) { return _mm512_sub_epi32(a, b); }
  static inline I Max(I a, I b) { return _mm512_max_epi32(a, b); }
  static inline I And(I a, I b) { return _mm512_and_si512(a, b); }
  static inline I Or(I a, I b) { return _mm512_or_si512(a, b); }
  static inline I Xor(I a, I b) { return _mm512_xor_si512(a, b); }
  static inline I Shl(I v, int n) { return _mm512_sll_epi32(v, _mm_cvtsi32_si128(n)); }
  static inline I Shr(I v, int n) { return _mm512_srl_epi32(v, _mm_cvtsi32_si128(n)); }
  static inline I Sra(I v, int n) { return _mm512_sra_epi32(v, _mm_cvtsi32_si128(n)); }
  static inline I Times(I a, I b) { return _mm512_mullo_epi32(a, b); }
  static inline int32_t Sum(I v) { return _mm512_reduce_add_epi32(v); }
  static inline int32_t Largest(I v) { return _mm512_reduce_max_epi32(v); }

  static inline F Add(F a, F b) { return _mm512_add_ps(a, b); }
  static inline F Sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static inline F Mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static inline F Div(F a, F b) { return _mm512_div_ps(a, b); }
  static inline F Fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static inline F Min(F a, F b) { return _mm512_min_ps(a, b); }
  static inline F Max(F a, F b) { return _mm512_max_ps(a, b); }
  static inline F ToFloat(I v) { return _mm512_cvtepi32_ps(v); }
  static inline I Nearest(F v) { return _mm512_cvtps_epi32(v); }  // ties to even
  // a < b ? yes : no
  static inline F IfLess(F a, F b, F yes, F no) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
  }
  static inline F IfNaN(F nan, F no) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(nan, nan, _CMP_UNORD_Q), no, nan);
  }

  // Products of digits with codes, the digits' high and low bytes apart: 256 hi + lo = n.
  static constexpr DigitOrder kDigitOrder = DigitOrder::kPlanes;
  static constexpr int kQuadBytes = 4;
  using Code = I;
  struct Products {
    I high, low;
  };
  static inline Products NoProducts() { return {_mm512_setzero_si512(), _mm512_setzero_si512()}; }
  static inline Code Split(I quad) { return quad; }
  static inline Products Product(Products p, Code code, const std::byte* digits) {
    return {_mm512_dpbusd_epi32(p.high, code, Broadcast(digits)),
            _mm512_dpbusd_epi32(p.low, code, Broadcast(digits + 32))};
  }
  static inline I Total(Products p) { return Add(_mm512_slli_epi32(p.high, 8), p.low); }
  static inline I Broadcast(const std::byte* dword) {
    int32_t v;
    std::memcpy(&v, dword, sizeof v);
    return _mm512_set1_epi32(v);
  }

  // Bytes by themselves.
  static inline I AddBytes(I a, I b) { return _mm512_add_epi8(a, b); }
  static inline I AverageBytes(I a, I b) { return _mm512_avg_epu8(a, b); }  // (a + b + 1) / 2
  static inline I Table16(const int8_t* at) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
  }
  static inline I Lookup16(I table, I index) { return _mm512_shuffle_epi8(table, index); }  // bytes below 16
  // Byte j of a lane: whether bit 4 g + j of the lane is set.
  static inline __mmask64 BitBytes(I bits, int g) {
    const I byte =
        _mm512_add_epi32(Set1(g / 2 * 0x01010101),
                         _mm512_broadcast_i32x4(_mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c)));
    const I bit = Set1(g % 2 ? static_cast<int32_t>(0x80402010) : 0x08040201);
    return _mm512_test_epi8_mask(_mm512_shuffle_epi8(bits, byte), bit);
  }
  // Byte j of a lane: value's where bit 4 g + j of `bits` is set, else 0.
  static inline I IfBits(I bits, int g, I value) { return _mm512_maskz_mov_epi8(BitBytes(bits, g), value); }
  // Byte j of a lane: bias + x, or bias - x where bit 4 g + j of `signs` is set.
  static inline I AddSigned(I bias, I x, I signs, int g) {
    return _mm512_mask_sub_epi8(AddBytes(bias, x), BitBytes(signs, g), bias, x);
  }
  // out[h], lane l: coordinates 4 h ... 4 h + 3 of point index[l].
  static inline void Points8(const int8_t (*grid)[8], I index, I* out) {
    alignas(64) int32_t n[kLanes];
    Store(n, index);
    __m512 v[2];  // rows 0, 1, 4, 5, 8 ... and rows 2, 3, 6, 7, 10 ...
    for (int i = 0; i < 2; ++i) {
      const auto two = [&](int l) {
        const __m128i low = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(grid[n[l]]));
        return _mm_castps_si128(
            _mm_loadh_pi(_mm_castsi128_ps(low), reinterpret_cast<const __m64*>(grid[n[l + 1]])));
      };
      const auto four = [&](int l) {
        return _mm256_inserti128_si256(_mm256_castsi128_si256(two(l)), two(l + 4), 1);
      };
      v[i] = AsFloat(_mm512_inserti64x4(_mm512_castsi256_si512(four(2 * i)), four(2 * i + 8), 1));
    }
    out[0] = AsInt(_mm512_shuffle_ps(v[0], v[1], 0x88));
    out[1] = AsInt(_mm512_shuffle_ps(v[0], v[1], 0xdd));
  }
  // The same of four coordinates.
  static inline I Points4(const int8_t (*grid)[4], I index) {
    alignas(64) int32_t n[kLanes];
    Store(n, index);
    const auto four = [&](int l) {
      int32_t v[4];
      for (int i = 0; i < 4; ++i) std::memcpy(v + i, grid[n[l + i]], 4);
      return _mm_setr_epi32(v[0], v[1], v[2], v[3]);
    };
    const __m512i low = _mm512_inserti32x4(_mm512_castsi128_si512(four(0)), four(4), 1);
    return _mm512_inserti32x4(_mm512_inserti32x4(low, four(8), 2), four(12), 3);
  }

  // The digits of a block from their values, column by column.
  static inline void PutDigits(const I* n, int16_t* out) {
    auto* const planes = reinterpret_cast<__m128i*>(out);
    for (int i = 0; i < 2; ++i) {
      const I high = _mm512_srai_epi32(Add(n[i], Set1(128)), 8);
      _mm_storeu_si128(planes + i, _mm512_cvtepi32_epi8(high));
      _mm_storeu_si128(planes + 2 + i, _mm512_cvtepi32_epi8(n[i]));
    }
  }

  static inline F Halfs(const uint16_t* at) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
  }
  static inline F LowHalfs(I v) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v)); }

  // Per 128 bits: v[i] holds four dwords of row i; becomes dword i of the four rows.
  static inline void Transpose4(I* v) {
    const I a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpackhi_epi32(v[0], v[1]);
    const I c = _mm512_unpacklo_epi32(v[2], v[3]), d = _mm512_unpackhi_epi32(v[2], v[3]);
    v[0] = _mm512_unpacklo_epi64(a, c), v[1] = _mm512_unpackhi_epi64(a, c);
    v[2] = _mm512_unpacklo_epi64(b, d), v[3] = _mm512_unpackhi_epi64(b, d);
  }

  static inline __m128i Load16(const std::byte* at) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
  }
  static inline __m256i Load32(const std::byte* at) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
  }

  // out[g], lane l: dword g of the 16 bytes at row[l] + at.
  static inline void Dwords4(const std::byte* const* row, size_t at, I* out) {
    for (int i = 0; i < 4; ++i) {
      I v = _mm512_castsi128_si512(Load16(row[i] + at));
      v = _mm512_inserti32x4(v, Load16(row[4 + i] + at), 1);
      v = _mm512_inserti32x4(v, Load16(row[8 + i] + at), 2);
      out[i] = _mm512_inserti32x4(v, Load16(row[12 + i] + at), 3);
    }
    Transpose4(out);
  }

  // out[g], lane l: dword g of the 32 bytes at row[l] + at.
  static inline void Quads8(const std::byte* const* row, size_t at, I* out) {
    I v[8];  // v[i] = rows i and i + 4, v[4 + i] = rows i + 8 and i + 12
    for (int i = 0; i < 8; ++i) {
      const int first = i + (i & 4);
      v[i] =
          _mm512_inserti64x4(_mm512_castsi256_si512(Load32(row[first] + at)), Load32(row[first + 4] + at), 1);
    }
    Transpose4(v);
    Transpose4(v + 4);
    for (int k = 0; k < 4; ++k) {
      out[k] = _mm512_shuffle_i64x2(v[k], v[4 + k], 0x88);
      out[4 + k] = _mm512_shuffle_i64x2(v[k], v[4 + k], 0xdd);
    }
  }
};

// The same where all digits are in the low planes.
template <class B>
struct OneDigitOf : B {
  static constexpr int kGroup = 8;
  using I = typename B::I;
  using Code = typename B::Code;
  using Products = I;
  static inline Products NoProducts() { return _mm512_setzero_si512(); }
  static inline Products Product(Products p, Code code, const std::byte* digits) {
    return _mm512_dpbusd_epi32(p, code, B::Broadcast(digits + 32));
  }
  static inline I Total(Products p) { return p; }
};

}  // namespace
}  // namespace glint::cpu
