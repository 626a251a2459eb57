#include "cuda/weights.h"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/memory.h"
#include "cuda/tiles.h"
#include "model/glm_flash/tensors.h"
#include "model/model_data.h"
#include "tests/cuda/gpu_test_base.h"

namespace glint::cuda {
namespace {

using quant::Type;

class DeviceWeightsTest : public test::GpuTest<> {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    auto context = Context::Create(0);
    ASSERT_TRUE(context.ok()) << context.status().message();
    context_.emplace(std::move(*context));
  }
  Result<std::unique_ptr<DeviceWeights>> Load(const model::Weights& weights, const Progress& progress = {},
                                              const model::SyntheticFill* fill = nullptr) {
    return DeviceWeights::Load(*context_, {}, weights, progress, fill);
  }
  static uint64_t FreeMemory() {
    size_t free = 0, total = 0;
    EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
    return free;
  }

  std::optional<Context> context_;
};

// Matrices of random bytes, each bound somewhere in `weights`. Bytes stand between others that belong to nobody, at odd addresses.
struct RandomWeights {
  explicit RandomWeights(uint64_t seed) : rng(seed) {}
  void Add(Type type, int64_t columns, int64_t rows, int64_t slices) {
    model::Matrix w;
    w.type = type, w.columns = columns, w.rows = rows, w.slices = slices;
    w.row_bytes = *quant::RowBytes(*quant::Find(type), static_cast<uint64_t>(columns));
    const size_t lead = rng() % 7;
    auto& memory = bytes.emplace_back(lead + static_cast<size_t>(w.bytes()) + 5);
    for (size_t i = 0; i < memory.size(); i += 8) {
      const uint64_t random = rng();
      std::memcpy(memory.data() + i, &random, std::min<size_t>(8, memory.size() - i));
    }
    w.data = memory.data() + lead;
    weights.layers.emplace_back().moe.gate = w;
  }
  std::mt19937_64 rng;
  model::Weights weights;
  std::deque<std::vector<std::byte>> bytes;
};

// What the device should have, by the definition of the layout.
std::vector<std::byte> Expected(const model::Matrix& w) {
  const TileLayout* const layout = FindTileLayout(w.type);
  if (layout == nullptr) return {w.data, w.data + w.bytes()};
  std::vector<uint32_t> offsets;
  for (int row = 0; row < kTileRows; ++row)
    for (int at = 0; at < layout->row_bytes; ++at) offsets.push_back(TileOffset(*layout, row, at));
  const uint64_t slice_bytes = DeviceSliceBytes(w);
  const auto column_tiles = static_cast<uint64_t>((w.columns + layout->columns - 1) / layout->columns);
  std::vector<std::byte> out(slice_bytes * static_cast<uint64_t>(w.slices));
  for (int64_t slice = 0; slice < w.slices; ++slice) {
    for (int64_t row = 0; row < w.rows; ++row) {
      const std::byte* const from = w.Row(slice, row);
      for (uint64_t tile = 0; tile < column_tiles; ++tile) {
        std::byte* const to =
            out.data() + static_cast<uint64_t>(slice) * slice_bytes +
            (static_cast<uint64_t>(row / kTileRows) * column_tiles + tile) * layout->bytes();
        const uint64_t string = quant::Find(w.type)->block_bytes * layout->blocks, begin = tile * string;
        const uint32_t* const offset = offsets.data() + row % kTileRows * layout->row_bytes;
        if (layout->recoding != Recoding::kNone) {
          std::vector<uint8_t> made(layout->row_bytes);
          for (uint32_t part = 0; part < kRecoders; ++part)
            Recode(layout->recoding, reinterpret_cast<const uint8_t*>(from + begin), made.data(), part);
          for (size_t at = 0; at < made.size(); ++at) to[offset[at]] = static_cast<std::byte>(made[at]);
          continue;
        }
        const uint64_t count = std::min<uint64_t>(string, w.row_bytes - begin);
        for (uint64_t at = 0; at < count; ++at) to[offset[at]] = from[begin + at];
      }
    }
  }
  return out;
}

std::vector<std::byte> CopyBack(const Matrix& m) {
  std::vector<std::byte> bytes(m.slice_bytes * static_cast<uint64_t>(m.slices));
  EXPECT_EQ(cudaMemcpy(bytes.data(), m.data, bytes.size(), cudaMemcpyDeviceToHost), cudaSuccess);
  return bytes;
}

std::string Describe(const model::Matrix& w) {
  return std::string(quant::Name(w.type)) + " [" + std::to_string(w.slices) + "][" + std::to_string(w.rows) +
         "][" + std::to_string(w.columns) + "]";
}

void ExpectLoaded(const DeviceWeights& loaded, const model::Matrix& w) {
  const Matrix m = loaded.Find(w);
  ASSERT_NE(m.data, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(m.data) % 256, 0u);
  EXPECT_EQ(m.type, w.type);
  EXPECT_EQ(m.columns, w.columns);
  EXPECT_EQ(m.rows, w.rows);
  EXPECT_EQ(m.slices, w.slices);
  EXPECT_EQ(m.slice_bytes, DeviceSliceBytes(w));
  const auto got = CopyBack(m), want = Expected(w);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], want[i]) << "byte " << i;
}

