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
// Chunks between a prefetch and its use. One row, AVX-512, EPYC (Zen 5), 30 GB/s readable: no prefetch 12.4 (Q8_0) and 8.7 GB/s
// (Q4_K), 1 chunk 18.7 and 15.6, 2 chunks 19.3 and 17.1, 4 chunks 18.8 and 17.3, 6 chunks 19.7 and 17.3 (2026-11-29).
constexpr size_t kAhead = 4;

// The lanes' rows.
template <class V>
struct RowPointers {
  const std::byte* row[V::kLanes];
};

// How each format's bytes become units: Unpack reads the chunk at offset `at` of every row (`blocks` blocks of it, at most 256 columns)
// and calls unit(u, pairs, scale, minimum) for its units in order; lane l of pairs[p] holds the codes of columns 2p (low half) and
// 2p + 1 of the unit. Codes come plus kBias, which the product takes out again through the sum of the digits.

template <class V>
struct Q8_0Rows {
  static constexpr int kUnit = 32, kBlockColumns = 32, kBlockBytes = 34, kBias = 0;
  static constexpr bool kMinima = false;

  template <class Unit>
  static inline void Unpack(const RowPointers<V>& rows, size_t at, int blocks, Unit& unit) {
    uint16_t scale[8][V::kLanes];
    for (int b = 0; b < blocks; ++b)
      for (int l = 0; l < V::kLanes; ++l) std::memcpy(&scale[b][l], rows.row[l] + at + b * kBlockBytes, 2);
    for (int b = 0; b < blocks; ++b) {
      typename V::I q[8], pair[16];
      V::Quads8(rows.row, at + b * kBlockBytes + 2, q);
      for (int g = 0; g < 8; ++g) {
        pair[g * 2] = V::Sra16x8(V::Shl16x8(q[g]));
        pair[g * 2 + 1] = V::Sra16x8(q[g]);
      }
      unit(b, pair, V::Halfs(scale[b]), V::Set1(0.0f));
    }
  }
};

template <class V>
struct Q4_KRows {
  static constexpr int kUnit = 32, kBlockColumns = 256, kBlockBytes = 144, kBias = 0;
  static constexpr bool kMinima = true;

