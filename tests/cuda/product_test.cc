// Products on the GPU against the CPU's definition, bit by bit: every format, with tensor cores and without, for rows and columns around
// each boundary.
#include "cuda/product.h"

#include <cuda_runtime_api.h>

#include <cstring>
#include <random>
#include <vector>

#include "cpu/product.h"
#include "cuda/status.h"
#include "cuda/tables.h"
#include "cuda/tiles.h"
#include "cuda/weights.h"
#include "tests/cuda/gpu_test_base.h"

namespace glint::test {
namespace {

using quant::Type;

std::vector<Type> Types() {
  std::vector<Type> types = {Type::kF32, Type::kF16, Type::kBF16};
  for (const quant::Format& format : quant::Formats())
    if (cuda::FindTileLayout(format.type) != nullptr) types.push_back(format.type);
  return types;
}

class GpuProduct : public GpuTest<testing::TestWithParam<Type>> {};

INSTANTIATE_TEST_SUITE_P(All, GpuProduct, testing::ValuesIn(Types()),
                         [](const auto& p) { return std::string(quant::Name(p.param)); });

// One matrix and activations, on both devices.
class Bench {
 public:
  Bench(uint64_t seed, Type type, int64_t columns, int64_t rows, int64_t slices, bool with_scales)
      : rng_(seed) {
    const quant::Format& format = *quant::Find(type);
    w_.type = type, w_.columns = columns, w_.rows = rows, w_.slices = slices;
    w_.row_bytes = *quant::RowBytes(format, static_cast<uint64_t>(columns));
    bytes_.resize(w_.bytes());
    // Half of the blocks are encoded weights, half any bytes at all: every code, sign and scale, NaN and infinities too.
    std::normal_distribution<float> normal;
    std::vector<float> weights(format.block_weights);
    for (size_t at = 0; at < bytes_.size(); at += format.block_bytes) {
      if (format.integer() && rng_() % 2 == 0) {
        for (size_t i = 0; i < format.block_bytes; ++i) bytes_[at + i] = static_cast<std::byte>(rng_());
      } else {
        for (float& x : weights) x = normal(rng_);
        format.encode(weights.data(), nullptr, bytes_.data() + at, weights.size());
      }
    }
    w_.data = bytes_.data();
    if (with_scales) {
      for (int64_t s = 0; s < slices; ++s) scales_.push_back(normal(rng_));
      w_.scales = scales_.data();
    }
    weights_.head = w_;
    auto context = cuda::Context::Create(0);
    EXPECT_TRUE(context.ok()) << context.status().message();
    context_.emplace(std::move(*context));
    auto loaded = cuda::DeviceWeights::Load(*context_, {}, weights_, {});
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    on_device_ = std::move(*loaded);
    auto tables = cuda::DeviceTables::Load(*context_);
    EXPECT_TRUE(tables.ok()) << tables.status().message();
    tables_.emplace(std::move(*tables));
  }

