// Formats with blocks of 256 columns whose codes are arithmetic: the K formats, IQ4_XS, TQ1_0, TQ2_0. Included once by each file of their
// kernels; unnamed for the reason in cpu/simd_integer.h.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cpu/kernels.h"
#include "cpu/simd_integer.h"
#include "quant/iq_grids.h"

namespace glint::cpu {
namespace {

template <class V>
struct Q2_KRows {
  static constexpr int kUnit = 16, kBlockColumns = 256, kBlockBytes = 84, kBias = 0;
  static constexpr bool kMinima = true;

  template <class Unit>
  static inline void Unpack(const RowPointers<V>& rows, size_t at, int, Unit& unit) {
    using I = typename V::I;
    I scales[4], end[4];
    V::Dwords4(rows.row, at, scales);    // nibbles: scale, minimum
    V::Dwords4(rows.row, at + 68, end);  // the last dword: d and dmin
    const auto d = V::LowHalfs(end[3]);
    const auto minus_dmin = V::LowHalfs(V::Xor(V::Shr(end[3], 16), V::Set1(0x8000)));
    const I nibble = V::Set1(15), three = V::Set1(0x03030303);
    for (int half = 0; half < 2; ++half) {
      I q[8];
      V::Quads8(rows.row, at + 16 + 32 * static_cast<size_t>(half), q);
#pragma GCC unroll 8
      for (int j = 0; j < 8; ++j) {
        const int u = half * 8 + j, byte = u % 4 * 8;
        const I scale = V::And(V::Shr(scales[u / 4], byte), nibble),
                minimum = V::And(V::Shr(scales[u / 4], byte + 4), nibble);
        unit(
            u, [&](int g) { return V::And(V::Shr(q[j % 2 * 4 + g], j / 2 * 2), three); },
            V::Mul(d, V::ToFloat(scale)), V::Mul(minus_dmin, V::ToFloat(minimum)));
      }
    }
  }
};

template <class V>
struct Q3_KRows {
  static constexpr int kUnit = 16, kBlockColumns = 256, kBlockBytes = 110, kBias = 4;
  static constexpr bool kMinima = false;

  template <class Unit>
  static inline void Unpack(const RowPointers<V>& rows, size_t at, int, Unit& unit) {
    using I = typename V::I;
    I high[8], end[4];
    V::Quads8(rows.row, at, high);       // bit u / 2 of byte i % 32: bit 2 of the code
    V::Dwords4(rows.row, at + 94, end);  // 2 bytes of codes, 12 of scales (quant/q3_k.h), d
    const auto d = V::LowHalfs(V::Shr(end[3], 16));
    I scales[3];
    for (int i = 0; i < 3; ++i) scales[i] = V::Or(V::Shr(end[i], 16), V::Shl(end[i + 1], 16));
    const I nibble = V::Set1(15), top = V::Set1(0x30), three = V::Set1(0x03030303),
            four = V::Set1(0x04040404);
    for (int half = 0; half < 2; ++half) {
      I q[8];
      V::Quads8(rows.row, at + 32 + 32 * static_cast<size_t>(half), q);
#pragma GCC unroll 8
      for (int j = 0; j < 8; ++j) {
        const int u = half * 8 + j, byte = u % 4 * 8, bit = j / 2;
        const I low = V::And(V::Shr(scales[u / 4 % 2], byte + u / 8 * 4), nibble);
        const I two = V::And(V::Shl(V::Shr(scales[2], byte + u / 4 * 2), 4), top);
        const auto code = [&](int g) {
          const I h = high[j % 2 * 4 + g];
          return V::Or(V::And(V::Shr(q[j % 2 * 4 + g], j / 2 * 2), three),
                       V::And(bit < 2 ? V::Shl(h, 2 - bit) : V::Shr(h, bit - 2), four));
        };
        unit(u, code, V::Mul(d, V::ToFloat(V::Sub(V::Or(low, two), V::Set1(32)))), V::Set1(0.0f));
      }
      for (int i = 0; i < 8; ++i) high[i] = V::Shr(high[i], 4);
    }
  }
};

// Q4_K and, with a high bit, Q5_K.
template <class V, bool kHighBit>
struct Q45_KRows {
  static constexpr int kUnit = 32, kBlockColumns = 256, kNibbles = kHighBit ? 48 : 16,
                       kBlockBytes = kNibbles + 128, kBias = 0;
  static constexpr bool kMinima = true;

