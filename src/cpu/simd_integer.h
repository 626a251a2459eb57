// Integer block products with one weight row per vector lane, for any instruction set (V names its operations).
//
// A tile of V::kLanes weight rows is read 256 columns at a time. Each dword of the rows is brought into lane order by
// a transposition *before* its codes are unpacked, so everything after it (nibbles, high bits, 6-bit scales) is plain
// lane-wise arithmetic, the integer sums need no horizontal additions, and the two fmas of a unit are those of the definition
// with lane = weight row. Codes come as quads, the unsigned bytes of four neighbouring columns, and each is unpacked where it is
// multiplied: 16 vector registers hold no more. With many activation rows the codes of two tiles are kept instead (8 or 16 KB)
// and meet one group of rows after another, so that a digit is loaded once for both.
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

constexpr int kChunk = 256;  // columns unpacked at a time; divides a part
constexpr int kTileRows =
    128;  // activation rows that share an unpacked chunk (64: 4 % slower); their digits stay in L2
// Chunks between a prefetch and its use. One row, AVX-512, EPYC (Zen 5), 30 GB/s readable: no prefetch 12.4 (Q8_0) and 8.7 GB/s
// (Q4_K), 1 chunk 18.7 and 15.6, 2 chunks 19.3 and 17.1, 4 chunks 18.8 and 17.3, 6 chunks 19.7 and 17.3 (2026-11-29).
constexpr size_t kAhead = 4;

// The lanes' rows.
template <class V>
struct RowPointers {
  const std::byte* row[V::kLanes];
};

// How each format's bytes become units: Unpack reads the chunk at offset `at` of every row (`blocks` blocks of it, at most 256 columns)
// and calls unit(u, code, scale, minimum) for its units in order; lane l of code(g) holds, as unsigned bytes, the codes of the unit's
// columns 4 g ... 4 g + 3. Codes come plus 1 << kBiasBits (kBiasBits 0: plain), which the product takes out again through the sum of
// the digits.

template <class V>
struct Q8_0Rows {
  static constexpr int kUnit = 32, kBlockColumns = 32, kBlockBytes = 34, kBiasBits = 7;
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

template <class V>
struct Q4_KRows {
  static constexpr int kUnit = 32, kBlockColumns = 256, kBlockBytes = 144, kBiasBits = 0;
  static constexpr bool kMinima = true;

  template <class Unit>
  static inline void Unpack(const RowPointers<V>& rows, size_t at, int, Unit& unit) {
    using I = typename V::I;
    I head[4];  // d and dmin; the 12 bytes of scales and minima (quant/q4_k.h)
    V::Dwords4(rows.row, at, head);
    const auto d = V::LowHalfs(head[0]);
    const auto minus_dmin = V::LowHalfs(V::Xor(V::Shr(head[0], 16), V::Set1(0x8000)));
    const I six = V::Set1(63), four = V::Set1(15), top = V::Set1(0x30), nibbles = V::Set1(0x0f0f0f0f);
    for (int p = 0; p < 4; ++p) {  // units 2p and 2p + 1 share bytes
      I q[8];
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
        unit(
            u, [&](int g) { return V::And(V::Shr(q[g], u % 2 * 4), nibbles); }, V::Mul(d, V::ToFloat(scale)),
            V::Mul(minus_dmin, V::ToFloat(minimum)));
      }
    }
  }
};

