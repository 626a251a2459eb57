// The definition of every product (docs/design.md, "The canonical arithmetic, in full"): plain loops, any machine.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/half.h"
#include "base/math.h"
#include "base/mutation.h"
#include "cpu/kernels.h"

namespace glint::cpu {
namespace {

float SumLanes(float* lane) {
  for (int width = 8; width > 0; width /= 2)
    for (int i = 0; i < width; ++i)
      lane[i] += lane[Mutated(Mutation::kDot16Tree) ? 2 * width - 1 - i : i + width];
  return lane[0];
}

float Dot16(const float* x, const float* y, int64_t n) {
  float lane[16] = {};
  for (int64_t k = 0; k < n; ++k) lane[k % 16] = std::fma(x[k], y[k], lane[k % 16]);
  return SumLanes(lane);
}

void Round(const float* x, int64_t n, int64_t stride, float most, int16_t* digits, float* scales,
           int32_t* sums) {
  for (int64_t at = 0; at < n; at += kDigitColumns) {
    const int64_t columns = std::min(n - at, kDigitColumns);
    float max = 0;
    bool finite = true;
    for (int64_t i = 0; i < columns; ++i) {
      finite = finite && std::isfinite(x[at + i]);
      max = std::max(max, std::fabs(x[at + i]));
    }
    std::fill_n(digits, kDigitColumns, int16_t{0});
    sums[0] = sums[1] = 0;
    *scales = finite ? 0.0f : std::numeric_limits<float>::quiet_NaN();
    if (finite && max >= kSmallestScaled) {
      *scales = max / most;
      const float inverse = most / max;
      for (int64_t i = 0; i < columns; ++i) {
        const float rounded = std::nearbyint(x[at + i] * inverse);
        digits[i] = static_cast<int16_t>(std::clamp(rounded, -most, most));
        sums[i / 16] += digits[i];
      }
    }
    digits += stride * kDigitColumns, scales += stride, sums += stride * 2;
  }
}

int64_t Take(const RowsArgs& a, int64_t r) { return a.take ? a.take[r] : r; }
int64_t Put(const RowsArgs& a, int64_t r) { return a.put ? a.put[r] : r; }

// A weight row is decoded once into `row` and meets every activation row.
void FloatRows(const RowsArgs& a, const quant::Format& format) {
  std::vector<float> row(static_cast<size_t>(a.columns));
  for (int64_t o = a.begin; o < a.end; ++o) {
    format.decode(a.weights + static_cast<size_t>(o) * a.row_bytes, row.data(), row.size());
    for (int64_t r = a.first; r < a.first + a.count; ++r)
      a.y[Put(a, r) * a.y_stride + o] = Dot16(row.data(), a.x + Take(a, r) * a.x_stride, a.columns);
  }
}

// The units of one block of weights, which starts at column `at`, against one activation row: the two fmas of the definition.
float BlockUnits(const RowsArgs& a, const quant::Format& format, const quant::Unpacked& block, int64_t at,
                 int64_t r, float sum) {
  const auto unit = static_cast<int64_t>(format.unit);
  for (int64_t i = 0; i < static_cast<int64_t>(format.block_weights); i += unit) {
    const int64_t digit_block = (at + i) / kDigitColumns * a.rows + r, inside = (at + i) % kDigitColumns;
    const int16_t* n = a.digits + digit_block * kDigitColumns;
    int16_t plain[kDigitColumns];
    if (a.order != DigitOrder::kPlain) {  // a table that has no kernel of its own for these weights
      for (int64_t j = 0; j < kDigitColumns; ++j) plain[j] = static_cast<int16_t>(Digit(a.order, n, j));
      n = plain;
    }
    int32_t product = 0, digits = 0;  // at most 32 * 128 * 32639: exact
    for (int64_t j = 0; j < unit; ++j) product += block.code[i + j] * n[inside + j];
    for (int64_t j = inside / 16; j < (inside + (Mutated(Mutation::kMinimaOfHalfTheDigits) ? 16 : unit)) / 16;
         ++j)
      digits += a.sums[digit_block * 2 + j];
    const float d =
        a.scales[digit_block - (Mutated(Mutation::kScaleOfTheBlockBefore) && at > 0 ? a.rows : 0)];
    sum = std::fma(static_cast<float>(product), block.scale[i / unit] * d, sum);
    if (format.minima) sum = std::fma(static_cast<float>(digits), block.minimum[i / unit] * d, sum);
  }
  return sum;
}

void IntegerRows(const RowsArgs& a, const quant::Format& format) {
  std::vector<float> part(static_cast<size_t>(a.count)), total(static_cast<size_t>(a.count));
  quant::Unpacked block;
  const int64_t part_columns = Mutated(Mutation::kPartTooLong) ? 2 * kPartColumns : kPartColumns;
  for (int64_t o = a.begin; o < a.end; ++o) {
    const std::byte* at = a.weights + static_cast<size_t>(o) * a.row_bytes;
    std::fill(total.begin(), total.end(), 0.0f);  // what a product over no columns is
    for (int64_t begin = 0; begin < a.columns; begin += part_columns) {
      std::fill(part.begin(), part.end(), 0.0f);
      const int64_t end = std::min(begin + part_columns, a.columns);
      for (int64_t k = begin; k < end;
           k += static_cast<int64_t>(format.block_weights), at += format.block_bytes) {
        format.unpack(at, block);
        for (int64_t r = 0; r < a.count; ++r) {
          float& sum = part[static_cast<size_t>(r)];
          sum = BlockUnits(a, format, block, k, Take(a, a.first + r), sum);
        }
      }
      for (size_t r = 0; r < total.size(); ++r) total[r] = begin == 0 ? part[r] : total[r] + part[r];
    }
    for (size_t r = 0; r < total.size(); ++r)
      a.y[Put(a, a.first + static_cast<int64_t>(r)) * a.y_stride + o] = total[r];
  }
}

void Rows(const RowsArgs& a) {
  const quant::Format& format = *quant::Find(a.type);
  format.integer() ? IntegerRows(a, format) : FloatRows(a, format);
}

void Axpy(float a, const float* x, float* dst, int64_t n) {
  for (int64_t i = 0; i < n; ++i) dst[i] = std::fma(a, x[i], dst[i]);
}

void ExpAll(const float* x, float* dst, int64_t n) {
  for (int64_t i = 0; i < n; ++i) dst[i] = Exp(x[i]);
}

void Sigmoids(float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = Sigmoid(x[i]);
}

void SwiGlu(const float* gate, const float* up, float limit, float* h, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float u = Mutated(Mutation::kUpNotClamped) ? up[i] : std::min(std::max(up[i], -limit), limit);
    h[i] = Silu(std::min(gate[i], limit)) * u;
  }
}

void Conv(const ConvArgs& c) {
  for (int64_t i = 0; i < c.n; ++i) {
    float sum = 0;
    for (int64_t tap = 0; tap < c.taps; ++tap)
      if (c.in[tap]) sum = std::fma(c.w[i * c.taps + tap], c.in[tap][i], sum);
    c.out[i] = Silu(sum);
  }
}

void Combine(const CombineArgs& c) {
  for (int64_t r = 0; r < c.rows; ++r) {
    for (int64_t i = 0; i < c.n; ++i) {
      const float* const row = c.x + (c.index ? c.index[i] : i) * c.x_stride;
      Axpy(c.a[r * c.a_row + i * c.a_step], row, c.dst + r * c.dst_stride, c.width);
    }
  }
}

void Dots(const DotsArgs& d) {
  for (int64_t i = 0; i < d.n; ++i) {
    const float* const row = d.x + (d.index ? d.index[i] : i) * d.x_stride;
    for (int64_t r = 0; r < d.rows; ++r)
      d.out[r * d.out_row + i * d.out_step] = Dot16(d.a + r * d.a_stride, row, d.width);
  }
}

}  // namespace

int Digit(DigitOrder order, const int16_t* block, int64_t i) {
  if (order == DigitOrder::kPlain) return block[i];
  if (order == DigitOrder::kPairs) return block[i / 4 * 4 + i % 2 * 2 + i / 2 % 2];
  const auto* const planes = reinterpret_cast<const int8_t*>(block);
  return 256 * planes[i] + planes[32 + i];
}

const Kernels& ScalarKernels() {
  static constexpr Kernels kKernels{"scalar", DigitOrder::kPlain, Rows,   Round, Dot16,   Axpy,
                                    ExpAll,   Sigmoids,           SwiGlu, Conv,  Combine, Dots};
  return kKernels;
}

}  // namespace glint::cpu