  template <class Unit>
  static inline void Unpack(const RowPointers<V>& rows, size_t at, int, Unit& unit) {
    using I = typename V::I;
    I head[4];  // d and dmin; the 12 bytes of scales and minima (quant/q4_k.h)
    V::Dwords4(rows.row, at, head);
    const auto d = V::LowHalfs(head[0]);
    const auto minus_dmin = V::LowHalfs(V::Xor(V::Shr(head[0], 16), V::Set1(0x8000)));
    const I six = V::Set1(63), four = V::Set1(15), top = V::Set1(0x30), nibbles = V::Set1(0x0f0f0f0f);
    const I sixteen = V::Set1(0x10101010);
    I high[8];  // bit u of byte i: bit 4 of code i of unit u
    if constexpr (kHighBit) V::Quads8(rows.row, at + 16, high);
    typename V::F scales[8], minima[8];
    for (int u = 0; u < 4; ++u) {
      const int byte = u * 8;
      const I scale = V::And(V::Shr(head[1], byte), six), minimum = V::And(V::Shr(head[2], byte), six);
      const I scale4 = V::Or(V::And(V::Shr(head[3], byte), four), V::And(V::Shr(head[1], byte + 2), top));
      const I minimum4 =
          V::Or(V::And(V::Shr(head[3], byte + 4), four), V::And(V::Shr(head[2], byte + 2), top));
      scales[u] = V::Mul(d, V::ToFloat(scale)), minima[u] = V::Mul(minus_dmin, V::ToFloat(minimum));
      scales[u + 4] = V::Mul(d, V::ToFloat(scale4)), minima[u + 4] = V::Mul(minus_dmin, V::ToFloat(minimum4));
    }
    for (int p = 0; p < 4; ++p) {  // units 2p and 2p + 1 share bytes
      I q[8];
      V::Quads8(rows.row, at + kNibbles + 32 * static_cast<size_t>(p), q);
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        const auto code = [&](int g) {
          const I low = V::And(V::Shr(q[g], 4 * i), nibbles);
          if constexpr (!kHighBit) return low;
          return V::Or(low, V::And(V::Shl(high[g], 4 - i), sixteen));
        };
        unit(2 * p + i, code, scales[2 * p + i], minima[2 * p + i]);
      }
      if constexpr (kHighBit)
        for (int g = 0; g < 8; ++g) high[g] = V::Shr(high[g], 2);
    }
  }
};

template <class V>
struct Q6_KRows {
  static constexpr int kUnit = 16, kBlockColumns = 256, kBlockBytes = 210, kBias = 32;
  static constexpr bool kMinima = false;

  template <class Unit>
  static inline void Unpack(const RowPointers<V>& rows, size_t at, int, Unit& unit) {
    using I = typename V::I;
    uint16_t super[V::kLanes];
    for (int l = 0; l < V::kLanes; ++l) std::memcpy(&super[l], rows.row[l] + at + 208, 2);
    I scales[4];
    V::Dwords4(rows.row, at + 192, scales);
    const auto d = V::Halfs(super);
    const I nibbles = V::Set1(0x0f0f0f0f), top = V::Set1(0x30303030);
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      I low[2][8], high[8];
      V::Quads8(rows.row, at + 64 * static_cast<size_t>(half), low[0]);
      V::Quads8(rows.row, at + 64 * static_cast<size_t>(half) + 32, low[1]);
      V::Quads8(rows.row, at + 128 + 32 * static_cast<size_t>(half), high);
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) {  // columns 128 half + 32 k ...: two units
#pragma GCC unroll 2
        for (int i = 0; i < 2; ++i) {
          const int u = half * 8 + k * 2 + i;
          const I scale = V::Sra(V::Shl(scales[u / 4], 24 - u % 4 * 8), 24);
          const auto code = [&](int g) {
            const I h = k < 2 ? V::Shl(high[i * 4 + g], 4 - 2 * k) : V::Shr(high[i * 4 + g], 2 * k - 4);
            return V::Or(V::And(V::Shr(low[k % 2][i * 4 + g], k / 2 * 4), nibbles), V::And(h, top));
          };
          unit(u, code, V::Mul(d, V::ToFloat(scale)), V::Set1(0.0f));
        }
      }
    }
  }
};

template <class V>
struct IQ4_XSRows {
  static constexpr int kUnit = 32, kBlockColumns = 256, kBlockBytes = 136, kBias = 128;
  static constexpr bool kMinima = false;

  template <class Unit>
  static inline void Unpack(const RowPointers<V>& rows, size_t at, int, Unit& unit) {
    using I = typename V::I;
    int8_t biased[16];
    for (int i = 0; i < 16; ++i) biased[i] = static_cast<int8_t>(quant::kIq4Values[i] ^ -128);
    const I table = V::Table16(biased), nibbles = V::Set1(0x0f0f0f0f), nibble = V::Set1(15),
            top = V::Set1(0x30);
    I head[4];  // d and the scales' bits 4 and 5; their low nibbles; 8 bytes of values
    V::Dwords4(rows.row, at, head);
    const auto d = V::LowHalfs(head[0]);
    const I high = V::Shr(head[0], 16);
    for (int p = 0; p < 4; ++p) {
      I q[8];
      V::Quads8(rows.row, at + 8 + 32 * static_cast<size_t>(p), q);
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        const int u = 2 * p + i;
        const I scale =
            V::Or(V::And(V::Shr(head[1], 4 * u), nibble), V::And(V::Shl(V::Shr(high, 2 * u), 4), top));
        unit(
            u,
            [&](int g) { return V::Lookup16(table, V::And(V::Shr(q[i * 4 + g % 4], g / 4 * 4), nibbles)); },
            V::Mul(d, V::ToFloat(V::Sub(scale, V::Set1(32)))), V::Set1(0.0f));
      }
    }
  }
};