  template <class Unit>
  static inline void Unpack(const RowPointers<V>& rows, size_t at, int, Unit& unit) {
    using I = typename V::I;
    I head[4];  // d and dmin; the 12 bytes of scales and minima (quant/q4_k.h)
    V::Dwords4(rows.row, at, head);
    const auto d = V::LowHalfs(head[0]);
    const auto minus_dmin = V::LowHalfs(V::Xor(V::Shr(head[0], 16), V::Set1(0x8000)));
    const I six = V::Set1(63), four = V::Set1(15), top = V::Set1(0x30), nibbles = V::Set1(0x000f000f);
    for (int p = 0; p < 4; ++p) {  // units 2p and 2p + 1 share bytes
      I q[8], pair[16];
      V::Quads8(rows.row, at + 16 + 32 * static_cast<size_t>(p), q);
      for (int u = 2 * p; u < 2 * p + 2; ++u) {
        const int byte = u % 4 * 8;
        I scale, minimum;
        if (u < 4) {
          scale = V::And(V::Shr(head[1], byte), six), minimum = V::And(V::Shr(head[2], byte), six);
        } else {
          scale = V::Or(V::And(V::Shr(head[3], byte), four), V::And(V::Shr(head[1], byte + 2), top));
          minimum = V::Or(V::And(V::Shr(head[3], byte + 4), four), V::And(V::Shr(head[2], byte + 2), top));
        }
        for (int g = 0; g < 8; ++g) {
          pair[g * 2] = V::And(V::Shr(q[g], u % 2 * 4), nibbles);
          pair[g * 2 + 1] = V::And(V::Shr(q[g], u % 2 * 4 + 8), nibbles);
        }
        unit(u, pair, V::Mul(d, V::ToFloat(scale)), V::Mul(minus_dmin, V::ToFloat(minimum)));
      }
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
    const I nibbles = V::Set1(0x000f000f), top = V::Set1(0x00300030);
    for (int half = 0; half < 2; ++half) {
      I low[2][8], high[8];
      V::Quads8(rows.row, at + 64 * static_cast<size_t>(half), low[0]);
      V::Quads8(rows.row, at + 64 * static_cast<size_t>(half) + 32, low[1]);
      V::Quads8(rows.row, at + 128 + 32 * static_cast<size_t>(half), high);
      for (int k = 0; k < 4; ++k) {  // columns 128 half + 32 k ...: two units
        I pair[16];
        for (int g = 0; g < 8; ++g) {
          const I q = V::Shr(low[k % 2][g], k / 2 * 4);
          const I h = k < 2 ? V::Shl(high[g], 4 - 2 * k) : V::Shr(high[g], 2 * k - 4);
          pair[g * 2] = V::Or(V::And(q, nibbles), V::And(h, top));
          pair[g * 2 + 1] = V::Or(V::And(V::Shr(q, 8), nibbles), V::And(V::Shr(high[g], 4 + 2 * k), top));
        }
        for (int i = 0; i < 2; ++i) {
          const int u = half * 8 + k * 2 + i;
          const I scale = V::Sra(V::Shl(scales[u / 4], 24 - u % 4 * 8), 24);
          unit(u, pair + i * 8, V::Mul(d, V::ToFloat(scale)), V::Set1(0.0f));
        }
      }
    }
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

  template <class Unit>
  static inline void Unpack(const RowPointers<V>& rows, size_t at, int blocks, Unit& unit) {
    using I = typename V::I;
    const I nibbles = V::Set1(0x000f000f);
    for (int b = 0; b < blocks; ++b) {
      I head[4], q[4], pair[16];
      V::Dwords4(rows.row, at + b * kBlockBytes, head);   // scale, 32 high bits, 10 bytes of nibbles
      V::Dwords4(rows.row, at + b * kBlockBytes + 6, q);  // all 16 bytes of nibbles
      const I high = V::Or(V::Shr(head[0], 16), V::Shl(head[1], 16));
      for (int g = 0; g < 4; ++g) {
        const I v = V::Swap(q[g]);
        pair[g * 2] = V::Or(V::And(v, nibbles), TopBits(high, 4 * g));
        pair[g * 2 + 1] = V::Or(V::And(V::Shr(v, 8), nibbles), TopBits(high, 4 * g + 2));
        pair[8 + g * 2] = V::Or(V::And(V::Shr(v, 4), nibbles), TopBits(high, 16 + 4 * g));
        pair[8 + g * 2 + 1] = V::Or(V::And(V::Shr(v, 12), nibbles), TopBits(high, 16 + 4 * g + 2));
      }
      unit(b, pair, V::LowHalfs(head[0]), V::Set1(0.0f));
    }
  }
};

// One unit (unit u of the chunk that starts at digit block `block`) against R activation rows from row r on: their sums go on.
template <class V, class Format, int R>
inline void UnitProduct(const RowsArgs& a, int64_t block, int u, int64_t r, const typename V::I* pair,
                        typename V::F scale, typename V::F minimum, typename V::F* sum) {
  using I = typename V::I;
  using F = typename V::F;
  constexpr int kPairs = Format::kUnit / 2, kPerBlock = 32 / Format::kUnit;
  constexpr int kChains = R < 4 ? 2 : 1;  // few rows: two chains of additions hide the latency of one
  const int64_t at = (block + u / kPerBlock) * a.rows + r;
  const int16_t* const digits = a.digits + at * 32 + u % kPerBlock * 16;
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
      product[j][p % kChains] = V::Dot(product[j][p % kChains], code, V::Broadcast(digits + j * 32 + p * 2));
  }
  for (int j = 0; j < R; ++j) {
    I total = product[j][0];
    for (int c = 1; c < kChains; ++c) total = V::Add(total, product[j][c]);
    const F d = V::Set1(a.scales[at + j]);
    sum[j] = V::Fma(V::ToFloat(total), V::Mul(scale, d), sum[j]);
    if constexpr (Format::kMinima)
      sum[j] = V::Fma(V::Set1(static_cast<float>(n[j])), V::Mul(minimum, d), sum[j]);
  }
}

// Few rows: each unit is used where it is unpacked.
template <class V, class Format, int R>
struct UseAtOnce {
  const RowsArgs& a;
  int64_t block, r;
  typename V::F sum[R];

  inline void operator()(int u, const typename V::I* pair, typename V::F scale, typename V::F minimum) {
    UnitProduct<V, Format, R>(a, block, u, r, pair, scale, minimum, sum);
  }
};

// Many rows: the units of a chunk are kept (8 KB or less), and one group of activation rows after another meets them.
template <class V, class Format>
struct Keep {
  static constexpr int kPairs = Format::kUnit / 2;
  typename V::I pairs[kChunk / 2];
  typename V::F scales[kChunk / Format::kUnit], minima[kChunk / Format::kUnit];

  inline void operator()(int u, const typename V::I* pair, typename V::F scale, typename V::F minimum) {
    for (int p = 0; p < kPairs; ++p) pairs[u * kPairs + p] = pair[p];
    scales[u] = scale, minima[u] = minimum;
  }

