// Integer block products with one weight row per vector lane, for any instruction set (V names its operations).
//
// A tile of V::kLanes weight rows is read 256 columns at a time. Each dword of the rows is brought into lane order by
// a transposition *before* its codes are unpacked, so everything after it (nibbles, high bits, 6-bit scales) is plain
// lane-wise arithmetic, the integer sums need no horizontal additions, and the two fmas of a unit are those of the definition
// with lane = weight row. The unpacked codes (int16 pairs, 8 KB or less) then meet one group of activation rows after another.
//
// Included once by each kernels_ISA.cc, which is built with that set's flags. All of it is in an unnamed namespace
// on purpose: nothing instantiated here may be merged with code of another file and so run where the set is missing.
// For the same reason no std:: template is used.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cpu/kernels.h"

namespace glint::cpu {
namespace {

constexpr int kChunk = 256;    // columns unpacked at a time; divides a part
constexpr int kTileRows = 64;  // activation rows that share an unpacked chunk: their digits stay in L2

// 256 columns of V::kLanes weight rows, unpacked. Pair p of the chunk is columns 2p (low) and 2p + 1 (high half of each lane).
template <class V>
struct Chunk {
  typename V::I pair[kChunk / 2];
  typename V::F scale[16], minimum[8];  // per unit
};

// The lanes' rows.
template <class V>
struct RowPointers {
  const std::byte* row[V::kLanes];
};

// How each format's bytes become a Chunk. `at` is the chunk's offset in a row; `blocks` how many blocks are left of it, at most a
// chunk. Codes are stored plus kBias, which the product takes out again through the sum of the digits.

template <class V>
struct Q8_0Rows {
  static constexpr int kUnit = 32, kBlockColumns = 32, kBlockBytes = 34, kBias = 0;
  static constexpr bool kMinima = false;

  static inline void Unpack(const RowPointers<V>& rows, size_t at, int blocks, Chunk<V>& out) {
    uint16_t scale[8][V::kLanes];
    for (int b = 0; b < blocks; ++b)
      for (int l = 0; l < V::kLanes; ++l) std::memcpy(&scale[b][l], rows.row[l] + at + b * kBlockBytes, 2);
    for (int b = 0; b < blocks; ++b) {
      typename V::I q[8];
      V::Quads8(rows.row, at + b * kBlockBytes + 2, q);
      for (int g = 0; g < 8; ++g) {
        out.pair[b * 16 + g * 2] = V::Sra16x8(V::Shl16x8(q[g]));
        out.pair[b * 16 + g * 2 + 1] = V::Sra16x8(q[g]);
      }
    }
    for (int b = 0; b < blocks; ++b) out.scale[b] = V::Halfs(scale[b]);
  }
};

template <class V>
struct Q4_KRows {
  static constexpr int kUnit = 32, kBlockColumns = 256, kBlockBytes = 144, kBias = 0;
  static constexpr bool kMinima = true;

  static inline void Unpack(const RowPointers<V>& rows, size_t at, int, Chunk<V>& out) {
    using I = typename V::I;
    I head[4];  // d and dmin; the 12 bytes of scales and minima (quant/q4_k.h)
    V::Dwords4(rows.row, at, head);
    const auto d = V::LowHalfs(head[0]);
    const auto minus_dmin = V::LowHalfs(V::Xor(V::Shr(head[0], 16), V::Set1(0x8000)));
    const I six = V::Set1(63), four = V::Set1(15), top = V::Set1(0x30);
    for (int u = 0; u < 4; ++u) {
      const I scale = V::And(V::Shr(head[1], 8 * u), six), minimum = V::And(V::Shr(head[2], 8 * u), six);
      out.scale[u] = V::Mul(d, V::ToFloat(scale));
      out.minimum[u] = V::Mul(minus_dmin, V::ToFloat(minimum));
      const I scale4 = V::Or(V::And(V::Shr(head[3], 8 * u), four), V::And(V::Shr(head[1], 8 * u + 2), top));
      const I minimum4 =
          V::Or(V::And(V::Shr(head[3], 8 * u + 4), four), V::And(V::Shr(head[2], 8 * u + 2), top));
      out.scale[u + 4] = V::Mul(d, V::ToFloat(scale4));
      out.minimum[u + 4] = V::Mul(minus_dmin, V::ToFloat(minimum4));
    }
    const I nibbles = V::Set1(0x000f000f);
    for (int p = 0; p < 4; ++p) {  // units 2p and 2p + 1
      I q[8];
      V::Quads8(rows.row, at + 16 + 32 * static_cast<size_t>(p), q);
      I* const low = out.pair + p * 32;
      for (int g = 0; g < 8; ++g) {
        low[g * 2] = V::And(q[g], nibbles);
        low[g * 2 + 1] = V::And(V::Shr(q[g], 8), nibbles);
        low[16 + g * 2] = V::And(V::Shr(q[g], 4), nibbles);
        low[16 + g * 2 + 1] = V::And(V::Shr(q[g], 12), nibbles);
      }
    }
  }
};

template <class V>
struct Q6_KRows {
  static constexpr int kUnit = 16, kBlockColumns = 256, kBlockBytes = 210, kBias = 32;
  static constexpr bool kMinima = false;

