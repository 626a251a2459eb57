// Formats with small blocks: 32 columns (NVFP4: 64) under one scale. Included once by each file of their kernels; unnamed for the reason in
// cpu/simd_integer.h.
//
// A chunk of eight such blocks is brought into lane order as one run of dwords. Its blocks' fields begin anywhere in a dword, which two
// shifts put right: so a format of 18 bytes a block takes half the loads and transpositions that block by block would take.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cpu/kernels.h"
#include "cpu/simd_integer.h"
#include "quant/fp4.h"
#include "quant/iq_grids.h"

namespace glint::cpu {
namespace {

// The dwords of a whole chunk of small blocks, in lane order.
template <class V, int kBlockBytes, int kBlocks>
struct ChunkDwords {
  static constexpr int kBytes = kBlockBytes * kBlocks, kDwords = kBytes / 4;
  static_assert(kBytes % 32 == 0 || kBytes % 32 == 8 || kBytes % 32 == 16);
  typename V::I dword[kDwords + 1];  // one more, so that At may shift something in

  inline ChunkDwords(const RowPointers<V>& rows, size_t at, int blocks) {
    dword[kDwords] = V::Set1(0);
    if (blocks == kBlocks) {
      Read(rows, at);
      return;
    }
    // The last blocks of a row: what is beyond them is not ours to read.
    std::byte copy[V::kLanes][kBytes] = {};
    RowPointers<V> copies;
    for (int l = 0; l < V::kLanes; ++l) {
      std::memcpy(copy[l], rows.row[l] + at, static_cast<size_t>(blocks * kBlockBytes));
      copies.row[l] = copy[l];
    }
    Read(copies, 0);
  }

  // The dword at any byte.
  inline typename V::I At(int byte) const {
    const int shift = byte % 4 * 8;  // a shift by 32 gives 0
    return V::Or(V::Shr(dword[byte / 4], shift), V::Shl(dword[byte / 4 + 1], 32 - shift));
  }

 private:
  inline void Read(const RowPointers<V>& rows, size_t at) {
    for (int i = 0; i + 32 <= kBytes; i += 32)
      V::Quads8(rows.row, at + static_cast<size_t>(i), dword + i / 4);
    if constexpr (kBytes % 32 != 0)
      V::Dwords4(rows.row, at + static_cast<size_t>(kBytes - 16), dword + kDwords - 4);
  }
};

template <class V>
struct Q8_0Rows {
  static constexpr int kUnit = 32, kBlockColumns = 32, kBlockBytes = 34, kBias = 128;
  static constexpr bool kMinima = false;

  template <class Unit>
  static inline void Unpack(const RowPointers<V>& rows, size_t at, int blocks, Unit& unit) {
    using I = typename V::I;
    uint16_t scale[8][V::kLanes];
    for (int b = 0; b < blocks; ++b)
      for (int l = 0; l < V::kLanes; ++l) std::memcpy(&scale[b][l], rows.row[l] + at + b * kBlockBytes, 2);
    const I sign = V::Set1(static_cast<int32_t>(0x80808080));
    for (int b = 0; b < blocks; ++b) {
      I q[8];
      V::Quads8(rows.row, at + b * kBlockBytes + 2, q);
      unit(
          b, [&](int g) { return V::Xor(q[g], sign); }, V::Halfs(scale[b]), V::Set1(0.0f));
    }
  }
};

// Q4_0, Q4_1, Q5_0, Q5_1: a half scale (and minimum), 32 high bits, 16 bytes of nibbles.
template <class V, bool kHighBit, bool kHasMinimum>
struct NibbleRows {
  static constexpr int kUnit = 32, kBlockColumns = 32, kNibbles = (kHasMinimum ? 4 : 2) + (kHighBit ? 4 : 0),
                       kBlockBytes = kNibbles + 16,
                       kBias = kHasMinimum ? 0
                               : kHighBit  ? 16
                                           : 8;
  static constexpr bool kMinima = kHasMinimum;

  template <class Unit>
  static inline void Unpack(const RowPointers<V>& rows, size_t at, int blocks, Unit& unit) {
    using I = typename V::I;
    const ChunkDwords<V, kBlockBytes, 8> chunk(rows, at, blocks);
    const I nibbles = V::Set1(0x0f0f0f0f), sixteen = V::Set1(0x10101010);
    for (int b = 0; b < blocks; ++b) {
      const int first = b * kBlockBytes;
      const I head = chunk.At(first), high = kHighBit ? chunk.At(first + kNibbles - 4) : head;
      I q[4];
      for (int i = 0; i < 4; ++i) q[i] = chunk.At(first + kNibbles + 4 * i);
      const auto code = [&](int g) {
        const I low = V::And(V::Shr(q[g % 4], g / 4 * 4), nibbles);
        return kHighBit ? V::Or(low, V::IfBits(high, g, sixteen)) : low;
      };
      unit(b, code, V::LowHalfs(head), kHasMinimum ? V::LowHalfs(V::Shr(head, 16)) : V::Set1(0.0f));
    }
  }
};

// Codes plus a bias, as unsigned bytes.
struct BiasedTable {
  int8_t code[16];
};
constexpr BiasedTable AddBias(const int8_t (&code)[16], int bias) {
  BiasedTable table{};
  for (int i = 0; i < 16; ++i) table.code[i] = static_cast<int8_t>(static_cast<uint8_t>(code[i] + bias));
  return table;
}
constexpr BiasedTable kIq4Biased = AddBias(quant::kIq4Values, 128);
constexpr BiasedTable kFp4Biased = AddBias(quant::kFp4Doubled, 16);

template <class V>
struct IQ4_NLRows {
  static constexpr int kUnit = 32, kBlockColumns = 32, kBlockBytes = 18, kBias = 128;
  static constexpr bool kMinima = false;