  template <int R>
  inline void Use(const RowsArgs& a, int units, int64_t block, int64_t r, typename V::F* sum) const {
    typename V::F acc[R];
    for (int j = 0; j < R; ++j) acc[j] = sum[j];
    for (int u = 0; u < units; ++u)
      UnitProduct<V, Format, R>(a, block, u, r, pairs + u * kPairs, scales[u], minima[u], acc);
    for (int j = 0; j < R; ++j) sum[j] = acc[j];
  }
};

// Asks for the bytes of a coming chunk: of this tile's rows, or where those end, of the next tile's. The hardware does not follow as many
// streams as there are lanes, and each is short. Past the matrix it asks for nothing that matters: a prefetch does not fault.
template <class V>
inline void Prefetch(const RowsArgs& a, int64_t o, size_t at, size_t bytes) {
  size_t row = static_cast<size_t>(o);
  if (at >= a.row_bytes) at -= a.row_bytes, row += V::kLanes;
  for (int l = 0; l < V::kLanes; ++l) {
    const uintptr_t begin =
        reinterpret_cast<uintptr_t>(a.weights) + (row + static_cast<size_t>(l)) * a.row_bytes + at;
    for (uintptr_t line = (begin + 63) / 64 * 64; line < begin + bytes; line += 64)
      __builtin_prefetch(reinterpret_cast<const void*>(line), 0, 3);
  }
}

template <class V>
inline void StoreLanes(float* y, typename V::F v, int valid) {
  if (valid == V::kLanes) return V::Store(y, v);
  float lane[V::kLanes];
  V::Store(lane, v);
  std::memcpy(y, lane, static_cast<size_t>(valid) * sizeof(float));
}

// Calls chunk(k, at, columns) for the chunks of a row (their first column, offset in bytes, and size) and part_done(k) after the last
// one of each part of kPartColumns columns.
template <class V, class Format, class ChunkFn, class PartFn>
inline void ForChunks(const RowsArgs& a, int64_t o, ChunkFn chunk, PartFn part_done) {
  constexpr size_t kChunkBytes = static_cast<size_t>(kChunk / Format::kBlockColumns) * Format::kBlockBytes;
  size_t at = 0;
  for (int64_t k = 0; k < a.columns; k += kChunk, at += kChunkBytes) {
    Prefetch<V>(a, o, at + kAhead * kChunkBytes, kChunkBytes);
    chunk(k, at, a.columns - k < kChunk ? static_cast<int>(a.columns - k) : kChunk);
    if ((k + kChunk) % kPartColumns == 0 || k + kChunk >= a.columns) part_done(k);
  }
}

// One tile of weight rows (`valid` of the lanes are real, the others repeat one) against R activation rows.
template <class V, class Format, int R>
void FewRowsTile(const RowsArgs& a, const RowPointers<V>& rows, int64_t o, int valid, int64_t first) {
  typename V::F total[R];
  UseAtOnce<V, Format, R> use{a, 0, first, {}};
  for (int r = 0; r < R; ++r) use.sum[r] = total[r] = V::Set1(0.0f);
  ForChunks<V, Format>(
      a, o,
      [&](int64_t k, size_t at, int columns) {
        use.block = k / kDigitColumns;
        Format::Unpack(rows, at, columns / Format::kBlockColumns, use);
      },
      [&](int64_t k) {
        for (int r = 0; r < R; ++r) {
          total[r] = k < kPartColumns ? use.sum[r] : V::Add(total[r], use.sum[r]);
          use.sum[r] = V::Set1(0.0f);
        }
      });
  for (int r = 0; r < R; ++r) StoreLanes<V>(a.y + (first + r) * a.y_stride + o, total[r], valid);
}

// The same against up to kTileRows.
template <class V, class Format>
void ManyRowsTile(const RowsArgs& a, const RowPointers<V>& rows, int64_t o, int valid, int64_t first,
                  int count) {
  Keep<V, Format> kept;
  typename V::F part[kTileRows], total[kTileRows];
  for (int r = 0; r < count; ++r) part[r] = total[r] = V::Set1(0.0f);
  ForChunks<V, Format>(
      a, o,
      [&](int64_t k, size_t at, int columns) {
        Format::Unpack(rows, at, columns / Format::kBlockColumns, kept);
        const int units = columns / Format::kUnit;
        const int64_t block = k / kDigitColumns;
        int r = 0;
        for (; r + V::kGroup <= count; r += V::kGroup)
          kept.template Use<V::kGroup>(a, units, block, first + r, part + r);
        for (; r + 2 <= count; r += 2) kept.template Use<2>(a, units, block, first + r, part + r);
        if (r < count) kept.template Use<1>(a, units, block, first + r, part + r);
      },
      [&](int64_t k) {
        for (int r = 0; r < count; ++r) {
          total[r] = k < kPartColumns ? part[r] : V::Add(total[r], part[r]);
          part[r] = V::Set1(0.0f);
        }
      });
  for (int r = 0; r < count; ++r) StoreLanes<V>(a.y + (first + r) * a.y_stride + o, total[r], valid);
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
      switch (left) {
        case 1:
          FewRowsTile<V, Format, 1>(a, rows, o, valid, r);
          break;
        case 2:
          FewRowsTile<V, Format, 2>(a, rows, o, valid, r);
          break;
        case 4:
          FewRowsTile<V, Format, 4>(a, rows, o, valid, r);
          break;
        default:
          ManyRowsTile<V, Format>(a, rows, o, valid, r,
                                  left < kTileRows ? static_cast<int>(left) : kTileRows);
      }
    }
  }
}

}  // namespace
}  // namespace glint::cpu