  static inline void Unpack(const RowPointers<V>& rows, size_t at, int, Chunk<V>& out) {
    using I = typename V::I;
    uint16_t super[V::kLanes];
    for (int l = 0; l < V::kLanes; ++l) std::memcpy(&super[l], rows.row[l] + at + 208, 2);
    I scale[4];
    V::Dwords4(rows.row, at + 192, scale);
    const I nibbles = V::Set1(0x000f000f), top = V::Set1(0x00300030);
    for (int half = 0; half < 2; ++half) {
      I low[2][8], high[8];
      V::Quads8(rows.row, at + 64 * static_cast<size_t>(half), low[0]);
      V::Quads8(rows.row, at + 64 * static_cast<size_t>(half) + 32, low[1]);
      V::Quads8(rows.row, at + 128 + 32 * static_cast<size_t>(half), high);
      for (int k = 0; k < 4; ++k) {  // columns 128 half + 32 k ...
        I* const pair = out.pair + half * 64 + k * 16;
        for (int g = 0; g < 8; ++g) {
          const I q = V::Shr(low[k % 2][g], k / 2 * 4);
          const I h = k < 2 ? V::Shl(high[g], 4 - 2 * k) : V::Shr(high[g], 2 * k - 4);
          pair[g * 2] = V::Or(V::And(q, nibbles), V::And(h, top));
          pair[g * 2 + 1] = V::Or(V::And(V::Shr(q, 8), nibbles), V::And(V::Shr(high[g], 4 + 2 * k), top));
        }
      }
    }
    const auto d = V::Halfs(super);
    for (int u = 0; u < 16; ++u)
      out.scale[u] = V::Mul(d, V::ToFloat(V::Sra(V::Shl(scale[u / 4], 24 - u % 4 * 8), 24)));
  }
};

template <class V>
struct Q5_0Rows {
  static constexpr int kUnit = 32, kBlockColumns = 32, kBlockBytes = 22, kBias = 16;
  static constexpr bool kMinima = false;

  // Bits i and i + 1 of each lane as bit 4 of its low and of its high half.
  static inline typename V::I TopBits(typename V::I bits, int i) {
    const auto first = i <= 4 ? V::Shl(bits, 4 - i) : V::Shr(bits, i - 4);
    const auto second = i <= 19 ? V::Shl(bits, 19 - i) : V::Shr(bits, i - 19);
    return V::Or(V::And(first, V::Set1(0x10)), V::And(second, V::Set1(0x100000)));
  }

