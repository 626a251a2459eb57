// Formats whose codes are points of grids (quant/iq_grids.h). Included once by each file of their kernels; unnamed for the reason in
// cpu/simd_integer.h.
//
// The numbers of points, their high bits and the signs are brought into lane order and spread to a byte a point by arithmetic; how points
// are looked up is the business of `Lookup`: point by point from memory (LoadedPoints), or 64 at once by permutations.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cpu/kernels.h"
#include "cpu/simd_integer.h"
#include "quant/iq_grids.h"

namespace glint::cpu {
namespace {

enum class GridName { kIq2Xxs, kIq2Xs, kIq2S, kIq3Xxs, kIq3S, kIq1 };

// Codes come plus these: the largest are 43, 62, 15 and 9.
constexpr int BiasOf(GridName grid) { return grid == GridName::kIq3S || grid == GridName::kIq1 ? 16 : 64; }
// How many bits a number has beyond the lowest eight.
constexpr int HighBits(GridName grid) {
  switch (grid) {
    case GridName::kIq2Xxs:
    case GridName::kIq3Xxs:
      return 0;
    case GridName::kIq2Xs:
    case GridName::kIq3S:
      return 1;
    case GridName::kIq2S:
      return 2;
    default:
      return 3;
  }
}

template <class V>
struct LoadedPoints {
  using I = typename V::I;

  // The codes of 32 columns, eight quads: of four points, whose numbers' low bytes are the bytes of `low` and high bits the bytes of `high`,
  // negated where a bit of `signs` is set. IQ1: eight times the point plus one, or minus one where the signs' bit is set; a point's are equal.
  template <GridName kGrid>
  static inline void Points8(I low, I high, I signs, I* codes) {
    for (int p = 0; p < 4; ++p) {
      I number = V::And(V::Shr(low, 8 * p), V::Set1(255));
      if constexpr (HighBits(kGrid) > 0)
        number = V::Or(number, V::Shl(V::And(V::Shr(high, 8 * p), V::Set1(255)), 8));
      V::Points8(Grid8<kGrid>(), number, codes + 2 * p);
    }
    const I bias = V::Set1(BiasOf(kGrid) * 0x01010101), one = V::Set1(0x01010101);
    for (int g = 0; g < 8; ++g) {
      if constexpr (kGrid == GridName::kIq1) {
        codes[g] = V::Shl(V::AddBytes(codes[g], V::Set1(0x02020202)), 3);  // 8 point + 16
        codes[g] = V::AddSigned(codes[g], one, signs, g);
      } else {
        codes[g] = V::AddSigned(bias, codes[g], signs, g);
      }
    }
  }

  // The same of eight points of four coordinates, the second four in low[1] and high[1].
  template <GridName kGrid>
  static inline void Points4(const I* low, const I* high, I signs, I* codes) {
    const I bias = V::Set1(BiasOf(kGrid) * 0x01010101);
    for (int g = 0; g < 8; ++g) {
      const int byte = g % 4 * 8;
      I number = V::And(V::Shr(low[g / 4], byte), V::Set1(255));
      if constexpr (HighBits(kGrid) > 0)
        number = V::Or(number, V::Shl(V::And(V::Shr(high[g / 4], byte), V::Set1(255)), 8));
      codes[g] = V::AddSigned(bias, V::Points4(Grid4<kGrid>(), number), signs, g);
    }
  }

  // Fields of `bits` bits, one after another from bit `at` on, to a byte each of four.
  static inline I Spread(I v, int at, int bits) {
    const int mask = (1 << bits) - 1;
    v = V::Shr(v, at);
    I out = V::And(v, V::Set1(mask));
    for (int p = 1; p < 4; ++p)
      out = V::Or(out, V::And(V::Shl(v, (8 - bits) * p),
                              V::Set1(static_cast<int32_t>(static_cast<uint32_t>(mask) << (8 * p)))));
    return out;
  }

  // Eight signs a byte from seven, the lowest bits: the eighth makes their number even (quant/iq_signs.h).
  static inline I EvenSigns(I seven) {
    seven = V::And(seven, V::Set1(0x7f7f7f7f));
    I parity = V::Xor(
        seven, V::Shr(seven, 4));  // right in the low bits of each byte, which is all that is asked of them
    parity = V::Xor(parity, V::Shr(parity, 2));
    parity = V::Xor(parity, V::Shr(parity, 1));
    return V::Or(seven, V::Shl(V::And(parity, V::Set1(0x01010101)), 7));
  }

