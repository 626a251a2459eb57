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

// The lanes' rows.
template <class V>
struct RowPointers {
  const std::byte* row[V::kLanes];
};

// A format says how its bytes become units (simd_blocks.h, simd_superblocks.h, simd_grids.h). It is written for V::Base, the operations of
// which those on digits are no part. Unpack reads the chunk at offset `at` of every row (`blocks` blocks of it, at most 256 columns) and calls
// unit(u, code, scale, minimum) for its units in order; lane l of code(g) holds, as unsigned bytes, the codes of the unit's columns
// 4 g ... 4 g + 3. Codes come plus kBias, which the product takes out again through the sum of the digits; formats with minima have no need
// of that (kBias 0).

// What the loops need to know of a format beside its bytes.
template <int kUnitColumns, bool kHasMinima>
struct Shape {
  static constexpr int kUnit = kUnitColumns;
  static constexpr bool kMinima = kHasMinima;
};

// Asks for a line of 64 bytes, which may be anywhere: a prefetch does not fault. Not the compiler's own: g++ 12 removes
// some loops of nothing else.
inline void AskFor(uintptr_t line) {
#if defined(__x86_64__)
  asm volatile("prefetcht0 (%0)" : : "r"(line));
#else
  __builtin_prefetch(reinterpret_cast<const void*>(line), 0, 3);
#endif
}

// Where the digits of unit u of the chunk that starts at digit block `block` lie, for R rows from row r on.
template <class V, int kUnit, int R>
struct UnitDigits {
  static constexpr int kPerBlock = 32 / kUnit;
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
           V::kQuadBytes * (inside * kUnit / 4 + g);
  }
  inline int32_t Sum(int j) const {
    const int32_t* const sums = a.sums + at[j] * 2;
    return kUnit == 16 ? sums[inside] : sums[0] + sums[1];
  }
  inline float Scale(int j) const { return a.scales[at[j]]; }
  // Rows of a list lie anywhere, where the hardware does not follow: their digits of the next block (512 columns as below: 138 and 151 Gmac/s).
  inline void AskForNext() const {
    if (a.take == nullptr || inside != 0) return;
    for (int j = 0; j < R; ++j) AskFor(reinterpret_cast<uintptr_t>(a.digits + (at[j] + a.rows) * 32));
  }
};

// sum goes on by a unit: its product with the biased codes, then what the definition says.
template <class V, bool kMinima>
inline typename V::F UnitEnd(typename V::Products products, int32_t bias, int32_t digits,
                             float scale_of_digits, typename V::F scale, typename V::F minimum,
                             typename V::F sum) {
  auto product = V::Total(products);
  if constexpr (!kMinima) product = V::Sub(product, V::Set1(digits * bias));
  const auto d = V::Set1(scale_of_digits);
  sum = V::Fma(V::ToFloat(product), V::Mul(scale, d), sum);
  if constexpr (kMinima) sum = V::Fma(V::Set1(static_cast<float>(digits)), V::Mul(minimum, d), sum);
  return sum;
}

// The memory behind a tile of weight rows, asked for in its own order while the tile is worked on: as many bytes at each unit as a tile
// has for it. The hardware follows this one stream where it does not follow a stream a row, each short. Everything is asked for twice,
// 4 KB apart: a processor drops what it is asked for while too many lines are on their way (a loop of prefetches alone "reads" 90 GB/s
// where one of loads reads 39).
// EPYC (Zen 5), AVX-512, one activation row, GB/s with one and two threads, 4 KB pages, 2026-11-30. The last three lines are of one
// interleaved run, in which plain reads had 39 to 42 and 67 to 81; the first two of others (bench/results/2026-11-30-cpu-decode.md):
//                                                q8_0, 1,024 columns  q8_0, 4,096  q4_k, 1,024  q4_k, 4,096
//   nothing asked for                                      13.0, 26       15.4, 29     6.5, 12      8.7, 17
//   every row 4 chunks ahead (as it was)                   23.3, 44       22.8, 45    22.8, 43     29.3, 57
//   the tile behind, chunk by chunk, once                  32.8, 60       21.1, 41    33.7, 63     28.4, 52
//   the tile behind, unit by unit, once                    31.1, 58       26.0, 48    32.0, 63     31.4, 61
//   the tile behind, unit by unit, twice                   37.0, 65       29.9, 55    33.4, 63     32.4, 64
// The last line's 37.0 was 27 to 29 in two builds that differed in little else: how code falls counts here.
template <class V, class Format>
struct TileBehind {
  static constexpr uintptr_t kBytes = uintptr_t{Format::kUnit} * V::kLanes * Format::kBlockBytes /
                                      Format::kBlockColumns,
                             kAgain = 4096;
  uintptr_t at;