template <class V>
struct TQ2_0Rows {
  static constexpr int kUnit = 32, kBlockColumns = 256, kBlockBytes = 66, kBias = 1;
  static constexpr bool kMinima = false;

  template <class Unit>
  static inline void Unpack(const RowPointers<V>& rows, size_t at, int, Unit& unit) {
    using I = typename V::I;
    I end[4];
    V::Dwords4(rows.row, at + 50, end);
    const auto scale = V::LowHalfs(V::Shr(end[3], 16));
    const I three = V::Set1(0x03030303);
    for (int half = 0; half < 2; ++half) {
      I q[8];
      V::Quads8(rows.row, at + 32 * static_cast<size_t>(half), q);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j)
        unit(
            half * 4 + j, [&](int g) { return V::And(V::Shr(q[g], 2 * j), three); }, scale, V::Set1(0.0f));
    }
  }
};

template <class V>
struct TQ1_0Rows {
  static constexpr int kUnit = 32, kBlockColumns = 256, kBlockBytes = 54, kBias = 1;
  static constexpr bool kMinima = false;

  // The first digits of fractions f / 256, (3 f) >> 8: so are the top bits of (f + f / 2) / 2 (tried for all 256) if both halves are rounded down;
  // averages round up, so they are taken of 255 - f.
  static inline typename V::I Digit(typename V::I fraction) {
    const auto ones = V::Set1(-1), rest = V::Xor(fraction, ones);
    const auto sum = V::AverageBytes(rest, V::AverageBytes(rest, ones));
    return V::And(V::Shr(V::Xor(sum, ones), 6), V::Set1(0x03030303));
  }
  // What is left without it.
  static inline typename V::I Rest(typename V::I fraction) {
    return V::AddBytes(V::AddBytes(fraction, fraction), fraction);
  }

  template <class Unit>
  static inline void Unpack(const RowPointers<V>& rows, size_t at, int, Unit& unit) {
    using I = typename V::I;
    I q[8], end[4];
    V::Dwords4(rows.row, at + 38, end);  // 10 bytes of digits, 4 more, the scale
    const auto scale = V::LowHalfs(V::Shr(end[3], 16));
    V::Quads8(rows.row, at, q);  // digit u of byte m: column 32 u + m
#pragma GCC unroll 5
    for (int u = 0; u < 5; ++u) {
      unit(
          u,
          [&](int g) {
            const I digit = Digit(q[g]);
            q[g] = Rest(q[g]);
            return digit;
          },
          scale, V::Set1(0.0f));
    }
    V::Dwords4(rows.row, at + 32, q);                      // digit n of byte m: column 160 + 16 n + m
    q[4] = V::Or(V::Shr(end[2], 16), V::Shl(end[3], 16));  // digit n of byte m: column 240 + 4 n + m
#pragma GCC unroll 3
    for (int u = 5; u < 8; ++u) {
      unit(
          u,
          [&](int g) {
            I& from = q[u == 7 && g >= 4 ? 4 : g % 4];
            const I digit = Digit(from);
            from = Rest(from);
            return digit;
          },
          scale, V::Set1(0.0f));
    }
  }
};

// False: not a format of this file.
template <class V>
bool SuperblockRows(const RowsArgs& a) {
  using B = typename V::Base;
  switch (a.type) {
    case quant::Type::kQ2_K:
      return IntegerRows<V, Q2_KRows<B>>(a), true;
    case quant::Type::kQ3_K:
      return IntegerRows<V, Q3_KRows<B>>(a), true;
    case quant::Type::kQ4_K:
      return IntegerRows<V, Q45_KRows<B, false>>(a), true;
    case quant::Type::kQ5_K:
      return IntegerRows<V, Q45_KRows<B, true>>(a), true;
    case quant::Type::kQ6_K:
      return IntegerRows<V, Q6_KRows<B>>(a), true;
    case quant::Type::kIQ4_XS:
      return IntegerRows<V, IQ4_XSRows<B>>(a), true;
    case quant::Type::kTQ1_0:
      return IntegerRows<V, TQ1_0Rows<B>>(a), true;
    case quant::Type::kTQ2_0:
      return IntegerRows<V, TQ2_0Rows<B>>(a), true;
    default:
      return false;
  }
}

}  // namespace
}  // namespace glint::cpu
