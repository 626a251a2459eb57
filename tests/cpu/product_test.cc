#include "cpu/product.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "base/math.h"

namespace glint::cpu {
namespace {

using model::Matrix;
using quant::Format;
using quant::Type;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr Type kTypes[] = {
    Type::kF32,    Type::kF16,   Type::kBF16,    Type::kQ8_0,  Type::kQ4_K,   Type::kQ6_K,    Type::kQ5_0,
    Type::kQ4_0,   Type::kQ4_1,  Type::kQ5_1,    Type::kQ2_K,  Type::kQ3_K,   Type::kQ5_K,    Type::kIQ4_NL,
    Type::kIQ4_XS, Type::kIQ3_S, Type::kIQ3_XXS, Type::kIQ2_S, Type::kIQ2_XS, Type::kIQ2_XXS, Type::kIQ1_M,
    Type::kIQ1_S,  Type::kMXFP4, Type::kNVFP4,   Type::kTQ1_0, Type::kTQ2_0};

std::vector<const Kernels*> Tables() {
  std::vector<const Kernels*> out{&ScalarKernels()};
  for (const Kernels* table : {Avx2Kernels(), Avx512Kernels(), Avx512VbmiKernels(), NeonKernels()})
    if (table) out.push_back(table);
  return out;
}

// Equal bits, or both NaN.
bool Same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

// A random weight that owns its bytes, at an odd address.
struct Weight {
  Matrix matrix;
  std::vector<std::byte> bytes;
};

// Whether the scales and minima of a block are zero or of moderate size.
bool Moderate(const Format& format, const std::byte* block) {
  quant::Unpacked u;
  format.unpack(block, u);
  const auto moderate = [](float v) { return v == 0 || (std::fabs(v) > 0x1p-30f && std::fabs(v) < 0x1p20f); };
  for (size_t i = 0; i < format.block_weights / format.unit; ++i)
    if (!moderate(u.scale[i]) || !moderate(u.minimum[i])) return false;
  return true;
}

// Random blocks (any bits but in the scales, which stay moderate unless `wild`).
Weight RandomWeight(std::mt19937_64& rng, Type type, int64_t columns, int64_t rows, int64_t slices,
                    bool wild) {
  const Format& format = *quant::Find(type);
  const auto blocks = static_cast<size_t>(columns) / format.block_weights;
  Weight w;
  w.matrix = {type, columns, rows, slices, nullptr, blocks * format.block_bytes};
  w.bytes.resize(w.matrix.bytes() + 1);
  for (auto& byte : w.bytes) byte = static_cast<std::byte>(rng());
  w.matrix.data = w.bytes.data() + 1;
  std::byte* const data = w.bytes.data() + 1;
  const auto half = [&](size_t at) {  // magnitudes 2^-8 ... 2^-1
    const auto bits = static_cast<uint16_t>((rng() & 0x83ff) | (7 + rng() % 8) << 10);
    if (!wild || rng() % 4) std::memcpy(data + at, &bits, 2);
  };
  for (size_t i = 0; i < w.matrix.bytes(); i += format.block_bytes) {
    switch (type) {
      case Type::kF32:
        if (!wild || rng() % 16) {
          const float v =
              std::ldexp(static_cast<float>(rng() % 2000) - 1000, static_cast<int>(rng() % 16) - 20);
          std::memcpy(data + i, &v, 4);
        }
        break;
      case Type::kBF16:
        if (!wild || rng() % 16) {
          const auto bits = static_cast<uint16_t>((rng() & 0x807f) | (117 + rng() % 16) << 7);
          std::memcpy(data + i, &bits, 2);
        }
        break;
      case Type::kF16:
        half(i);
        break;
      default:
        while (!(wild && rng() % 4 == 0) && !Moderate(format, data + i)) {
          for (size_t j = 0; j < format.block_bytes; ++j) data[i + j] = static_cast<std::byte>(rng());
        }
    }
  }
  return w;
}

// Magnitudes over 2 * `spread` binary orders, with exact zeros and (if `wild`) tiny, huge and non-finite values.
std::vector<float> RandomRows(std::mt19937_64& rng, size_t n, int spread, bool wild) {
  std::vector<float> x(n);
  std::normal_distribution<float> normal;
  for (auto& v : x) {
    v = std::ldexp(normal(rng), static_cast<int>(rng() % (2 * static_cast<unsigned>(spread) + 1)) - spread);
    if (rng() % 16 == 0) v = 0;
    if (!wild) continue;
    if (rng() % 64 == 0) v = std::bit_cast<float>(static_cast<uint32_t>(rng()));
    if (rng() % 512 == 0) v = rng() % 2 ? kNaN : rng() % 2 ? kInfinity : -kInfinity;
  }
  for (size_t at = 0; wild && at + 64 <= n; at += 64) {
    if (rng() % 8 == 0) std::fill_n(x.begin() + static_cast<ptrdiff_t>(at), 64, rng() % 2 ? 0.0f : -0.0f);
    if (rng() % 8 == 0)
      for (size_t i = 0; i < 64; ++i) x[at + i] = std::ldexp(x[at + i], -110);
  }
  return x;
}

std::vector<double> DecodedRow(const Weight& w, int64_t slice, int64_t row) {
  std::vector<float> f(static_cast<size_t>(w.matrix.columns));
  quant::Find(w.matrix.type)->decode(w.matrix.Row(slice, row), f.data(), f.size());
  return {f.begin(), f.end()};
}

// The canonical product against the exact one in double. Bounds, with u = 2^-24 and terms |w x| summed to A:
//  float weights    each of the n / 16 fmas of a lane and the 4 additions rounds once:  (n / 16 + 5) u A (Higham 3.1, blocked sum);
//  integer formats  every x is off by at most half a step of max / 32639 of its block (with a little room for the rounding of step and
//                   quotient), so a unit by that times its sum of |w|; and each of the up to 2 * 64 fmas of a part, the parts, float(I),
//                   float(N) and s * d round: 200 u of the sum of the magnitudes |s d I| + |b d N|.
class Canonical : public testing::TestWithParam<Type> {};

TEST_P(Canonical, AgreesWithDouble) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  const Format& format = *quant::Find(GetParam());
  const How how{&ScalarKernels(), nullptr, true};
  for (const int64_t blocks : {1, 2, 5, 13}) {
    const int64_t columns = format.integer() ? blocks * 256 : blocks * 83;
    const int64_t rows = 3, out_rows = 5, slices = 2;
    const Weight w = RandomWeight(rng, GetParam(), columns, out_rows, slices, false);
    const auto x = RandomRows(rng, static_cast<size_t>(rows * columns), 6, false);
    std::vector<float> y(static_cast<size_t>(rows * out_rows), kNaN);
    Product(how, w.matrix, 1, x.data(), columns, rows, y.data(), out_rows);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t o = 0; o < out_rows; ++o) {
        const auto row = DecodedRow(w, 1, o);
        const float* const in = x.data() + r * columns;
        double want = 0, bound = 0;
        for (int64_t k = 0; k < columns; ++k) want += row[static_cast<size_t>(k)] * in[k];
        if (format.integer()) {
          quant::Unpacked u;
          for (int64_t k = 0; k < columns; ++k) {
            const auto bw = static_cast<int64_t>(format.block_weights);
            if (k % bw == 0)
              format.unpack(w.matrix.Row(1, o) + k / bw * static_cast<int64_t>(format.block_bytes), u);
            float max = 0;
            for (int64_t i = k / 32 * 32; i < k / 32 * 32 + 32; ++i) max = std::max(max, std::fabs(in[i]));
            const auto unit = static_cast<size_t>(k % bw) / format.unit;
            const double terms =
                std::fabs(static_cast<double>(u.scale[unit]) * u.code[k % bw]) + std::fabs(u.minimum[unit]);
            bound += std::fabs(row[static_cast<size_t>(k)]) * max / 32639 * 0.52 +
                     200 * 0x1p-24 * terms * std::fabs(in[k]);
          }
        } else {
          for (int64_t k = 0; k < columns; ++k)
            bound += (static_cast<double>(columns) / 16 + 5) * 0x1p-24 *
                     std::fabs(row[static_cast<size_t>(k)] * in[k]);
        }
        EXPECT_NEAR(y[static_cast<size_t>(r * out_rows + o)], want, bound)
            << columns << " columns, row " << r << " of " << o;
      }
    }
  }
}