  inline void Ask() {
#pragma GCC unroll 16
    for (uintptr_t i = 0; i < kBytes; i += 64) AskFor(at + kAgain + i), AskFor(at + i);
    at += kBytes;
  }
};

// Few rows (R): each quad is used where it is unpacked.
template <class V, class Format, int R>
struct UseAtOnce {
  const RowsArgs& a;
  int64_t block, r;
  TileBehind<V, Format> behind;
  typename V::F sum[R];

  template <class Code>
  inline void operator()(int u, Code code, typename V::F scale, typename V::F minimum) {
    const UnitDigits<V, Format::kUnit, R> digits(a, block, u, r);
    behind.Ask();
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
      sum[j] = UnitEnd<V, Format::kMinima>(products[j], Format::kBias, digits.Sum(j), digits.Scale(j), scale,
                                           minimum, sum[j]);
  }
};

// Many rows: the codes of a chunk are kept, for one group of activation rows after another. What follows is the same for all formats of a
// shape.
template <class V, int kUnit>
struct Keep {
  static constexpr int kQuads = kUnit / 4;
  typename V::Code codes[kChunk / 4];
  typename V::F scales[kChunk / kUnit], minima[kChunk / kUnit];

  template <class Code>
  inline void operator()(int u, Code code, typename V::F scale, typename V::F minimum) {
#pragma GCC unroll 8
    for (int g = 0; g < kQuads; ++g) codes[u * kQuads + g] = V::Split(code(g));
    scales[u] = scale, minima[u] = minimum;
  }
};

// A format for those loops.
template <class V, int kUnit>
struct Unpacker {
  void (*unpack)(const RowPointers<V>& rows, size_t at, int blocks, Keep<V, kUnit>& keep);
  int block_columns, bias;
  size_t block_bytes;
};

template <class V, class Format>
void UnpackToKeep(const RowPointers<V>& rows, size_t at, int blocks, Keep<V, Format::kUnit>& keep) {
  Format::Unpack(rows, at, blocks, keep);
}