  template <class Unit>
  static inline void Unpack(const RowPointers<V>& rows, size_t at, int blocks, Unit& unit) {
    using I = typename V::I;
    const ChunkDwords<V, kBlockBytes, 8> chunk(rows, at, blocks);
    const I nibbles = V::Set1(0x0f0f0f0f), table = V::Table16(kIq4Biased.code);
    for (int b = 0; b < blocks; ++b) {
      I q[4];
      for (int i = 0; i < 4; ++i) q[i] = chunk.At(b * kBlockBytes + 2 + 4 * i);
      unit(
          b, [&](int g) { return V::Lookup16(table, V::And(V::Shr(q[g % 4], g / 4 * 4), nibbles)); },
          V::LowHalfs(chunk.At(b * kBlockBytes)), V::Set1(0.0f));
    }
  }
};

template <class V>
struct MXFP4Rows {
  static constexpr int kUnit = 32, kBlockColumns = 32, kBlockBytes = 17, kBias = 16;
  static constexpr bool kMinima = false;

  template <class Unit>
  static inline void Unpack(const RowPointers<V>& rows, size_t at, int blocks, Unit& unit) {
    using I = typename V::I;
    const ChunkDwords<V, kBlockBytes, 8> chunk(rows, at, blocks);
    const I nibbles = V::Set1(0x0f0f0f0f), table = V::Table16(kFp4Biased.code);
    for (int b = 0; b < blocks; ++b) {
      I q[4];
      for (int i = 0; i < 4; ++i) q[i] = chunk.At(b * kBlockBytes + 1 + 4 * i);
      // The bits of 2^(exponent - 128): (exponent - 1) << 23, and 0x200000 and 0x400000, subnormal, for exponents 0 and 1. The second
      // of these is the larger for just those.
      const I exponent = V::And(chunk.At(b * kBlockBytes), V::Set1(255));
      const I bits = V::Max(V::Sub(V::Shl(exponent, 23), V::Set1(1 << 23)),
                            V::Add(V::Shl(exponent, 21), V::Set1(1 << 21)));
      unit(
          b, [&](int g) { return V::Lookup16(table, V::And(V::Shr(q[g % 4], g / 4 * 4), nibbles)); },
          V::AsFloat(bits), V::Set1(0.0f));
    }
  }
};

template <class V>
struct NVFP4Rows {
  static constexpr int kUnit = 16, kBlockColumns = 64, kBlockBytes = 36, kBias = 16;
  static constexpr bool kMinima = false;

  template <class Unit>
  static inline void Unpack(const RowPointers<V>& rows, size_t at, int blocks, Unit& unit) {
    using I = typename V::I;
    const ChunkDwords<V, kBlockBytes, 4> chunk(rows, at, blocks);
    const I nibbles = V::Set1(0x0f0f0f0f), seven = V::Set1(0x7f7f7f7f), table = V::Table16(kFp4Biased.code);
    for (int b = 0; b < blocks; ++b) {
      const I* const block = chunk.dword + b * 9;
      // 0x7f stands for 0 (quant/nvfp4.h). Plus one it alone of the bytes without a top bit has one.
      const I low = V::And(block[0], seven);
      const I top = V::And(V::Add(low, V::Set1(0x01010101)), V::Xor(block[0], V::Set1(-1)));
      const I nan = V::And(top, V::Set1(static_cast<int32_t>(0x80808080)));
      const I scales = V::And(low, V::Xor(V::Sub(nan, V::Shr(nan, 7)), V::Set1(-1)));
      for (int u = 0; u < 4; ++u) {
        // The fields of E4M3 where a half has them, whose exponents are biased by 15, not 7; and half of that.
        const I half = V::Shl(V::And(V::Shr(scales, 8 * u), V::Set1(127)), 7);
        unit(
            b * 4 + u,
            [&](int g) {
              return V::Lookup16(table, V::And(V::Shr(block[1 + 2 * u + g % 2], g / 2 * 4), nibbles));
            },
            V::Mul(V::LowHalfs(half), V::Set1(128.0f)), V::Set1(0.0f));
      }
    }
  }
};

// False: not a format of this file.
template <class V>
bool BlockRows(const RowsArgs& a) {
  using B = typename V::Base;
  switch (a.type) {
    case quant::Type::kQ8_0:
      return IntegerRows<V, Q8_0Rows<B>>(a), true;
    case quant::Type::kQ4_0:
      return IntegerRows<V, NibbleRows<B, false, false>>(a), true;
    case quant::Type::kQ4_1:
      return IntegerRows<V, NibbleRows<B, false, true>>(a), true;
    case quant::Type::kQ5_0:
      return IntegerRows<V, NibbleRows<B, true, false>>(a), true;
    case quant::Type::kQ5_1:
      return IntegerRows<V, NibbleRows<B, true, true>>(a), true;
    case quant::Type::kIQ4_NL:
      return IntegerRows<V, IQ4_NLRows<B>>(a), true;
    case quant::Type::kMXFP4:
      return IntegerRows<V, MXFP4Rows<B>>(a), true;
    case quant::Type::kNVFP4:
      return IntegerRows<V, NVFP4Rows<B>>(a), true;
    default:
      return false;
  }
}

}  // namespace
}  // namespace glint::cpu
