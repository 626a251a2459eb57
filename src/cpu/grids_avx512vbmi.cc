// Formats of grid points, AVX-512 with VBMI and GFNI. Built with those flags, called only where the processor has them.
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__) && \
    defined(__AVX512VNNI__) && defined(__AVX512VBMI__) && defined(__GFNI__)
#include "cpu/grid_planes.h"
#include "cpu/kernels_x86.h"
#include "cpu/simd_avx512.h"
#include "cpu/simd_grids.h"

namespace glint::cpu {
namespace {

struct Bytes {
  alignas(64) uint8_t byte[64];
};
// For a permutation of two registers: bytes `first` and first + 2 of each lane of the first, then of the second.
constexpr Bytes EveryOther(int first) {
  Bytes bytes{};
  for (int i = 0; i < 64; ++i)
    bytes.byte[i] = static_cast<uint8_t>(i / 4 * 4 + first + i % 2 * 2 + i % 4 / 2 * 64);
  return bytes;
}

// Points looked up 64 at once: their numbers' bytes choose bytes of the grid's planes, 128 of them at a time, and of what
// comes out the numbers' higher bits choose. A quad's four coordinates and signs are then shifted to the low bits of its bytes, and
// those choose codes from a table.
struct PermutedPoints {
  using I = V::I;

  template <GridName kGrid>
  static inline void Points8(I low, I high, I signs, I* codes) {
    const auto& planes = PlanesOf<kGrid>();
    const I half[2] = {Plane(planes.plane[0], low, high), Plane(planes.plane[1], low, high)};
    const I table = Table<kGrid>();
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) {
      const I place = _mm512_multishift_epi64_epi8(BitsFrom(g / 2 * 8, 2), half[g % 2]);
      const I sign = _mm512_multishift_epi64_epi8(BitsFrom(4 * g - 2, 1), signs);
      codes[g] = _mm512_permutexvar_epi8(Choose(0x03, place, sign), table);
    }
  }

  template <GridName kGrid>
  static inline void Points4(const I* low, const I* high, I signs, I* codes) {
    const auto& planes = PlanesOf<kGrid>();
    I half[2][2];
    for (int i = 0; i < 2; ++i)
      for (int p = 0; p < 2; ++p)
        half[i][p] = Plane(planes.plane[p], low[i], HighBits(kGrid) > 0 ? high[i] : low[i]);
    const I table = Table<kGrid>();
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) {
      // Bytes 0 and 1 from the first plane, 2 and 3 from the second.
      const int at = g % 4 * 8;
      const I first = _mm512_multishift_epi64_epi8(BitsFrom(at, 3), half[g / 4][0]);
      const I place =
          _mm512_mask_multishift_epi64_epi8(first, 0xccccccccccccccccu, BitsFrom(at - 6, 3), half[g / 4][1]);
      const I sign = _mm512_multishift_epi64_epi8(BitsFrom(4 * g - 3, 1), signs);
      codes[g] = _mm512_permutexvar_epi8(Choose(0x07, place, sign), table);
    }
  }

  static inline I Spread(I v, int at, int bits) {
    const I from = _mm512_add_epi8(BitsFrom(0, bits), _mm512_set1_epi8(static_cast<char>(at)));
    return V::And(_mm512_multishift_epi64_epi8(from, v), V::Set1(((1 << bits) - 1) * 0x01010101));
  }

  // A product of each byte with a matrix of bits: row 7, the first byte of it, sums all seven.
  static inline I EvenSigns(I seven) {
    return _mm512_gf2p8affine_epi64_epi8(seven, _mm512_set1_epi64(0x010204081020407f), 0);
  }

  static inline void LowAndHigh(I a, I b, I& low, I& high) {
    static constexpr Bytes kLow = EveryOther(0), kHigh = EveryOther(1);
    low = _mm512_permutex2var_epi8(a, _mm512_load_si512(kLow.byte), b);
    high = _mm512_permutex2var_epi8(a, _mm512_load_si512(kHigh.byte), b);
  }