// The kept codes of unit u of T tiles against R activation rows from row r on. Part of its caller where it is called most:
// a call for every unit costs a prompt of q8_0 one token in seven (EPYC (Zen 5), 2026-11-30: 510 and 600 tokens/s).
template <class V, class Shape, int T, int R>
[[gnu::always_inline]] inline void UseKept(const RowsArgs& a,
                                           const Keep<typename V::Base, Shape::kUnit>* kept, int bias, int u,
                                           int64_t block, int64_t r, typename V::F (*sum)[T]) {
  constexpr int kQuads = Shape::kUnit / 4;
  const UnitDigits<V, Shape::kUnit, R> digits(a, block, u, r);
  digits.AskForNext();
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
      sum[j][t] = UnitEnd<V, Shape::kMinima>(products[j][t], bias, digits.Sum(j), digits.Scale(j),
                                             kept[t].scales[u], kept[t].minima[u], sum[j][t]);
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
inline RowPointers<typename V::Base> RowsOf(const RowsArgs& a, int64_t o, int64_t valid) {
  RowPointers<typename V::Base> rows;
  for (int l = 0; l < V::kLanes; ++l)
    rows.row[l] = a.weights + static_cast<size_t>(o + (l < valid ? l : valid - 1)) * a.row_bytes;
  return rows;
}

// Calls chunk(k, at, columns) for the chunks of a row (their first column, offset in bytes, and size) and part_done(k) after the last
// one of each part of kPartColumns columns.
template <class ChunkFn, class PartFn>
inline void ForChunks(const RowsArgs& a, size_t chunk_bytes, ChunkFn chunk, PartFn part_done) {
  size_t at = 0;
  for (int64_t k = 0; k < a.columns; k += kChunk, at += chunk_bytes) {
    chunk(k, at, a.columns - k < kChunk ? static_cast<int>(a.columns - k) : kChunk);
    if ((k + kChunk) % kPartColumns == 0 || k + kChunk >= a.columns) part_done(k);
  }
}

// One tile of weight rows against R activation rows.
template <class V, class Format, int R>
void FewRowsTile(const RowsArgs& a, int64_t o, int64_t first) {
  const int64_t valid = a.end - o;
  const auto rows = RowsOf<V>(a, o, valid);
  typename V::F total[R];
  auto next = reinterpret_cast<uintptr_t>(a.weights) + static_cast<size_t>(o + V::kLanes) * a.row_bytes;
  if (valid <= V::kLanes && a.next != nullptr) next = reinterpret_cast<uintptr_t>(a.next);
  UseAtOnce<V, Format, R> use{a, 0, first, {next}, {}};
  for (int r = 0; r < R; ++r) use.sum[r] = total[r] = V::Set1(0.0f);
  ForChunks(
      a, static_cast<size_t>(kChunk / Format::kBlockColumns * Format::kBlockBytes),
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
template <class V, class Shape, int T>
void ManyRowsTiles(const RowsArgs& a, const Unpacker<typename V::Base, Shape::kUnit>& format, int64_t o,
                   int64_t first, int count) {
  RowPointers<typename V::Base> rows[T];
  for (int t = 0; t < T; ++t) rows[t] = RowsOf<V>(a, o + t * V::kLanes, a.end - o - t * V::kLanes);
  Keep<typename V::Base, Shape::kUnit> kept[T];
  typename V::F part[kTileRows][T], total[kTileRows][T];
  for (int r = 0; r < count; ++r)
    for (int t = 0; t < T; ++t) part[r][t] = total[r][t] = V::Set1(0.0f);
  const size_t chunk_bytes = static_cast<size_t>(kChunk / format.block_columns) * format.block_bytes;
  // What lies behind these tiles, the next ones as a rule, is asked for in its own order, at each unit as much as a unit takes. All of a
  // chunk at once is more than a processor has room for, and the rest of it is dropped: EPYC (Zen 5), q4_k, 64 experts of 64 rows, one
  // thread, 2026-11-30: 164 Gmac/s that way and 175 this way with 1,024 columns, 128 and 138 with 512.
  auto behind = reinterpret_cast<uintptr_t>(a.weights) + static_cast<size_t>(o + T * V::kLanes) * a.row_bytes;
  const size_t unit_bytes = T * V::kLanes * chunk_bytes * Shape::kUnit / kChunk;
  ForChunks(
      a, chunk_bytes,
      [&](int64_t k, size_t at, int columns) {
        for (int t = 0; t < T; ++t) format.unpack(rows[t], at, columns / format.block_columns, kept[t]);
        const int units = columns / Shape::kUnit;
        const int64_t block = k / kDigitColumns;
        for (int u = 0; u < units; ++u) {  // the rows' digits of a unit lie one after another
          for (size_t line = 0; line < unit_bytes; line += 64) AskFor(behind + line);
          behind += unit_bytes;
          int r = 0;
          for (; r + V::kGroup <= count; r += V::kGroup)
            UseKept<V, Shape, T, V::kGroup>(a, kept, format.bias, u, block, first + r, part + r);
          for (; r + 2 <= count; r += 2)
            UseKept<V, Shape, T, 2>(a, kept, format.bias, u, block, first + r, part + r);
          if (r < count) UseKept<V, Shape, T, 1>(a, kept, format.bias, u, block, first + r, part + r);
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
  static_assert(Format::kMinima == (Format::kBias == 0));
  using FormatShape = Shape<Format::kUnit, Format::kMinima>;
  static constexpr Unpacker<typename V::Base, Format::kUnit> kUnpacker{
      UnpackToKeep<typename V::Base, Format>, Format::kBlockColumns, Format::kBias, Format::kBlockBytes};
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
        ManyRowsTiles<V, FormatShape, 2>(a, kUnpacker, o, r, count);
        o += V::kLanes;
      } else {
        ManyRowsTiles<V, FormatShape, 1>(a, kUnpacker, o, r, count);
      }
      o += V::kLanes;
    }
  }
}

}  // namespace
}  // namespace glint::cpu