  // The low and the high bytes of four words, two in each of a and b.
  static inline void LowAndHigh(I a, I b, I& low, I& high) {
    const I bytes = V::Set1(0x00ff00ff);  // in the order 0, 2, 1, 3 at first
    low = Middle(V::Or(V::And(a, bytes), V::Shl(V::And(b, bytes), 8)));
    high = Middle(V::Or(V::And(V::Shr(a, 8), bytes), V::Shl(V::And(V::Shr(b, 8), bytes), 8)));
  }

 private:
  // Bytes 1 and 2 of each lane exchanged.
  static inline I Middle(I v) {
    const I outer = V::And(v, V::Set1(static_cast<int32_t>(0xff0000ff)));
    return V::Or(outer,
                 V::Or(V::And(V::Shl(v, 8), V::Set1(0x00ff0000)), V::And(V::Shr(v, 8), V::Set1(0x0000ff00))));
  }

  template <GridName kGrid>
  static inline const int8_t (*Grid8())[8] {
    if constexpr (kGrid == GridName::kIq2Xxs) return quant::kIq2XxsGrid.point;
    if constexpr (kGrid == GridName::kIq2Xs) return quant::kIq2XsGrid.point;
    if constexpr (kGrid == GridName::kIq2S) return quant::kIq2SGrid.point;
    if constexpr (kGrid == GridName::kIq1) return quant::kIq1Grid.point;
  }
  template <GridName kGrid>
  static inline const int8_t (*Grid4())[4] {
    if constexpr (kGrid == GridName::kIq3Xxs) return quant::kIq3XxsGrid.point;
    if constexpr (kGrid == GridName::kIq3S) return quant::kIq3SGrid.point;
  }
};

// The super scale at the head of a block, times `factor`.
template <class V>
inline typename V::F HeadScale(const RowPointers<V>& rows, size_t at, float factor) {
  uint16_t half[V::kLanes];
  for (int l = 0; l < V::kLanes; ++l) std::memcpy(&half[l], rows.row[l] + at, 2);
  return V::Mul(V::Halfs(half), V::Set1(factor));
}

// d * (2 v + 1), v the `bits` bits of `from` from bit `shift` on.
template <class V>
inline typename V::F OddScale(typename V::F d, typename V::I from, int shift, int bits) {
  const auto twice = V::And(V::Shl(V::Shr(from, shift), 1), V::Set1((2 << bits) - 2));
  return V::Mul(d, V::ToFloat(V::Or(twice, V::Set1(1))));
}

template <class V, class Lookup>
struct IQ2_XXSRows {
  static constexpr GridName kGrid = GridName::kIq2Xxs;
  static constexpr int kUnit = 32, kBlockColumns = 256, kBlockBytes = 66, kBias = BiasOf(kGrid);
  static constexpr bool kMinima = false;

  template <class Unit>
  static inline void Unpack(const RowPointers<V>& rows, size_t at, int, Unit& unit) {
    using I = typename V::I;
    const auto d = HeadScale<V>(rows, at, 0.125f);
    for (int half = 0; half < 2; ++half) {
      I q[8];  // points and signs by turns
      V::Quads8(rows.row, at + 2 + 32 * static_cast<size_t>(half), q);
      for (int j = 0; j < 4; ++j) {
        I codes[8];
        const I word = q[2 * j + 1];
        Lookup::template Points8<kGrid>(q[2 * j], word, Lookup::EvenSigns(Lookup::Spread(word, 0, 7)), codes);
        unit(
            half * 4 + j, [&](int g) { return codes[g]; }, OddScale<V>(d, word, 28, 4), V::Set1(0.0f));
      }
    }
  }
};

template <class V, class Lookup>
struct IQ2_XSRows {
  static constexpr GridName kGrid = GridName::kIq2Xs;
  static constexpr int kUnit = 16, kBlockColumns = 256, kBlockBytes = 74, kBias = BiasOf(kGrid);
  static constexpr bool kMinima = false;