std::string TypeName(const testing::TestParamInfo<Type>& info) {
  return std::string(quant::Name(info.param));
}
INSTANTIATE_TEST_SUITE_P(All, Canonical, testing::ValuesIn(kTypes), TypeName);

bool HasMinima(Type type) {
  for (const Type t : {Type::kQ4_1, Type::kQ5_1, Type::kQ2_K, Type::kQ4_K, Type::kQ5_K})
    if (type == t) return true;
  return false;
}

// The definition once more, written from the page as a formula over unpacked codes, without the Kernels' layout: pins the order of
// units, the two fmas, and the parts.
float FromThePage(const Weight& w, int64_t slice, int64_t row, const float* x) {
  const Format& format = *quant::Find(w.matrix.type);
  const int64_t columns = w.matrix.columns;
  std::vector<float> parts((static_cast<size_t>(columns) + 1023) / 1024, 0.0f);
  for (int64_t k = 0; k < columns; k += static_cast<int64_t>(format.unit)) {
    const auto bw = static_cast<int64_t>(format.block_weights);
    quant::Unpacked u;
    format.unpack(w.matrix.Row(slice, row) + k / bw * static_cast<int64_t>(format.block_bytes), u);
    double max = 0;
    bool finite = true;
    for (int64_t i = k / 32 * 32; i < k / 32 * 32 + 32; ++i) {
      finite = finite && std::isfinite(x[i]);
      max = std::max<double>(max, std::fabs(x[i]));
    }
    const auto m = static_cast<float>(max);
    const float d = !finite ? kNaN : m < 0x1p-100f ? 0 : m / 32639;
    int64_t product = 0, sum = 0;
    for (int64_t i = 0; i < static_cast<int64_t>(format.unit); ++i) {
      int64_t n = 0;
      if (finite && m >= 0x1p-100f)
        n = std::lrint(std::min(std::max(std::rint(x[k + i] * (32639 / m)), -32639.0f), 32639.0f));
      product += u.code[k % bw + i] * n;
      sum += n;
    }
    const auto unit = static_cast<size_t>(k % bw) / format.unit;
    float& part = parts[static_cast<size_t>(k) / 1024];
    part = std::fma(static_cast<float>(product), u.scale[unit] * d, part);
    if (HasMinima(w.matrix.type)) part = std::fma(static_cast<float>(sum), u.minimum[unit] * d, part);
  }
  float total = parts[0];
  for (size_t p = 1; p < parts.size(); ++p) total += parts[p];
  return total;
}

