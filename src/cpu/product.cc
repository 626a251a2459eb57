#include "cpu/product.h"

#include <algorithm>

#include "base/mutation.h"

namespace glint::cpu {
namespace {

// Weight rows of a thread come in multiples of this (a whole number of every kernel's row tile).
constexpr size_t kRowGrain = 16;
constexpr size_t kFloatRowGrain = 4;
// Products smaller than this (multiply-adds, a few microseconds) are done before other threads would have begun.
constexpr int64_t kWorthThreads = int64_t{1} << 16;

void Run(const How& how, size_t n, size_t grain, const std::function<void(size_t, size_t, int)>& fn) {
  if (n == 0) return;
  how.pool ? how.pool->ParallelFor(n, grain, fn) : fn(0, n, 0);
}

}  // namespace

void Prepare(const How& how, const model::Matrix& w, const float* x, int64_t x_stride, int64_t rows,
             Activations& out) {
  out.rows = rows;
  out.columns = w.columns;
  out.padded = (w.columns + kDigitColumns - 1) / kDigitColumns * kDigitColumns;
  out.x = x;
  out.x_stride = x_stride;
  const quant::Format* const format = quant::Find(w.type);
  if (!format || !format->integer() || w.columns == 0) return;
  const auto blocks = static_cast<size_t>(out.padded / kDigitColumns * rows);
  out.order = how.kernels->order;
  out.one_digit = how.one_digit;
  const float largest = how.one_digit ? kOneDigit : kLargestDigit;
  out.digits.resize(blocks * kDigitColumns);
  out.scales.resize(blocks);
  out.sums.resize(blocks * 2);
  Run(how, static_cast<size_t>(rows), 1, [&](size_t begin, size_t end, int) {
    for (size_t r = begin; r < end; ++r)
      how.kernels->round(x + static_cast<int64_t>(r) * x_stride, w.columns, rows, largest,
                         out.digits.data() + r * kDigitColumns, out.scales.data() + r,
                         out.sums.data() + r * 2);
  });
}

void ProductPart(const Kernels& kernels, const model::Matrix& w, int64_t slice, int64_t begin, int64_t end,
                 const Activations& x, int64_t first, int64_t count, float* y, int64_t y_stride,
                 const RowLists& lists) {
  RowsArgs args{};
  args.type = w.type;
  args.weights = w.Row(slice, 0);
  args.row_bytes = w.row_bytes;
  args.columns = w.columns;
  args.begin = begin;
  args.end = end;
  args.first = first;
  args.count = count;
  args.take = lists.take;
  args.put = lists.put;
  args.rows = x.rows;
  args.order = x.order;
  args.one_digit = x.one_digit;
  args.digits = x.digits.data();
  args.scales = x.scales.data();
  args.sums = x.sums.data();
  args.x = x.x;
  args.x_stride = x.x_stride;
  args.y = y;
  args.y_stride = y_stride;
  kernels.rows(args);
  if (!w.scales) return;
  for (int64_t r = first; r < first + count; ++r) {
    float* const row = y + (lists.put ? lists.put[r] : r) * y_stride;
    for (int64_t o = begin; o < end; ++o) row[o] *= w.scales[slice];
  }
}

void Product(const How& how, const model::Matrix& w, int64_t slice, const Activations& x, float* y,
             int64_t y_stride) {
  if (x.rows == 0) return;
  const quant::Format* const format = quant::Find(w.type);
  How run = how;
  if (w.rows * w.columns * x.rows < kWorthThreads) run.pool = nullptr;
  const size_t grain = format && format->integer() ? kRowGrain : kFloatRowGrain;
  const int64_t count = how.batched ? x.rows : 1;
  const int64_t lost = Mutated(Mutation::kBatchWithoutLastRow) && count > 1 ? 1 : 0;
  Run(run, static_cast<size_t>(w.rows), grain, [&](size_t begin, size_t end, int) {
    for (int64_t first = 0; first < x.rows; first += count) {
      ProductPart(*how.kernels, w, slice, static_cast<int64_t>(begin), static_cast<int64_t>(end), x, first,
                  count - lost, y, y_stride);
    }
  });
}

void Product(const How& how, const model::Matrix& w, int64_t slice, const float* x, int64_t x_stride,
             int64_t rows, float* y, int64_t y_stride) {
  Activations prepared;
  Prepare(how, w, x, x_stride, rows, prepared);
  Product(how, w, slice, prepared, y, y_stride);
}

}  // namespace glint::cpu