  template <class Unit>
  static inline void Unpack(const RowPointers<V>& rows, size_t at, int, Unit& unit) {
    using I = typename V::I;
    const auto d = HeadScale<V>(rows, at, 0.125f);
    I end[4];
    V::Dwords4(rows.row, at + 58, end);  // the last two: scales
    const I one = V::Set1(0x01010101);
    for (int half = 0; half < 2; ++half) {
      I q[8];  // two points each
      V::Quads8(rows.row, at + 2 + 32 * static_cast<size_t>(half), q);
      for (int j = 0; j < 4; ++j) {
        I low, high;
        Lookup::LowAndHigh(q[2 * j], q[2 * j + 1], low, high);
        I codes[8];
        Lookup::template Points8<kGrid>(low, V::And(high, one), Lookup::EvenSigns(V::Shr(high, 1)), codes);
        for (int i = 0; i < 2; ++i) {
          const int u = half * 8 + 2 * j + i;
          unit(
              u, [&](int g) { return codes[4 * i + g]; }, OddScale<V>(d, end[2 + u / 8], u % 8 * 4, 4),
              V::Set1(0.0f));
        }
      }
    }
  }
};

template <class V, class Lookup>
struct IQ2_SRows {
  static constexpr GridName kGrid = GridName::kIq2S;
  static constexpr int kUnit = 16, kBlockColumns = 256, kBlockBytes = 82, kBias = BiasOf(kGrid);
  static constexpr bool kMinima = false;

  template <class Unit>
  static inline void Unpack(const RowPointers<V>& rows, size_t at, int, Unit& unit) {
    using I = typename V::I;
    const auto d = HeadScale<V>(rows, at, 0.125f);
    I point[8], signs[8], end[4];
    V::Quads8(rows.row, at + 2, point);
    V::Quads8(rows.row, at + 34, signs);
    V::Dwords4(rows.row, at + 66, end);  // two dwords of high bits, two of scales
    for (int j = 0; j < 8; ++j) {
      I codes[8];
      Lookup::template Points8<kGrid>(point[j], Lookup::Spread(end[j / 4], j % 4 * 8, 2), signs[j], codes);
      for (int i = 0; i < 2; ++i) {
        const int u = 2 * j + i;
        unit(
            u, [&](int g) { return codes[4 * i + g]; }, OddScale<V>(d, end[2 + u / 8], u % 8 * 4, 4),
            V::Set1(0.0f));
      }
    }
  }
};

template <class V, class Lookup>
struct IQ3_XXSRows {
  static constexpr GridName kGrid = GridName::kIq3Xxs;
  static constexpr int kUnit = 32, kBlockColumns = 256, kBlockBytes = 98, kBias = BiasOf(kGrid);
  static constexpr bool kMinima = false;

  template <class Unit>
  static inline void Unpack(const RowPointers<V>& rows, size_t at, int, Unit& unit) {
    using I = typename V::I;
    const auto d = HeadScale<V>(rows, at, 0.25f);
    I word[8];
    V::Quads8(rows.row, at + 66, word);
    for (int half = 0; half < 2; ++half) {
      I q[8];
      V::Quads8(rows.row, at + 2 + 32 * static_cast<size_t>(half), q);
      for (int j = 0; j < 4; ++j) {
        I codes[8];
        const I w = word[half * 4 + j];
        Lookup::template Points4<kGrid>(q + 2 * j, nullptr, Lookup::EvenSigns(Lookup::Spread(w, 0, 7)),
                                        codes);
        unit(
            half * 4 + j, [&](int g) { return codes[g]; }, OddScale<V>(d, w, 28, 4), V::Set1(0.0f));
      }
    }
  }
};

template <class V, class Lookup>
struct IQ3_SRows {
  static constexpr GridName kGrid = GridName::kIq3S;
  static constexpr int kUnit = 32, kBlockColumns = 256, kBlockBytes = 110, kBias = BiasOf(kGrid);
  static constexpr bool kMinima = false;

  template <class Unit>
  static inline void Unpack(const RowPointers<V>& rows, size_t at, int, Unit& unit) {
    using I = typename V::I;
    const auto d = HeadScale<V>(rows, at, 1.0f);
    I signs[8], high[4], end[4];
    V::Dwords4(rows.row, at + 66, high);  // two dwords of high bits
    V::Quads8(rows.row, at + 74, signs);
    V::Dwords4(rows.row, at + 94, end);  // the last one: scales
    for (int half = 0; half < 2; ++half) {
      I q[8];
      V::Quads8(rows.row, at + 2 + 32 * static_cast<size_t>(half), q);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        const int u = half * 4 + j;
        I codes[8];
        const I top[2] = {Lookup::Spread(high[half], 8 * j, 1), Lookup::Spread(high[half], 8 * j + 4, 1)};
        Lookup::template Points4<kGrid>(q + 2 * j, top, signs[u], codes);
        unit(
            u, [&](int g) { return codes[g]; }, OddScale<V>(d, end[3], 4 * u, 4), V::Set1(0.0f));
      }
    }
  }
};

template <class V, class Lookup>
struct IQ1_SRows {
  static constexpr GridName kGrid = GridName::kIq1;
  static constexpr int kUnit = 32, kBlockColumns = 256, kBlockBytes = 50, kBias = BiasOf(kGrid);
  static constexpr bool kMinima = false;