  // The referee is the CPU's fastest kernels instead of its definition, whose bits they have by tests/cpu: for large cases.
  void UseFastKernels() { fast_ = true; }
  // The matrix meets columns in the middle of rows of x: so many lie before and behind them, all NaN.
  void PutInside(int64_t before, int64_t behind) { before_ = before, behind_ = behind; }
  // y[out_rows][rows] of both; x has out_rows / per_row rows.
  void Check(int64_t out_rows, cuda::Pairs::Kind kind, int64_t per_row, bool tensor_cores) {
    SCOPED_TRACE(testing::Message() << w_.rows << " x " << w_.columns << ", " << w_.slices << " slices, "
                                    << out_rows << " rows, pairs " << static_cast<int>(kind) << ", "
                                    << per_row << (tensor_cores ? " a row, tensor cores" : " a row, plain"));
    // Rows of x that can be copied in pieces of 16 bytes, and others.
    const int64_t x_rows = out_rows / per_row, width = before_ + w_.columns + behind_,
                  stride = width + 3 + static_cast<int64_t>(rng_() % 2), y_stride = w_.rows + 5;
    std::vector<float> x(static_cast<size_t>(x_rows * stride));
    std::normal_distribution<float> normal;
    for (float& v : x) v = normal(rng_);
    if (x_rows > 2) {
      for (int64_t k = 0; k < std::min<int64_t>(w_.columns, 40); ++k)
        x[static_cast<size_t>(stride + before_ + k)] = 0;
      x[static_cast<size_t>(2 * stride + before_)] = std::numeric_limits<float>::infinity();
    }
    for (int64_t r = 0; r < x_rows; ++r)
      for (int64_t k = 0; k < width; ++k)
        if (k < before_ || k >= before_ + w_.columns)
          x[static_cast<size_t>(r * stride + k)] = std::numeric_limits<float>::quiet_NaN();
    const float* const met = x.data() + before_;
    std::vector<int32_t> ids(static_cast<size_t>(out_rows));
    // A third of the rows on one slice, others on any but the last: groups of many rows, of few and of none.
    const auto any = static_cast<uint64_t>(std::max(w_.slices - 1, int64_t{1}));
    for (int32_t& id : ids)
      id = rng_() % 3 == 0 ? static_cast<int32_t>(w_.slices / 2) : static_cast<int32_t>(rng_() % any);

    std::vector<float> want(static_cast<size_t>(out_rows * y_stride), 7.0f), got = want;
    const cpu::How how{fast_ ? &cpu::FastestKernels() : &cpu::ScalarKernels(), nullptr, fast_};
    if (fast_ && kind == cuda::Pairs::Kind::kSame)
      cpu::Product(how, w_, 0, met, stride, out_rows, want.data(), y_stride);
    for (int64_t r = 0; r < out_rows && !(fast_ && kind == cuda::Pairs::Kind::kSame); ++r) {
      const int64_t slice = kind == cuda::Pairs::Kind::kSame    ? 0
                            : kind == cuda::Pairs::Kind::kHeads ? r % w_.slices
                                                                : ids[static_cast<size_t>(r)];
      cpu::Product(how, w_, slice, met + r / per_row * stride, stride, 1, want.data() + r * y_stride,
                   y_stride);
    }
    Gpu(x, stride, x_rows, ids, kind, per_row, tensor_cores, got, y_stride, out_rows);
    const int64_t at = FirstDifference(want, got);
    ASSERT_EQ(at, -1) << "row " << at / y_stride << ", output " << at % y_stride << ": "
                      << want[static_cast<size_t>(at)] << " on the CPU, " << got[static_cast<size_t>(at)]
                      << " on the GPU";
  }

