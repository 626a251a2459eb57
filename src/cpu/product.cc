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

size_t RowGrain(const model::Matrix& w) {
  const quant::Format* const format = quant::Find(w.type);
  return format && format->integer() ? kRowGrain : kFloatRowGrain;
}

// Outputs [begin, end) for all rows: together, or one by one.
void Range(const How& how, const ProductOf& p, int64_t slice, int64_t begin, int64_t end,
           const std::byte* next) {
  const int64_t count = how.batched ? p.x->rows : 1;
  const int64_t lost = Mutated(Mutation::kBatchWithoutLastRow) && count > 1 ? 1 : 0;
  for (int64_t first = 0; first < p.x->rows; first += count)
    ProductPart(*how.kernels, *p.w, slice, begin, end, *p.x, first, count - lost, p.y, p.y_stride, {}, next);
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
                 const RowLists& lists, const std::byte* next) {
  RowsArgs args{};
  args.type = w.type;
  args.weights = w.Row(slice, 0);
  args.next = next;
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
  How run = how;
  if (w.rows * w.columns * x.rows < kWorthThreads) run.pool = nullptr;
  Run(run, static_cast<size_t>(w.rows), RowGrain(w), [&](size_t begin, size_t end, int) {
    Range(how, {&w, &x, y, y_stride}, slice, static_cast<int64_t>(begin), static_cast<int64_t>(end), nullptr);
  });
}

void ProductRange(const How& how, const ProductOf& product, int64_t begin, int64_t end,
                  const std::byte* next) {
  Range(how, product, 0, begin, end, next);
}

void Products(const How& how, std::span<const ProductOf> products) {
  const model::Matrix& shape = *products[0].w;
  if (products[0].x->rows == 0 || shape.rows == 0) return;
  const auto all = static_cast<int64_t>(products.size()) * shape.rows;
  Run(how, static_cast<size_t>(all), RowGrain(shape), [&](size_t begin, size_t end, int) {
    for (auto o = static_cast<int64_t>(begin), last = static_cast<int64_t>(end); o < last;) {
      const int64_t i = o / shape.rows, first = o % shape.rows;
      const int64_t to = std::min(shape.rows, first + last - o);
      const bool more = i + 1 < static_cast<int64_t>(products.size());
      Range(how, products[i], 0, first, to,
            to == shape.rows && more ? products[i + 1].w->Row(0, 0) : nullptr);
      o += to - first;
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