TEST(Page, IntegerProductsAreThePagesFormula) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  const How how{&ScalarKernels(), nullptr, true};
  for (const Type type : kTypes) {
    if (!quant::Find(type)->integer()) continue;
    for (const bool wild : {false, true}) {
      for (const int64_t columns : {256, 1024, 1280, 3328}) {
        const Weight w = RandomWeight(rng, type, columns, 3, 1, wild);
        const auto x = RandomRows(rng, static_cast<size_t>(columns) * 2, 20, wild);
        std::vector<float> y(6, kNaN);
        Product(how, w.matrix, 0, x.data(), columns, 2, y.data(), 3);
        for (int64_t i = 0; i < 6; ++i) {
          const float want = FromThePage(w, 0, i % 3, x.data() + i / 3 * columns);
          ASSERT_TRUE(Same(want, y[static_cast<size_t>(i)]))
              << quant::Name(type) << " " << columns << ": " << want << " and " << y[static_cast<size_t>(i)];
        }
      }
    }
  }
}

TEST(Page, Dot16IsThePagesOrder) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  for (size_t n = 0; n < 70; ++n) {
    const auto x = RandomRows(rng, n, 12, false), y = RandomRows(rng, n, 12, false);
    float l[16] = {};
    for (size_t i = 0; i < 16; ++i)
      for (size_t k = i; k < n; k += 16) l[i] = std::fma(x[k], y[k], l[i]);
    const auto pair = [&l](int i) { return (l[i] + l[i + 8]) + (l[i + 4] + l[i + 12]); };
    const float want = (pair(0) + pair(2)) + (pair(1) + pair(3));
    for (const Kernels* table : Tables()) {
      const float got = table->dot16(x.data(), y.data(), static_cast<int64_t>(n));
      ASSERT_TRUE(Same(want, got)) << table->name << " " << n << ": " << want << " and " << got;
    }
  }
}