template <class V>
struct Q6_KRows {
  static constexpr int kUnit = 16, kBlockColumns = 256, kBlockBytes = 210, kBiasBits = 5;
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
    for (int half = 0; half < 2; ++half) {
      I low[2][8], high[8];
      V::Quads8(rows.row, at + 64 * static_cast<size_t>(half), low[0]);
      V::Quads8(rows.row, at + 64 * static_cast<size_t>(half) + 32, low[1]);
      V::Quads8(rows.row, at + 128 + 32 * static_cast<size_t>(half), high);
      for (int k = 0; k < 4; ++k) {  // columns 128 half + 32 k ...: two units
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
struct Q5_0Rows {
  static constexpr int kUnit = 32, kBlockColumns = 32, kBlockBytes = 22, kBiasBits = 4;
  static constexpr bool kMinima = false;

  template <class Unit>
  static inline void Unpack(const RowPointers<V>& rows, size_t at, int blocks, Unit& unit) {
    using I = typename V::I;
    const I nibbles = V::Set1(0x0f0f0f0f), four = V::Set1(15), top = V::Set1(0x10101010);
    for (int b = 0; b < blocks; ++b) {
      I head[4], q[4];
      V::Dwords4(rows.row, at + b * kBlockBytes, head);   // scale, 32 high bits, 10 bytes of nibbles
      V::Dwords4(rows.row, at + b * kBlockBytes + 6, q);  // all 16 bytes of nibbles
      const I high = V::Or(V::Shr(head[0], 16), V::Shl(head[1], 16));
      // Bits 4 g ... 4 g + 3 go to bit 4 of a byte each: the multiplier adds them shifted by 4, 11, 18 and 25, where no two meet.
      const auto code = [&](int g) {
        const I bits = V::Times(V::And(V::Shr(high, 4 * g), four), V::Set1(0x02040810));
        return V::Or(V::And(V::Shr(q[g % 4], g / 4 * 4), nibbles), V::And(bits, top));
      };
      unit(b, code, V::LowHalfs(head[0]), V::Set1(0.0f));
    }
  }
};

// Where the digits of unit u of the chunk that starts at digit block `block` lie, for R rows from row r on.
template <class V, class Format, int R>
struct UnitDigits {
  static constexpr int kPerBlock = 32 / Format::kUnit;
  const RowsArgs& a;
  int64_t at[R];  // digit block and row
  int inside;     // which unit of the digit block

  inline UnitDigits(const RowsArgs& args, int64_t block, int u, int64_t r) : a(args), inside(u % kPerBlock) {
    const int64_t first = (block + u / kPerBlock) * args.rows;
    for (int j = 0; j < R; ++j) at[j] = first + (args.take ? args.take[r + j] : r + j);
  }
  // What V::Product takes for quad g of row r + j.
  inline const std::byte* Quad(int j, int g) const {
    return reinterpret_cast<const std::byte*>(a.digits + at[j] * 32) +
           V::kQuadBytes * (inside * Format::kUnit / 4 + g);
  }
  inline int32_t Sum(int j) const {
    const int32_t* const sums = a.sums + at[j] * 2;
    return Format::kUnit == 16 ? sums[inside] : sums[0] + sums[1];
  }
  inline float Scale(int j) const { return a.scales[at[j]]; }
};

// sum goes on by a unit: its product with the biased codes, then what the definition says.
template <class V, class Format>
inline typename V::F UnitEnd(typename V::Products products, int32_t digits, float scale_of_digits,
                             typename V::F scale, typename V::F minimum, typename V::F sum) {
  auto product = V::Total(products);
  if constexpr (Format::kBiasBits > 0) product = V::Sub(product, V::Set1(digits * (1 << Format::kBiasBits)));
  const auto d = V::Set1(scale_of_digits);
  sum = V::Fma(V::ToFloat(product), V::Mul(scale, d), sum);
  if constexpr (Format::kMinima) sum = V::Fma(V::Set1(static_cast<float>(digits)), V::Mul(minimum, d), sum);
  return sum;
}

// Few rows (R): each quad is used where it is unpacked.
template <class V, class Format, int R>
struct UseAtOnce {
  const RowsArgs& a;
  int64_t block, r;
  typename V::F sum[R];

  template <class Code>
  inline void operator()(int u, Code code, typename V::F scale, typename V::F minimum) {
    const UnitDigits<V, Format, R> digits(a, block, u, r);
    typename V::Products products[R];
    for (int j = 0; j < R; ++j) products[j] = V::NoProducts();
#pragma GCC unroll 8
    for (int g = 0; g < Format::kUnit / 4; ++g) {
      const auto split = V::Split(code(g));
#pragma GCC unroll 4
      for (int j = 0; j < R; ++j) products[j] = V::Product(products[j], split, digits.Quad(j, g));
    }
#pragma GCC unroll 4
    for (int j = 0; j < R; ++j)
      sum[j] = UnitEnd<V, Format>(products[j], digits.Sum(j), digits.Scale(j), scale, minimum, sum[j]);
  }
};

// Many rows: the codes of a chunk are kept, for one group of activation rows after another.
template <class V, class Format>
struct Keep {
  static constexpr int kQuads = Format::kUnit / 4;
  typename V::Code codes[kChunk / 4];
  typename V::F scales[kChunk / Format::kUnit], minima[kChunk / Format::kUnit];

  template <class Code>
  inline void operator()(int u, Code code, typename V::F scale, typename V::F minimum) {
#pragma GCC unroll 8
    for (int g = 0; g < kQuads; ++g) codes[u * kQuads + g] = V::Split(code(g));
    scales[u] = scale, minima[u] = minimum;
  }
};

// The kept codes of unit u of T tiles against R activation rows from row r on.
template <class V, class Format, int T, int R>
inline void UseKept(const RowsArgs& a, const Keep<V, Format>* kept, int u, int64_t block, int64_t r,
                    typename V::F (*sum)[T]) {
  constexpr int kQuads = Format::kUnit / 4;
  const UnitDigits<V, Format, R> digits(a, block, u, r);
  typename V::Products products[R][T];
  for (int j = 0; j < R; ++j)
    for (int t = 0; t < T; ++t) products[j][t] = V::NoProducts();
#pragma GCC unroll 8
  for (int g = 0; g < kQuads; ++g) {
    typename V::Code code[T];
    for (int t = 0; t < T; ++t) code[t] = kept[t].codes[u * kQuads + g];
#pragma GCC unroll 8
    for (int j = 0; j < R; ++j)
      for (int t = 0; t < T; ++t) products[j][t] = V::Product(products[j][t], code[t], digits.Quad(j, g));
  }
#pragma GCC unroll 8
  for (int j = 0; j < R; ++j)
    for (int t = 0; t < T; ++t)
      sum[j][t] = UnitEnd<V, Format>(products[j][t], digits.Sum(j), digits.Scale(j), kept[t].scales[u],
                                     kept[t].minima[u], sum[j][t]);
}

// Asks for the bytes of a coming chunk: of these T tiles' rows, or where those end, of the next tiles'. The hardware does not follow as
// many streams as there are lanes, and each is short. Past the matrix it asks for nothing that matters: a prefetch does not fault.
template <class V, int T>
inline void Prefetch(const RowsArgs& a, int64_t o, size_t at, size_t bytes) {
  size_t row = static_cast<size_t>(o);
  if (at >= a.row_bytes) at -= a.row_bytes, row += T * V::kLanes;
  for (int l = 0; l < T * V::kLanes; ++l) {
    const uintptr_t begin =
        reinterpret_cast<uintptr_t>(a.weights) + (row + static_cast<size_t>(l)) * a.row_bytes + at;
    for (uintptr_t line = (begin + 63) / 64 * 64; line < begin + bytes; line += 64)
      __builtin_prefetch(reinterpret_cast<const void*>(line), 0, 3);
  }
}

template <class V>
inline void StoreLanes(const RowsArgs& a, int64_t r, int64_t o, typename V::F v) {
  float* const y = a.y + (a.put ? a.put[r] : r) * a.y_stride + o;
  const int64_t valid = a.end - o;
  if (valid >= V::kLanes) return V::Store(y, v);
  float lane[V::kLanes];
  V::Store(lane, v);
  std::memcpy(y, lane, static_cast<size_t>(valid) * sizeof(float));
}

// The rows of a tile from row o on; beyond `valid` rows the last one again.
template <class V>
inline RowPointers<V> RowsOf(const RowsArgs& a, int64_t o, int64_t valid) {
  RowPointers<V> rows;
  for (int l = 0; l < V::kLanes; ++l)
    rows.row[l] = a.weights + static_cast<size_t>(o + (l < valid ? l : valid - 1)) * a.row_bytes;
  return rows;
}

// Calls chunk(k, at, columns) for the chunks of a row (their first column, offset in bytes, and size) and part_done(k) after the last
// one of each part of kPartColumns columns.
template <class V, class Format, int T, class ChunkFn, class PartFn>
inline void ForChunks(const RowsArgs& a, int64_t o, ChunkFn chunk, PartFn part_done) {
  constexpr size_t kChunkBytes = static_cast<size_t>(kChunk / Format::kBlockColumns) * Format::kBlockBytes;
  size_t at = 0;
  for (int64_t k = 0; k < a.columns; k += kChunk, at += kChunkBytes) {
    Prefetch<V, T>(a, o, at + kAhead * kChunkBytes, kChunkBytes);
    chunk(k, at, a.columns - k < kChunk ? static_cast<int>(a.columns - k) : kChunk);
    if ((k + kChunk) % kPartColumns == 0 || k + kChunk >= a.columns) part_done(k);
  }
}

// One tile of weight rows against R activation rows.
template <class V, class Format, int R>
void FewRowsTile(const RowsArgs& a, int64_t o, int64_t first) {
  const int64_t valid = a.end - o;
  const RowPointers<V> rows = RowsOf<V>(a, o, valid);
  typename V::F total[R];
  UseAtOnce<V, Format, R> use{a, 0, first, {}};
  for (int r = 0; r < R; ++r) use.sum[r] = total[r] = V::Set1(0.0f);
  ForChunks<V, Format, 1>(
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
  for (int r = 0; r < R; ++r) StoreLanes<V>(a, first + r, o, total[r]);
}

// T tiles of weight rows against up to kTileRows activation rows.
template <class V, class Format, int T>
void ManyRowsTiles(const RowsArgs& a, int64_t o, int64_t first, int count) {
  RowPointers<V> rows[T];
  for (int t = 0; t < T; ++t) rows[t] = RowsOf<V>(a, o + t * V::kLanes, a.end - o - t * V::kLanes);
  Keep<V, Format> kept[T];
  typename V::F part[kTileRows][T], total[kTileRows][T];
  for (int r = 0; r < count; ++r)
    for (int t = 0; t < T; ++t) part[r][t] = total[r][t] = V::Set1(0.0f);
  ForChunks<V, Format, T>(
      a, o,
      [&](int64_t k, size_t at, int columns) {
        for (int t = 0; t < T; ++t) Format::Unpack(rows[t], at, columns / Format::kBlockColumns, kept[t]);
        const int units = columns / Format::kUnit;
        const int64_t block = k / kDigitColumns;
        for (int u = 0; u < units; ++u) {  // the rows' digits of a unit lie one after another
          int r = 0;
          for (; r + V::kGroup <= count; r += V::kGroup)
            UseKept<V, Format, T, V::kGroup>(a, kept, u, block, first + r, part + r);
          for (; r + 2 <= count; r += 2) UseKept<V, Format, T, 2>(a, kept, u, block, first + r, part + r);
          if (r < count) UseKept<V, Format, T, 1>(a, kept, u, block, first + r, part + r);
        }
      },
      [&](int64_t k) {
        for (int r = 0; r < count; ++r) {
          for (int t = 0; t < T; ++t) {
            total[r][t] = k < kPartColumns ? part[r][t] : V::Add(total[r][t], part[r][t]);
            part[r][t] = V::Set1(0.0f);
          }
        }
      });
  for (int r = 0; r < count; ++r)
    for (int t = 0; t < T; ++t) StoreLanes<V>(a, first + r, o + t * V::kLanes, total[r][t]);
}

template <class V, class Format>
void IntegerRows(const RowsArgs& a) {
  for (int64_t r = a.first; r < a.first + a.count; r += kTileRows) {
    const int64_t left = a.first + a.count - r;
    const int count = left < kTileRows ? static_cast<int>(left) : kTileRows;
    for (int64_t o = a.begin; o < a.end;) {
      if (left == 1) {
        FewRowsTile<V, Format, 1>(a, o, r);
      } else if (left == 2) {
        FewRowsTile<V, Format, 2>(a, o, r);
      } else if (left == 4) {
        FewRowsTile<V, Format, 4>(a, o, r);
      } else if (a.end - o > V::kLanes) {
        ManyRowsTiles<V, Format, 2>(a, o, r, count);
        o += V::kLanes;
      } else {
        ManyRowsTiles<V, Format, 1>(a, o, r, count);
      }
      o += V::kLanes;
    }
  }
}

}  // namespace
}  // namespace glint::cpu