 private:
  template <GridName kGrid>
  static inline const auto& PlanesOf() {
    if constexpr (kGrid == GridName::kIq2Xxs) return kIq2XxsPlanes;
    if constexpr (kGrid == GridName::kIq2Xs) return kIq2XsPlanes;
    if constexpr (kGrid == GridName::kIq2S) return kIq2SPlanes;
    if constexpr (kGrid == GridName::kIq3Xxs) return kIq3XxsPlanes;
    if constexpr (kGrid == GridName::kIq3S) return kIq3SPlanes;
    if constexpr (kGrid == GridName::kIq1) return kIq1Planes;
  }

  // The plane's bytes of the points.
  template <size_t kPoints>
  static inline I Plane(const uint8_t (&plane)[kPoints], I low, I high) {
    constexpr int kSteps = kPoints / 128;
    I v[kSteps];
#pragma GCC unroll 16
    for (int i = 0; i < kSteps; ++i)
      v[i] = _mm512_permutex2var_epi8(_mm512_load_si512(plane + 128 * i), low,
                                      _mm512_load_si512(plane + 128 * i + 64));
    const __mmask64 bit7 = _mm512_movepi8_mask(low);
#pragma GCC unroll 4
    for (int width = kSteps / 2, bit = 0; width > 0; width /= 2, ++bit) {
      const __mmask64 upper =
          bit == 0 ? bit7 : _mm512_test_epi8_mask(high, V::Set1((1 << (bit - 1)) * 0x01010101));
#pragma GCC unroll 8
      for (int i = 0; i < width; ++i) v[i] = _mm512_mask_blend_epi8(upper, v[2 * i], v[2 * i + 1]);
    }
    return v[0];
  }

  // For a multishift: the byte of column j of a quad is to begin at bit `at` + j * bits of its lane.
  static inline I BitsFrom(int at, int bits) {
    uint64_t control = 0;
    for (int j = 0; j < 8; ++j)
      control |= static_cast<uint64_t>((j / 4 * 32 + at + j % 4 * bits) & 63) << (8 * j);
    return _mm512_set1_epi64(static_cast<int64_t>(control));
  }

  // Bits of a where the mask's byte has ones, of b elsewhere.
  static inline I Choose(int mask, I a, I b) {
    return _mm512_ternarylogic_epi64(V::Set1(mask * 0x01010101), a, b, 0xca);
  }

  // Biased codes by place and sign; the permutation ignores what is above six bits, the table what is above the sign.
  template <GridName kGrid>
  static inline I Table() {
    static constexpr Codes kCodes = MakeCodes<kGrid>();
    return _mm512_load_si512(kCodes.code);
  }
  struct Codes {
    alignas(64) int8_t code[64];
  };
  template <GridName kGrid>
  static constexpr Codes MakeCodes() {
    Codes codes{};
    for (int i = 0; i < 64; ++i) {
      constexpr bool kThree = kGrid == GridName::kIq3Xxs || kGrid == GridName::kIq3S;
      const int place = kThree ? i & 7 : i & 3, sign = (kThree ? i & 8 : i & 4) ? -1 : 1;
      int code = 0;
      if constexpr (kGrid == GridName::kIq3Xxs) {
        code = sign * kIq3XxsValues[place];
      } else if constexpr (kGrid == GridName::kIq3S) {
        code = sign * kIq3SValues[place];
      } else if (place < 3) {
        code = kGrid == GridName::kIq1 ? 8 * kIq1Values[place] + sign : sign * kIq2Values[place];
      }
      codes.code[i] = static_cast<int8_t>(code + BiasOf(kGrid));
    }
    return codes;
  }
};

}  // namespace

bool GridRowsAvx512Vbmi(const RowsArgs& a) {
  return a.one_digit ? GridRows<OneDigitOf<V>, PermutedPoints>(a) : GridRows<V, PermutedPoints>(a);
}

}  // namespace glint::cpu
#endif