class Table : public testing::TestWithParam<std::tuple<const Kernels*, Type>> {
 protected:
  const Kernels& table() const { return *std::get<0>(GetParam()); }
  Type type() const { return std::get<1>(GetParam()); }
};

// Random shapes around every tile, wild values, outputs between sentinels: bits of the scalar definition.
TEST_P(Table, HasTheCanonicalBits) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  const Format& format = *quant::Find(type());
  const auto block = static_cast<int64_t>(format.block_weights);
  const int64_t out_sizes[] = {1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 31, 32, 33, 47, 70};
  const int64_t row_sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 31, 33, 65, 70};
  const int64_t column_sizes[] = {0,  1,  3,   15,  16,  17,  31,   32,   33,   63,
                                  64, 65, 100, 129, 256, 992, 1024, 1056, 2048, 2080};
  const auto pick = [&rng](const auto& list) { return list[rng() % std::size(list)]; };
  for (int repeat = 0; repeat < 60; ++repeat) {
    const bool wild = repeat % 3 == 0;
    int64_t columns = pick(column_sizes);
    columns = (columns + block - 1) / block * block;
    if (repeat == 0) columns = (4128 + block - 1) / block * block;
    const int64_t outs = pick(out_sizes), rows = pick(row_sizes),
                  slices = 1 + static_cast<int64_t>(rng() % 3);
    const Weight w = RandomWeight(rng, type(), columns, outs, slices, wild);
    const int64_t x_stride = columns + static_cast<int64_t>(rng() % 5),
                  y_stride = outs + static_cast<int64_t>(rng() % 5);
    const auto x = RandomRows(rng, static_cast<size_t>(rows * x_stride), static_cast<int>(rng() % 20), wild);
    const int64_t slice = static_cast<int64_t>(rng() % static_cast<uint64_t>(slices));

    constexpr float kGuard = -77.25f;
    std::vector<float> want(static_cast<size_t>(rows * y_stride) + 16, kGuard), got = want;
    for (int64_t r = 0; r < rows; ++r) std::fill_n(got.begin() + 8 + r * y_stride, outs, kNaN);
    const bool one_digit = repeat % 4 == 0;
    Product({&ScalarKernels(), nullptr, true, one_digit}, w.matrix, slice, x.data(), x_stride, rows,
            want.data() + 8, y_stride);
    Product({&table(), nullptr, true, one_digit}, w.matrix, slice, x.data(), x_stride, rows, got.data() + 8,
            y_stride);
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_TRUE(Same(want[i], got[i])) << columns << " columns, " << outs << " x " << rows << ", at " << i
                                         << ": " << want[i] << " and " << got[i];
  }
}