// One block, a tile, a block more, several tiles and a part of one; rows around a tile's 16.
TEST_F(DeviceWeightsTest, EveryTypeAndShapeComesBack) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  RandomWeights model(seed);
  for (const quant::Format& format : quant::Formats()) {
    const TileLayout* const layout = FindTileLayout(format.type);
    if (layout == nullptr && (!format.runnable() || format.block_weights != 1)) continue;
    const auto block = static_cast<int64_t>(format.block_weights);
    const int64_t tile = layout != nullptr ? layout->columns : 64;
    for (const int64_t columns : {block, tile, tile + block, 5 * tile - block}) {
      for (const int64_t rows : {1, 15, 16, 17, 40}) model.Add(format.type, columns, rows, 1);
      for (const int64_t rows : {1, 17}) model.Add(format.type, columns, rows, 3);
    }
  }
  auto loaded = Load(model.weights);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_EQ((*loaded)->bytes(), DeviceWeights::Bytes(model.weights));
  for (const auto& layer : model.weights.layers) {
    SCOPED_TRACE(Describe(layer.moe.gate));
    ExpectLoaded(**loaded, layer.moe.gate);
    if (HasFatalFailure()) return;
  }
}

// Through every buffer more than once; slices whose rows are no whole tiles begin in the middle of one.
TEST_F(DeviceWeightsTest, LargeMatricesGoThroughManyBuffers) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  RandomWeights model(seed);
  model.Add(Type::kQ8_0, 4096 + 32, 1003, 50);
  model.Add(Type::kF32, 4099, 1003, 9);
  model.Add(Type::kQ6_K, 768, 50, 7);
  uint64_t last = 0;
  auto loaded = Load(model.weights, [&](uint64_t done, uint64_t total) {
    EXPECT_GE(done, last);
    EXPECT_LE(done, total);
    last = done;
    return true;
  });
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  uint64_t total = 0;
  for (const auto& layer : model.weights.layers) {
    total += layer.moe.gate.bytes();
    SCOPED_TRACE(Describe(layer.moe.gate));
    ExpectLoaded(**loaded, layer.moe.gate);
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(last, total);
}

TEST_F(DeviceWeightsTest, VectorsAndScalesComeBack) {
  RandomWeights model(1);
  model.Add(Type::kQ8_0, 64, 3, 5);
  const std::vector<float> scales{1, 2, 3, 4, 5}, norm(130, 0.5f), one{7};
  model.weights.layers[0].moe.gate.scales = scales.data();
  model.weights.layers[0].moe.up = model.weights.layers[0].moe.gate;  // the same bytes: loaded once
  model.weights.output_norm = norm;
  model.weights.layers[0].ffn_norm = one;
  auto loaded = Load(model.weights);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  const auto expect = [](const float* device, const std::vector<float>& want) {
    ASSERT_NE(device, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(device) % 256, 0u);
    std::vector<float> got(want.size());
    ASSERT_EQ(cudaMemcpy(got.data(), device, got.size() * sizeof(float), cudaMemcpyDeviceToHost),
              cudaSuccess);
    EXPECT_EQ(got, want);
  };
  expect((*loaded)->Find(model.weights.layers[0].moe.gate).scales, scales);
  expect((*loaded)->Find(model.weights.output_norm), norm);
  expect((*loaded)->Find(model.weights.layers[0].ffn_norm), one);
  EXPECT_EQ((*loaded)->Find(model.weights.layers[0].moe.up).data,
            (*loaded)->Find(model.weights.layers[0].moe.gate).data);
  EXPECT_EQ((*loaded)->bytes(), 43u * 256 + 768 + 256 + 256);
  const std::vector<float> unknown(3);
  EXPECT_EQ((*loaded)->Find(unknown), nullptr);
  EXPECT_EQ((*loaded)->Find(model::Matrix{}).data, nullptr);
}