  template <class Unit>
  static inline void Unpack(const RowPointers<V>& rows, size_t at, int, Unit& unit) {
    using I = typename V::I;
    const auto d = HeadScale<V>(rows, at, 0.125f);
    I point[8], high[4];
    V::Quads8(rows.row, at + 2, point);
    V::Dwords4(rows.row, at + 34, high);
    for (int u = 0; u < 8; ++u) {
      const I word = V::Shr(high[u / 2], u % 2 * 16);
      I codes[8];
      Lookup::template Points8<kGrid>(point[u], Lookup::Spread(word, 0, 3), V::Sra(V::Shl(word, 16), 31),
                                      codes);
      unit(
          u, [&](int g) { return codes[g]; }, OddScale<V>(d, word, 12, 3), V::Set1(0.0f));
    }
  }
};

template <class V, class Lookup>
struct IQ1_MRows {
  static constexpr GridName kGrid = GridName::kIq1;
  static constexpr int kUnit = 16, kBlockColumns = 256, kBlockBytes = 56, kBias = BiasOf(kGrid);
  static constexpr bool kMinima = false;

  template <class Unit>
  static inline void Unpack(const RowPointers<V>& rows, size_t at, int, Unit& unit) {
    using I = typename V::I;
    I point[8], high[4], end[4];
    V::Quads8(rows.row, at, point);
    V::Dwords4(rows.row, at + 32, high);
    V::Dwords4(rows.row, at + 40,
               end);  // the last two: scales of three bits, a nibble of d on top of every four
    const I nibble = V::Set1(15);
    const I d_bits =
        V::Or(V::Or(V::And(V::Shr(end[2], 12), nibble), V::Shl(V::Shr(end[2], 28), 4)),
              V::Or(V::Shl(V::And(V::Shr(end[3], 12), nibble), 8), V::Shl(V::Shr(end[3], 28), 12)));
    const auto d = V::Mul(V::LowHalfs(d_bits), V::Set1(0.125f));
    for (int j = 0; j < 8; ++j) {
      const I nibbles = Lookup::Spread(high[j / 2], j % 2 * 16, 4);
      const I down = V::And(V::Shr(nibbles, 3), V::Set1(0x01010101));
      I codes[8];
      Lookup::template Points8<kGrid>(point[j], V::And(nibbles, V::Set1(0x07070707)),
                                      V::Sub(V::Shl(down, 8), down), codes);
      for (int i = 0; i < 2; ++i) {
        const int u = 2 * j + i;
        unit(
            u, [&](int g) { return codes[4 * i + g]; },
            OddScale<V>(d, end[2 + u / 8], u / 4 % 2 * 16 + u % 4 * 3, 3), V::Set1(0.0f));
      }
    }
  }
};

// False: not a format of this file.
template <class V, class Lookup>
bool GridRows(const RowsArgs& a) {
  using B = typename V::Base;
  switch (a.type) {
    case quant::Type::kIQ1_S:
      return IntegerRows<V, IQ1_SRows<B, Lookup>>(a), true;
    case quant::Type::kIQ1_M:
      return IntegerRows<V, IQ1_MRows<B, Lookup>>(a), true;
    case quant::Type::kIQ2_XXS:
      return IntegerRows<V, IQ2_XXSRows<B, Lookup>>(a), true;
    case quant::Type::kIQ2_XS:
      return IntegerRows<V, IQ2_XSRows<B, Lookup>>(a), true;
    case quant::Type::kIQ2_S:
      return IntegerRows<V, IQ2_SRows<B, Lookup>>(a), true;
    case quant::Type::kIQ3_XXS:
      return IntegerRows<V, IQ3_XXSRows<B, Lookup>>(a), true;
    case quant::Type::kIQ3_S:
      return IntegerRows<V, IQ3_SRows<B, Lookup>>(a), true;
    default:
      return false;
  }
}

}  // namespace
}  // namespace glint::cpu