// Every shape of a tile's and a chunk's end, once, and lists of rows that take and put.
TEST_P(Table, HasTheCanonicalBitsAtEveryTail) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  const auto block = static_cast<int64_t>(quant::Find(type())->block_weights);
  for (int64_t blocks = 1; blocks <= (block < 256 ? 9 : 5); ++blocks) {
    for (const int64_t outs : {1, 7, 8, 15, 16, 17, 33}) {
      const Weight w = RandomWeight(rng, type(), blocks * block, outs, 1, false);
      for (const int64_t rows : {1, 2, 3, 4, 5, 9}) {
        const auto x = RandomRows(rng, static_cast<size_t>(rows * blocks * block), 4, false);
        std::vector<float> want(static_cast<size_t>(rows * outs), kNaN), got = want;
        Product({&ScalarKernels(), nullptr, true}, w.matrix, 0, x.data(), blocks * block, rows, want.data(),
                outs);
        Activations prepared;
        Prepare({&table(), nullptr, true}, w.matrix, x.data(), blocks * block, rows, prepared);
        std::vector<int32_t> take(static_cast<size_t>(rows));
        for (size_t r = 0; r < take.size(); ++r) take[r] = static_cast<int32_t>((r + 1) % take.size());
        ProductPart(table(), w.matrix, 0, 0, outs, prepared, 0, rows, got.data(), outs,
                    {take.data(), take.data()});
        for (size_t i = 0; i < want.size(); ++i)
          ASSERT_TRUE(Same(want[i], got[i]))
              << blocks << " blocks, " << outs << " x " << rows << ", at " << i;
      }
    }
  }
}

// Blocks of one byte repeated (all 256: codes, scales and signs at their extremes) and enough random ones for every point of a grid (of
// the 2,048 of IQ1, each 60 times on average), against digits that are all as large as they can be, of one sign and of signs by turns:
// no intermediate sum may overflow or saturate.
TEST_P(Table, HasTheCanonicalBitsOfExtremeBlocks) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  const Format& format = *quant::Find(type());
  const int64_t columns = 1024, outs = 256 + 960;
  Weight w = RandomWeight(rng, type(), columns, outs, 1, true);
  for (size_t i = 0; i < 256; ++i)
    std::memset(w.bytes.data() + 1 + i * w.matrix.row_bytes, static_cast<int>(i), w.matrix.row_bytes);
  if (format.integer()) {  // the extremes of codes under a scale that leaves a number to compare
    const auto usual = [&](std::byte* block, const std::byte* from) {
      std::memcpy(block, from, format.block_bytes);
    };
    Weight moderate = RandomWeight(rng, type(), columns, 1, 1, false);
    for (size_t r = 0; r < 256; r += 3) {
      std::byte* const row = w.bytes.data() + 1 + r * w.matrix.row_bytes;
      for (size_t at = 0; at < w.matrix.row_bytes; at += format.block_bytes) {
        if (Moderate(format, row + at)) continue;
        usual(row + at, moderate.bytes.data() + 1 + at);
        std::memset(row + at + format.block_bytes / 4, static_cast<int>(r), format.block_bytes / 2);
        if (!Moderate(format, row + at)) usual(row + at, moderate.bytes.data() + 1 + at);
      }
    }
  }
  for (const bool one_digit : {false, true}) {
    const int64_t rows = 5;
    std::vector<float> x(static_cast<size_t>(rows * columns));
    for (size_t i = 0; i < x.size(); ++i) {
      const size_t row = i / static_cast<size_t>(columns);
      x[i] = row == 0    ? 1.0f
             : row == 1  ? -1.0f
             : row == 2  ? (i % 2 ? 1.0f : -1.0f)
             : rng() % 2 ? 1.5f
                         : -1.5f;
    }
    for (const int64_t count : {1, 2, 5}) {
      std::vector<float> want(static_cast<size_t>(count * outs), kNaN), got = want;
      Product({&ScalarKernels(), nullptr, true, one_digit}, w.matrix, 0, x.data(), columns, count,
              want.data(), outs);
      Product({&table(), nullptr, true, one_digit}, w.matrix, 0, x.data(), columns, count, got.data(), outs);
      for (size_t i = 0; i < want.size(); ++i)
        ASSERT_TRUE(Same(want[i], got[i]))
            << one_digit << " " << count << ", at " << i << ": " << want[i] << " and " << got[i];
    }
  }
}

