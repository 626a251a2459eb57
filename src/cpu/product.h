// Matrix products in the canonical arithmetic (docs/design.md, "The canonical arithmetic, in full"): integer block products for
// quantised weights, Dot16 for F32, F16 and BF16. Every kernel table gives the same bits (a NaN is a NaN: its payload is not
// part of the contract).
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "cpu/kernels.h"
#include "model/matrix.h"

namespace glint::cpu {

// Activation rows made ready for one kind of weights: rounded to 16-bit digits per block of 32 with one scale (and the sum of the digits
// of every 16 columns, for minima), or the floats as they are. Blocks are outermost, so that a kernel that holds one block of
// weights in registers reads the rows' digits in one stream.
struct Activations {
  int64_t rows = 0, columns = 0, padded = 0;  // padded: columns up to a multiple of 32
  const float* x = nullptr;                   // [rows] x_stride apart (float weights); the caller's memory
  int64_t x_stride = 0;
  DigitOrder order = DigitOrder::kPlain;
  bool one_digit = false;
  std::vector<int16_t> digits;  // [padded / 32][rows][32], laid out as `order` says
  std::vector<float> scales;    // [padded / 32][rows]
  std::vector<int32_t> sums;    // [padded / 32][rows][2]
};

// How a step's products are to be carried out: set by the modifiers of a plan's step.
struct How {
  const Kernels* kernels;  // never null
  ThreadPool* pool;        // null: this thread alone
  bool batched;            // weights read once for all rows; otherwise row by row (same bits)
  bool one_digit =
      false;  // activations of one signed byte (lever act.int8): other bits, half the products with VNNI
};

// Rounds rows of x (x_stride floats apart) for weights of w's format. `out` may be used again for any shape: it keeps its
// memory. For float weights it only remembers x, which must then outlive the products.
void Prepare(const How& how, const model::Matrix& w, const float* x, int64_t x_stride, int64_t rows,
             Activations& out);

// Which rows a product goes over, where it is not a range of them: the r-th is row take[r] of x and goes to row put[r] of y
// (null: row r).
struct RowLists {
  const int32_t* take = nullptr;
  const int32_t* put = nullptr;
};

// Outputs [begin, end) of W[slice] for activation rows [first, first + count), in this thread:
// y[r * y_stride + o] = W[slice][o] . x[r], r and o counted from row 0 of x and W; times the slice's scale if W has scales.
// next: the weights that this thread will read after these, where it isn't those that lie behind them (null). A hint.
void ProductPart(const Kernels& kernels, const model::Matrix& w, int64_t slice, int64_t begin, int64_t end,
                 const Activations& x, int64_t first, int64_t count, float* y, int64_t y_stride,
                 const RowLists& lists = {}, const std::byte* next = nullptr);

// One of several products that are worked on in one loop.
struct ProductOf {
  const model::Matrix* w;
  const Activations* x;
  float* y;
  int64_t y_stride;
};
// Outputs [begin, end) of slice 0 for all rows, in this thread, as `how` says: rows together or one by one.
void ProductRange(const How& how, const ProductOf& product, int64_t begin, int64_t end,
                  const std::byte* next = nullptr);
// Slice 0 of each, in one loop over the outputs of all: nobody waits for others between two matrices. Matrices of one shape, so that
// threads get equal parts; the same number of rows of x.
void Products(const How& how, std::span<const ProductOf> products);

// y[r][o] = W[slice][o] . x[r] for all rows; y_stride floats between rows of y. w's format must be runnable and its columns whole
// blocks: both are checked where a model is loaded.
void Product(const How& how, const model::Matrix& w, int64_t slice, const Activations& x, float* y,
             int64_t y_stride);
// The same, preparing x itself.
void Product(const How& how, const model::Matrix& w, int64_t slice, const float* x, int64_t x_stride,
             int64_t rows, float* y, int64_t y_stride);

}  // namespace glint::cpu