  static inline void Unpack(const RowPointers<V>& rows, size_t at, int blocks, Chunk<V>& out) {
    using I = typename V::I;
    const I nibbles = V::Set1(0x000f000f);
    for (int b = 0; b < blocks; ++b) {
      I head[4], q[4];
      V::Dwords4(rows.row, at + b * kBlockBytes, head);   // scale, 32 high bits, 10 bytes of nibbles
      V::Dwords4(rows.row, at + b * kBlockBytes + 6, q);  // all 16 bytes of nibbles
      out.scale[b] = V::LowHalfs(head[0]);
      const I high = V::Or(V::Shr(head[0], 16), V::Shl(head[1], 16));
      I* const pair = out.pair + b * 16;
      for (int g = 0; g < 4; ++g) {
        const I v = V::Swap(q[g]);
        pair[g * 2] = V::Or(V::And(v, nibbles), TopBits(high, 4 * g));
        pair[g * 2 + 1] = V::Or(V::And(V::Shr(v, 8), nibbles), TopBits(high, 4 * g + 2));
        pair[8 + g * 2] = V::Or(V::And(V::Shr(v, 4), nibbles), TopBits(high, 16 + 4 * g));
        pair[8 + g * 2 + 1] = V::Or(V::And(V::Shr(v, 12), nibbles), TopBits(high, 16 + 4 * g + 2));
      }
    }
  }
};

// `units` units of the chunk that starts at digit block `block`, against R activation rows from row r on; their sums go on.
template <class V, class Format, int R>
inline void Units(const RowsArgs& a, const Chunk<V>& chunk, int units, int64_t block, int64_t r,
                  typename V::F* sum) {
  using I = typename V::I;
  using F = typename V::F;
  constexpr int kPairs = Format::kUnit / 2, kPerBlock = 32 / Format::kUnit;
  constexpr int kChains = R < 4 ? 2 : 1;  // few rows: two chains of additions hide the latency of one
  F acc[R];
  for (int j = 0; j < R; ++j) acc[j] = sum[j];
  for (int u = 0; u < units; ++u) {
    const int64_t at = (block + u / kPerBlock) * a.rows + r;
    const int16_t* const digits = a.digits + at * 32 + u % kPerBlock * 16;
    const I* const pair = chunk.pair + u * kPairs;
    int32_t n[R];  // sum of the unit's digits
    I product[R][kChains];
    for (int j = 0; j < R; ++j) {
      const int32_t* const sums = a.sums + (at + j) * 2;
      n[j] = Format::kUnit == 16 ? sums[u % kPerBlock] : sums[0] + sums[1];
      product[j][0] = Format::kBias ? V::Set1(-Format::kBias * n[j]) : V::Set1(0);
      for (int c = 1; c < kChains; ++c) product[j][c] = V::Set1(0);
    }
#pragma GCC unroll 16
    for (int p = 0; p < kPairs; ++p) {
      const I code = pair[p];
#pragma GCC unroll 8
      for (int j = 0; j < R; ++j)
        product[j][p % kChains] =
            V::Dot(product[j][p % kChains], code, V::Broadcast(digits + j * 32 + p * 2));
    }
    for (int j = 0; j < R; ++j) {
      I total = product[j][0];
      for (int c = 1; c < kChains; ++c) total = V::Add(total, product[j][c]);
      const F d = V::Set1(a.scales[at + j]);
      acc[j] = V::Fma(V::ToFloat(total), V::Mul(chunk.scale[u], d), acc[j]);
      if constexpr (Format::kMinima)
        acc[j] = V::Fma(V::Set1(static_cast<float>(n[j])), V::Mul(chunk.minimum[u], d), acc[j]);
    }
  }
  for (int j = 0; j < R; ++j) sum[j] = acc[j];
}

// One tile of weight rows (`valid` of the lanes are real, the others repeat one) against up to kTileRows activation rows.
template <class V, class Format>
void Tile(const RowsArgs& a, const RowPointers<V>& rows, int64_t o, int valid, int64_t first, int count) {
  using F = typename V::F;
  Chunk<V> chunk;
  F part[kTileRows], total[kTileRows];
  for (int r = 0; r < count; ++r) part[r] = total[r] = V::Set1(0.0f);
  for (int64_t k = 0; k < a.columns; k += kChunk) {
    const int columns = a.columns - k < kChunk ? static_cast<int>(a.columns - k) : kChunk;
    const size_t at = static_cast<size_t>(k / Format::kBlockColumns) * Format::kBlockBytes;
    Format::Unpack(rows, at, columns / Format::kBlockColumns, chunk);
    const int units = columns / Format::kUnit;
    int r = 0;
    for (; r + V::kGroup <= count; r += V::kGroup)
      Units<V, Format, V::kGroup>(a, chunk, units, k / kDigitColumns, first + r, part + r);
    for (; r + 2 <= count; r += 2)
      Units<V, Format, 2>(a, chunk, units, k / kDigitColumns, first + r, part + r);
    for (; r < count; ++r) Units<V, Format, 1>(a, chunk, units, k / kDigitColumns, first + r, part + r);
    if ((k + kChunk) % kPartColumns != 0 && k + kChunk < a.columns) continue;
    for (r = 0; r < count; ++r) {
      total[r] = k < kPartColumns ? part[r] : V::Add(total[r], part[r]);
      part[r] = V::Set1(0.0f);
    }
  }
  for (int r = 0; r < count; ++r) {
    float* const y = a.y + (first + r) * a.y_stride + o;
    if (valid == V::kLanes) {
      V::Store(y, total[r]);
    } else {
      float lane[V::kLanes];
      V::Store(lane, total[r]);
      std::memcpy(y, lane, static_cast<size_t>(valid) * sizeof(float));
    }
  }
}

template <class V, class Format>
void IntegerRows(const RowsArgs& a) {
  for (int64_t r = a.first; r < a.first + a.count; r += kTileRows) {
    const int64_t left = a.first + a.count - r;
    for (int64_t o = a.begin; o < a.end; o += V::kLanes) {
      const int valid = a.end - o < V::kLanes ? static_cast<int>(a.end - o) : V::kLanes;
      RowPointers<V> rows;
      for (int l = 0; l < V::kLanes; ++l)
        rows.row[l] = a.weights + static_cast<size_t>(o + (l < valid ? l : valid - 1)) * a.row_bytes;
      Tile<V, Format>(a, rows, o, valid, r, left < kTileRows ? static_cast<int>(left) : kTileRows);
    }
  }
}

}  // namespace
}  // namespace glint::cpu