 private:
  template <class T>
  cuda::DeviceMemory Copy(const std::vector<T>& values) {
    auto memory = cuda::DeviceMemory::Take(*context_, values.size() * sizeof(T), "a test");
    EXPECT_TRUE(memory.ok()) << memory.status().message();
    EXPECT_EQ(cudaMemcpy(memory->data(), values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
              cudaSuccess);
    return std::move(*memory);
  }

  void Gpu(const std::vector<float>& x, int64_t stride, int64_t x_rows, const std::vector<int32_t>& ids,
           cuda::Pairs::Kind kind, int64_t per_row, bool tensor_cores, std::vector<float>& y,
           int64_t y_stride, int64_t out_rows) {
    const auto on_x = Copy(x);
    const auto on_ids = Copy(ids);
    const auto on_y = Copy(y);
    auto scratch_memory = cuda::DeviceMemory::Take(*context_, uint64_t{64} << 20, "a test");
    ASSERT_TRUE(scratch_memory.ok());
    ASSERT_EQ(cudaMemset(scratch_memory->data(), 0xff, scratch_memory->bytes()), cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    cuda::Scratch scratch(scratch_memory->data(), scratch_memory->bytes());
    const model::HParams hp;
    const plan::Step step{};
    cuda::How how;
    how.tensor_cores = tensor_cores;
    const cuda::StepContext c{hp,
                              weights_,
                              *on_device_,
                              *tables_,
                              step,
                              plan::Pass::kTrunk,
                              nullptr,
                              x_rows,
                              1,
                              0,
                              0,
                              {},
                              how,
                              0,
                              0,
                              {},
                              nullptr,
                              scratch,
                              context_->device(),
                              context_->stream(),
                              context_->side(),
                              nullptr,
                              context_->device().compiled_major >= 9};
    cuda::Operand operand(c, reinterpret_cast<const float*>(on_x.data()), stride, x_rows,
                          before_ + w_.columns + behind_);
    const Status status =
        operand.TimesAll({{&weights_.head, reinterpret_cast<float*>(on_y.data()), y_stride, before_}},
                         {kind, reinterpret_cast<const int32_t*>(on_ids.data()), per_row}, out_rows);
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_TRUE(context_->Wait().ok()) << context_->Wait().message();
    ASSERT_EQ(cudaMemcpy(y.data(), on_y.data(), y.size() * sizeof(float), cudaMemcpyDeviceToHost),
              cudaSuccess);
  }

  std::mt19937_64 rng_;
  bool fast_ = false;
  int64_t before_ = 0, behind_ = 0;
  model::Matrix w_;
  std::vector<std::byte> bytes_;
  std::vector<float> scales_;
  model::Weights weights_;
  std::optional<cuda::Context> context_;
  std::unique_ptr<cuda::DeviceWeights> on_device_;
  std::optional<cuda::DeviceTables> tables_;
};

TEST_P(GpuProduct, HasTheCpusBits) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  const quant::Format& format = *quant::Find(GetParam());
  const auto block = static_cast<int64_t>(format.block_weights);
  std::vector<int64_t> widths = {256, 1024, 1280, 4096};
  if (block <= 32) widths.insert(widths.end(), {32, 96, 128, 160, 1056, 3040});
  // More parts than a team has warps, where there is much work and where there is little.
  if (GetParam() == Type::kQ8_0 || GetParam() == Type::kIQ3_XXS) widths.insert(widths.end(), {9216, 17408});
  if (block == 1) widths.insert(widths.end(), {1, 15, 17, 250, 512, 516, 4100, 8704});
  for (const int64_t columns : widths) {
    // Of 129 rows and more, blocks have two each.
    for (const int64_t rows : {int64_t{1}, int64_t{16}, int64_t{37}, int64_t{131}}) {
      if (columns > 1280 && rows == 16) continue;
      if (block > 1 && rows == 131) continue;
      Bench bench(seed + static_cast<uint64_t>(columns * 64 + rows), GetParam(), columns, rows, 3,
                  rows == 37);
      for (const bool tensor_cores : {false, true}) {
        for (const int64_t n : {1, 3, 4, 5, 8, 9, 17})
          ASSERT_NO_FATAL_FAILURE(bench.Check(n, cuda::Pairs::Kind::kSame, 1, tensor_cores));
        for (const int64_t n : {3, 9, 27})
          ASSERT_NO_FATAL_FAILURE(bench.Check(n, cuda::Pairs::Kind::kHeads, 1, tensor_cores));
        ASSERT_NO_FATAL_FAILURE(bench.Check(10, cuda::Pairs::Kind::kExperts, 2, tensor_cores));
        ASSERT_NO_FATAL_FAILURE(bench.Check(1, cuda::Pairs::Kind::kExperts, 1, tensor_cores));
        for (const int64_t n : {7, 64, 65, 150})  // from 65 on they are sorted by expert
          ASSERT_NO_FATAL_FAILURE(bench.Check(n, cuda::Pairs::Kind::kExperts, 1, tensor_cores));
        ASSERT_NO_FATAL_FAILURE(bench.Check(66, cuda::Pairs::Kind::kExperts, 2, tensor_cores));
      }
    }
  }
}

// Prompts: tiles of 64 and 128 activation rows, around their boundaries; blocks of weight rows that end in the middle of a tile; heads;
// and experts with no rows, with a few and with more than a tile holds.
TEST_P(GpuProduct, ManyRowsHaveTheCpusBits) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  const auto same = [&](int64_t columns, int64_t rows, std::initializer_list<int64_t> counts) {
    Bench bench(seed + static_cast<uint64_t>(columns * 64 + rows), GetParam(), columns, rows, 1, rows == 130);
    bench.UseFastKernels();
    for (const int64_t n : counts) ASSERT_NO_FATAL_FAILURE(bench.Check(n, cuda::Pairs::Kind::kSame, 1, true));
  };
  // Enough blocks for the kernel of many rows: its threshold is kManyBlocks in cuda/product.cu.
  ASSERT_NO_FATAL_FAILURE(same(256, 2057, {127, 511, 512, 513}));
  ASSERT_NO_FATAL_FAILURE(same(1280, 130, {3100}));
  if (quant::Find(GetParam())->block_weights <= 32) {
    ASSERT_NO_FATAL_FAILURE(same(1056, 3100, {255}));
  }
  // Columns in the middle of x: that begin at a block of odd number, and whose last stage lacks one.
  for (const int64_t before : {32, 64}) {
    const int64_t columns = quant::Find(GetParam())->block_weights <= 32 ? 96 : 256;
    Bench inside(seed + static_cast<uint64_t>(before), GetParam(), columns, 1160, 1, false);
    inside.UseFastKernels();
    inside.PutInside(before, 64);
    for (const int64_t n : {512, 525})
      ASSERT_NO_FATAL_FAILURE(inside.Check(n, cuda::Pairs::Kind::kSame, 1, true));
  }
  {
    Bench bench(seed, GetParam(), 256, 37, 48, true);
    bench.UseFastKernels();
    for (const int64_t n : {9, 12, 15, 16, 17, 31, 32, 33, 63, 64, 65, 96, 97, 127, 128, 130, 161})
      ASSERT_NO_FATAL_FAILURE(bench.Check(48 * n, cuda::Pairs::Kind::kHeads, 1, true));
  }
  Bench bench(seed, GetParam(), 1280, 270, 40, true);
  bench.UseFastKernels();
  for (const int64_t n : {65, 79, 80, 600})  // few pairs an expert; and many
    ASSERT_NO_FATAL_FAILURE(bench.Check(n, cuda::Pairs::Kind::kExperts, 1, true));
  ASSERT_NO_FATAL_FAILURE(bench.Check(400, cuda::Pairs::Kind::kExperts, 8, true));
  // More than 80 an expert: groups of up to 128 rows.
  Bench wide(seed, GetParam(), 1280, 97, 3, true);
  wide.UseFastKernels();
  for (const int64_t n : {243, 312, 500})
    ASSERT_NO_FATAL_FAILURE(wide.Check(n, cuda::Pairs::Kind::kExperts, 1, true));
}

// Each kind of pairs in the kernel of many rows once, small enough for compute-sanitizer.
TEST_P(GpuProduct, ManyRowsInSmall) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  const auto check = [&](int64_t rows, int64_t slices, int64_t n, cuda::Pairs::Kind kind, int64_t per_row) {
    Bench bench(seed, GetParam(), 256, rows, slices, true);
    bench.UseFastKernels();
    bench.Check(n, kind, per_row, true);
  };
  ASSERT_NO_FATAL_FAILURE(check(2057, 1, 127, cuda::Pairs::Kind::kSame, 1));
  ASSERT_NO_FATAL_FAILURE(check(37, 48, 48 * 12, cuda::Pairs::Kind::kHeads, 1));
  ASSERT_NO_FATAL_FAILURE(check(70, 6, 72, cuda::Pairs::Kind::kExperts, 4));
}

// Tasks of one row for several teams of every multiprocessor, and more than one for each.
TEST_P(GpuProduct, SharesMuchWorkOfSingleRows) {
  const quant::Format& format = *quant::Find(GetParam());
  if (!format.integer()) return;
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::vector<int64_t> widths = {256};
  if (format.block_weights <= 32) widths.push_back(2080);
  if (GetParam() == Type::kQ8_0 || GetParam() == Type::kIQ3_XXS) widths.insert(widths.end(), {4096, 9216});
  for (const int64_t columns : widths) {
    Bench bench(seed + static_cast<uint64_t>(columns), GetParam(), columns, 337, 2, false);
    for (const int64_t pairs : {8, 31, 64})
      ASSERT_NO_FATAL_FAILURE(bench.Check(pairs, cuda::Pairs::Kind::kExperts, 1, true));
  }
}

}  // namespace
}  // namespace glint::test
