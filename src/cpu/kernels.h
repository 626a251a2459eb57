// The kernels of the CPU backend, one table per instruction set; the scalar table is the definition and every other gives its
// bits. Plain structs and pointers only: files built for an instruction set include this, and must not instantiate
// templates or inline functions that the linker could then pick for code that runs everywhere.
#pragma once
#include <cstddef>
#include <cstdint>

#include "quant/format.h"

namespace glint::cpu {

// How a table lays out the 32 digits of a block of activations, 64 bytes: what its products read fastest.
enum class DigitOrder : uint8_t {
  kPlain,  // int16, by column
  kPairs,  // int16, of every four columns 0, 2, 1, 3: they meet the even and the odd bytes of a dword of codes
  kPlanes,  // the 32 high digits as signed bytes, then the 32 low ones: n = 256 high + low
};
// Digit n of column i of the block at `block`.
int Digit(DigitOrder order, const int16_t* block, int64_t i);

// Part of a product: weight rows [begin, end) times activation rows [first, first + count), or those of a list.
struct RowsArgs {
  quant::Type type;
  const std::byte* weights;  // weight row 0 of the slice; any alignment
  const std::byte*
      next;  // what this thread reads after row end - 1, to be asked for early; null: what lies behind it
  size_t row_bytes;
  int64_t columns;  // a multiple of the format's block
  int64_t begin, end;

  int64_t first, count;
  const int32_t* take;    // null, or the activation row that goes for r
  const int32_t* put;     // null, or the row of y that goes for r
  int64_t rows;           // rows of the arrays below (Activations)
  DigitOrder order;       // of the digits: the table's own
  bool one_digit;         // no digit is beyond +-kOneDigit: the high planes are zero
  const int16_t* digits;  // [columns / 32 rounded up][rows][32]    (integer formats)
  const float* scales;    // [columns / 32 rounded up][rows]
  const int32_t* sums;    // [columns / 32 rounded up][rows][2]
  const float* x;         // [rows], x_stride floats apart          (float formats)
  int64_t x_stride;

  float* y;  // y[r * y_stride + o]: row r, weight row o
  int64_t y_stride;
};

// Sums of weighted rows: dst[r][j] = a[r][i] * x[i][j] added by fma, i rising, starting from what dst[r][j] holds.
struct CombineArgs {
  const float* a;  // a[r * a_row + i * a_step]
  int64_t a_row, a_step;
  const float* x;        // row i is x + (index ? index[i] : i) * x_stride
  const int32_t* index;  // [n], or null
  int64_t x_stride;
  int64_t n;   // terms
  float* dst;  // [rows], dst_stride apart; overlaps neither a nor x
  int64_t dst_stride;
  int64_t rows, width;
};

// Dot products of all rows of a with all rows of x: out[r * out_row + i * out_step] = Dot16(a + r * a_stride, row i of x).
struct DotsArgs {
  const float* a;
  int64_t a_stride, rows;
  const float* x;        // row i is x + (index ? index[i] : i) * x_stride
  const int32_t* index;  // [n], or null
  int64_t x_stride, n;
  int64_t width;  // floats of a row
  float* out;
  int64_t out_row, out_step;
};

// A short convolution of n channels and its SiLU: s[i] = sum over taps, rising, of w[i][tap] * in[tap][i] by fma from +0;
// out[i] = s[i] / (1 + Exp(-s[i])).
struct ConvArgs {
  const float* w;          // [n][taps]
  const float* const* in;  // [taps], each [n]; null: nothing there yet
  int64_t taps, n;
  float* out;
};

// One way of computing (scalar, AVX2, AVX-512, NEON).
struct Kernels {
  const char* name;
  DigitOrder order;  // what `round` writes and `rows` reads
  // Reads each weight row once for all activation rows.
  void (*rows)(const RowsArgs& args);
  // Rounds one row of n floats to digits. Block b of 32 columns writes digits + b * stride * 32, scales + b * stride and
  // sums + b * stride * 2; a short last block is padded with zeros. `largest` is what the largest magnitude of a block becomes:
  // kLargestDigit, or kOneDigit for coarse activations.
  void (*round)(const float* x, int64_t n, int64_t stride, float largest, int16_t* digits, float* scales,
                int32_t* sums);
  float (*dot16)(const float* x, const float* y, int64_t n);
  // dst[i] = fma(a, x[i], dst[i])
  void (*axpy)(float a, const float* x, float* dst, int64_t n);
  // dst[i] = Exp(x[i])
  void (*exp)(const float* x, float* dst, int64_t n);
  // x[i] = 1 / (1 + Exp(-x[i]))
  void (*sigmoid)(float* x, int64_t n);
  // h[i] = silu(min(gate[i], limit)) * min(max(up[i], -limit), limit); h may be gate or up.
  void (*swiglu)(const float* gate, const float* up, float limit, float* h, int64_t n);
  void (*conv)(const ConvArgs& args);
  void (*combine)(const CombineArgs& args);
  void (*dots)(const DotsArgs& args);
};

const Kernels& ScalarKernels();
const Kernels* Avx2Kernels();  // null if this machine or build has none
const Kernels* Avx512Kernels();
const Kernels* Avx512VbmiKernels();  // the same with VBMI and GFNI: grids faster
const Kernels* NeonKernels();
// The last of these that there is. The bits are those of any other.
const Kernels& FastestKernels();

// Columns of one part of an integer block product: each part's sum starts at +0, and parts are added in order.
inline constexpr int64_t kPartColumns = 1024;
// Columns that share one scale of the activations.
inline constexpr int64_t kDigitColumns = 32;
// The largest digit: 127 * 256 + 127, so that n = 256 hi + lo with signed bytes.
inline constexpr float kLargestDigit = 32639.0f;
// The largest of a single signed byte.
inline constexpr float kOneDigit = 127.0f;
// Below this largest magnitude a block of activations is zero.
inline constexpr float kSmallestScaled = 0x1p-100f;

}  // namespace glint::cpu