TEST_P(Table, ThreadsAndBatchingDoNotChangeABit) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  const int64_t columns = 1280, outs = 77, rows = 11;
  const Weight w = RandomWeight(rng, type(), columns, outs, 1, false);
  const auto x = RandomRows(rng, static_cast<size_t>(rows * columns), 8, false);
  std::vector<float> want(static_cast<size_t>(rows * outs), kNaN);
  Product({&table(), nullptr, true}, w.matrix, 0, x.data(), columns, rows, want.data(), outs);
  for (const int threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    for (const bool batched : {true, false}) {
      std::vector<float> got(want.size(), kNaN);
      Product({&table(), &pool, batched}, w.matrix, 0, x.data(), columns, rows, got.data(), outs);
      ASSERT_EQ(std::memcmp(want.data(), got.data(), want.size() * sizeof(float)), 0)
          << threads << " " << batched;
    }
  }
}

std::string TableName(const testing::TestParamInfo<Table::ParamType>& info) {
  return std::string(std::get<0>(info.param)->name) + "_" + std::string(quant::Name(std::get<1>(info.param)));
}
// Several matrices in one loop, cut within and between them, against each by itself.
TEST_P(Table, ProductsInOneLoopAreThoseOfEach) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  const int64_t columns = 512, rows = 3;
  const auto x = RandomRows(rng, static_cast<size_t>(rows * columns), 8, false);
  for (const int64_t outs : {1, 15, 16, 17, 77}) {
    std::vector<Weight> weights;
    for (int i = 0; i < 3; ++i) weights.push_back(RandomWeight(rng, type(), columns, outs, 1, false));
    const int64_t stride = 3 * outs;
    std::vector<float> want(static_cast<size_t>(rows * stride), kNaN);
    for (int i = 0; i < 3; ++i) {
      Product({&table(), nullptr, true}, weights[static_cast<size_t>(i)].matrix, 0, x.data(), columns, rows,
              want.data() + i * outs, stride);
    }
    for (const int threads : {1, 2, 5}) {
      ThreadPool pool(threads);
      for (const bool batched : {true, false}) {
        const How how{&table(), &pool, batched};
        Activations prepared;
        Prepare(how, weights[0].matrix, x.data(), columns, rows, prepared);
        std::vector<float> got(want.size(), kNaN);
        std::vector<ProductOf> products;
        for (int i = 0; i < 3; ++i)
          products.push_back(
              {&weights[static_cast<size_t>(i)].matrix, &prepared, got.data() + i * outs, stride});
        Products(how, products);
        ASSERT_EQ(std::memcmp(want.data(), got.data(), want.size() * sizeof(float)), 0)
            << outs << " " << threads << " " << batched;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Table, testing::Combine(testing::ValuesIn(Tables()), testing::ValuesIn(kTypes)),
                         TableName);

class Elementwise : public testing::TestWithParam<const Kernels*> {};

TEST_P(Elementwise, RoundHasTheCanonicalDigits) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  for (int repeat = 0; repeat < 2000; ++repeat) {
    const auto n = static_cast<size_t>(rng() % 200);
    const int64_t stride = 1 + static_cast<int64_t>(rng() % 3);
    auto x = RandomRows(rng, n, static_cast<int>(rng() % 30), repeat % 2);
    if (n > 2 && repeat % 5 == 0) x[1] = -x[0], x[2] = x[0] / 2;  // ties and equal extremes
    const float largest = repeat % 7 == 0 ? kOneDigit : kLargestDigit;
    const size_t blocks = (n + 31) / 32 * static_cast<size_t>(stride);
    std::vector<int16_t> digits[2] = {std::vector<int16_t>(blocks * 32 + 1, 99),
                                      std::vector<int16_t>(blocks * 32 + 1, 99)};
    std::vector<float> scales[2] = {std::vector<float>(blocks + 1, -9), std::vector<float>(blocks + 1, -9)};
    std::vector<int32_t> sums[2] = {std::vector<int32_t>(blocks * 2 + 1, -9),
                                    std::vector<int32_t>(blocks * 2 + 1, -9)};
    const Kernels* const tables[2] = {&ScalarKernels(), GetParam()};
    for (size_t t = 0; t < 2; ++t)
      tables[t]->round(x.data(), static_cast<int64_t>(n), stride, largest, digits[t].data(), scales[t].data(),
                       sums[t].data());
    for (size_t b = 0; b < (n + 31) / 32; ++b) {
      for (int64_t i = 0; i < 32; ++i) {
        const auto digit = [&](size_t t) {
          return Digit(tables[t]->order, &digits[t][b * static_cast<size_t>(stride) * 32], i);
        };
        ASSERT_EQ(digit(0), digit(1)) << b << " " << i;
      }
    }
    ASSERT_EQ(digits[1].back(), 99);
    ASSERT_EQ(sums[0], sums[1]);
    for (size_t i = 0; i < scales[0].size(); ++i) ASSERT_TRUE(Same(scales[0][i], scales[1][i]));
  }
}

TEST_P(Elementwise, Dot16AxpyAndExpHaveTheCanonicalBits) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  for (int repeat = 0; repeat < 3000; ++repeat) {
    const auto n = static_cast<size_t>(rng() % 100);
    const bool wild = repeat % 2;
    const auto x = RandomRows(rng, n, 20, wild), y = RandomRows(rng, n, 20, wild);
    const auto count = static_cast<int64_t>(n);
    ASSERT_TRUE(
        Same(ScalarKernels().dot16(x.data(), y.data(), count), GetParam()->dot16(x.data(), y.data(), count)));
    std::vector<float> want = y, got = y;
    want.push_back(5), got.push_back(5);
    const float a = std::ldexp(static_cast<float>(rng() % 999), -8);
    ScalarKernels().axpy(a, x.data(), want.data(), count);
    GetParam()->axpy(a, x.data(), got.data(), count);
    for (size_t i = 0; i <= n; ++i) ASSERT_TRUE(Same(want[i], got[i]));
    std::vector<float> e = x;
    for (auto& v : e)
      if (rng() % 2) v = static_cast<float>(static_cast<double>(rng() % 2000000) / 1e4 - 100);
    got.assign(n + 1, 5);
    GetParam()->exp(e.data(), got.data(), count);
    for (size_t i = 0; i < n; ++i)
      ASSERT_TRUE(Same(Exp(e[i]), got[i])) << e[i] << " " << Exp(e[i]) << " " << got[i];
    ASSERT_EQ(got[n], 5);
  }
}