// The same model twice: made in host memory and streamed, and described and made on the device.
TEST_F(DeviceWeightsTest, SyntheticModelsAreTheSameMadeOnTheDevice) {
  std::vector<std::string> specs{"tiny,recipe=ds4,seed=3", "tiny,hidden=96,dense_ffn=80,recipe=q4_k",
                                 "tiny,vocab=301,mtp=0"};
  for (const quant::Format& format : quant::Formats()) {
    const bool usable = FindTileLayout(format.type) != nullptr || format.block_weights == 1;
    if (usable && format.encode != nullptr) specs.push_back("tiny,recipe=" + std::string(format.name));
  }
  for (const std::string& spec : specs) {
    SCOPED_TRACE(spec);
    const auto here = model::LoadSynthetic(spec);
    ASSERT_TRUE(here.ok()) << here.status().message();
    const auto there = model::LoadSynthetic(spec, {.weights_elsewhere = true});
    ASSERT_TRUE(there.ok()) << there.status().message();
    ASSERT_NE(there->synthetic, nullptr);
    const auto streamed = Load(here->weights);
    ASSERT_TRUE(streamed.ok()) << streamed.status().message();
    const auto made = Load(there->weights, {}, there->synthetic.get());
    ASSERT_TRUE(made.ok()) << made.status().message();
    const auto a = model::ListBound(here->weights), b = model::ListBound(there->weights);
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      SCOPED_TRACE(a[i].Name());
      if (a[i].matrix != nullptr) {
        const Matrix x = (*streamed)->Find(*a[i].matrix), y = (*made)->Find(*b[i].matrix);
        ASSERT_TRUE(x.data != nullptr && y.data != nullptr);
        EXPECT_EQ(x.type, y.type);
        EXPECT_EQ(CopyBack(x), CopyBack(y));
      } else {
        EXPECT_EQ(std::vector<float>(a[i].vector->begin(), a[i].vector->end()),
                  std::vector<float>(b[i].vector->begin(), b[i].vector->end()));
        EXPECT_NE((*made)->Find(*b[i].vector), nullptr);
      }
    }
  }
}

TEST_F(DeviceWeightsTest, WhatCanNotFitIsRefusedBeforeAnythingIsTaken) {
  RandomWeights model(1);
  model.Add(Type::kQ8_0, 64, 3, 5);
  // Never read: it would not even be there.
  model.weights.embedding = model.weights.layers[0].moe.gate;
  model.weights.embedding.data = reinterpret_cast<const std::byte*>(uintptr_t{0x1000});
  model.weights.embedding.slices = static_cast<int64_t>(context_->device().memory_bytes / 2176 + 1);
  const uint64_t before = FreeMemory();
  const auto loaded = Load(model.weights);
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.status().code(), Code::kNoRoom);
  const std::string& message = loaded.status().message();
  EXPECT_NE(message.find(FormatBytes(DeviceWeights::Bytes(model.weights))), std::string::npos) << message;
  EXPECT_NE(message.find(context_->device().name), std::string::npos) << message;
  EXPECT_NE(message.find(" free of "), std::string::npos) << message;
  EXPECT_NE(message.find("glint quantize"), std::string::npos) << message;
  EXPECT_EQ(FreeMemory(), before);
}

TEST_F(DeviceWeightsTest, ATypeWithoutKernelsIsNamed) {
  RandomWeights model(1);
  model.Add(Type::kQ8_0, 64, 3, 5);
  model.Add(Type::kTQ1_0, 256, 3, 5);
  const auto loaded = Load(model.weights);
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.status().code(), Code::kUnsupported);
  for (const char* part : {"blk.1.ffn_gate_exps.weight", "tq1_0", "q8_0, "})
    EXPECT_NE(loaded.status().message().find(part), std::string::npos) << loaded.status().message();
}

// Stopped before it begins, in the middle of a matrix, between two and at the end: all memory is free again.
TEST_F(DeviceWeightsTest, AnInterruptedLoadFreesItsMemory) {
  RandomWeights model(1);
  model.Add(Type::kF32, 4096, 4096, 3);
  model.Add(Type::kQ8_0, 4096, 4096, 6);
  ASSERT_TRUE(Load(model.weights).ok());  // what the runtime takes once for itself
  const uint64_t before = FreeMemory();
  int calls = 0;
  ASSERT_TRUE(Load(model.weights, [&](uint64_t, uint64_t) { return ++calls > 0; }).ok());
  EXPECT_GE(calls, 6);
  for (int stop = 1; stop <= calls; ++stop) {
    SCOPED_TRACE(stop);
    int call = 0;
    const auto loaded = Load(model.weights, [&](uint64_t, uint64_t) { return ++call < stop; });
    ASSERT_FALSE(loaded.ok());
    EXPECT_EQ(loaded.status().code(), Code::kBadInput);
    EXPECT_EQ(call, stop);
    EXPECT_GE(FreeMemory() + (uint64_t{64} << 20), before);  // other programs may take a little
  }
}

}  // namespace
}  // namespace glint::cuda