TEST_P(Elementwise, DotsHaveTheCanonicalBits) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  for (int repeat = 0; repeat < 500; ++repeat) {
    const auto width = static_cast<int64_t>(rng() % 150), n = static_cast<int64_t>(rng() % 12),
               rows = static_cast<int64_t>(rng() % 12), stride = width + static_cast<int64_t>(rng() % 3);
    const bool wild = repeat % 2;
    const auto a = RandomRows(rng, static_cast<size_t>(stride * 12 + 1), 20, wild),
               x = RandomRows(rng, static_cast<size_t>(stride * 20 + 1), 20, wild);
    std::vector<int32_t> index(static_cast<size_t>(n));
    for (auto& i : index) i = static_cast<int32_t>(rng() % 20);
    DotsArgs args{};
    args.a = a.data(), args.a_stride = stride, args.rows = rows;
    args.x = x.data(), args.x_stride = stride, args.n = n, args.width = width;
    args.index = repeat % 3 ? index.data() : nullptr;
    args.out_row = repeat % 4 < 2 ? 1 : 12, args.out_step = repeat % 4 < 2 ? 12 : 1;
    std::vector<float> want(145, 7.5f), got = want;
    args.out = got.data();
    GetParam()->dots(args);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < n; ++i) {
        const int64_t row = args.index ? index[static_cast<size_t>(i)] : i;
        want[static_cast<size_t>(r * args.out_row + i * args.out_step)] =
            ScalarKernels().dot16(a.data() + r * stride, x.data() + row * stride, width);
      }
    }
    for (size_t i = 0; i < want.size(); ++i) ASSERT_TRUE(Same(want[i], got[i])) << i;
  }
}

TEST_P(Elementwise, CombineAndActivationsHaveTheCanonicalBits) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  for (int repeat = 0; repeat < 1000; ++repeat) {
    const auto width = static_cast<size_t>(rng() % 300), terms = static_cast<size_t>(rng() % 20),
               rows = static_cast<size_t>(rng() % 10);
    const bool wild = repeat % 2;
    const auto x = RandomRows(rng, width * 20 + 6, 20, wild), a = RandomRows(rng, 400, 20, wild);
    auto want = RandomRows(rng, (width + 1) * rows + 1, 20, wild), got = want;
    std::vector<int32_t> index(terms);
    for (auto& i : index) i = static_cast<int32_t>(rng() % 20);
    CombineArgs args{};
    args.a = a.data();
    args.a_row = repeat % 3 ? 1 : 20, args.a_step = repeat % 3 ? 20 : 1;
    args.x = x.data(), args.x_stride = static_cast<int64_t>(width);
    args.index = repeat % 4 ? nullptr : index.data();
    args.n = static_cast<int64_t>(terms);
    args.dst_stride = static_cast<int64_t>(width) + 1;
    args.rows = static_cast<int64_t>(rows), args.width = static_cast<int64_t>(width);
    args.dst = got.data();
    GetParam()->combine(args);
    // The definition, entry by entry.
    for (size_t r = 0; r < rows; ++r) {
      for (size_t j = 0; j < width; ++j) {
        float& sum = want[r * (width + 1) + j];
        for (size_t i = 0; i < terms; ++i) {
          const size_t row = args.index ? static_cast<size_t>(index[i]) : i;
          sum = std::fma(a[r * static_cast<size_t>(args.a_row) + i * static_cast<size_t>(args.a_step)],
                         x[row * width + j], sum);
        }
      }
    }
    for (size_t i = 0; i < want.size(); ++i) ASSERT_TRUE(Same(want[i], got[i])) << i;

    const auto n = static_cast<int64_t>(std::min<size_t>(width, 90));
    const float* const in[4] = {repeat % 2 ? nullptr : &x[1], &x[2], &x[3], &x[5]};
    const auto out = [n](const Kernels& kernels, const auto& fn) {
      std::vector<float> y(static_cast<size_t>(n) + 1, 7.5f);
      fn(kernels, y.data());
      return y;
    };
    const auto same = [&](const auto& fn) {
      const auto first = out(ScalarKernels(), fn), second = out(*GetParam(), fn);
      for (size_t i = 0; i < first.size(); ++i) ASSERT_TRUE(Same(first[i], second[i])) << i;
    };
    same([&](const Kernels& k, float* y) { k.conv({a.data(), in, 4, n, y}); });
    same([&](const Kernels& k, float* y) { k.swiglu(a.data(), x.data(), 7.0f, y, n); });
    same([&](const Kernels& k, float* y) {
      std::copy_n(a.data(), n, y);
      k.sigmoid(y, n);
    });
  }
}

std::string KernelsName(const testing::TestParamInfo<const Kernels*>& info) { return info.param->name; }
INSTANTIATE_TEST_SUITE_P(All, Elementwise, testing::ValuesIn(Tables()), KernelsName);

}  // namespace
}  // namespace glint::cpu
