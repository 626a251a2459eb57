// Two files made here, tensor by tensor: what CompareFiles says of them, against sums taken in this file.
#include "model/compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <span>

#include "gguf/writer.h"
#include "quant/format.h"
#include "tests/base/temp_dir.h"

namespace glint::model {
namespace {

using quant::Type;
using test::TempDir;

struct Part {
  std::string name;
  Type type = Type::kF32;
  std::vector<uint64_t> ne;
  std::vector<float> weights;
};

using Keys = std::vector<std::pair<std::string, uint32_t>>;

std::string Write(const TempDir& folder, const std::string& name, const std::vector<Part>& parts,
                  const Keys& keys = {}, uint64_t shard_tensors = 0) {
  gguf::Writer writer;
  for (const auto& [key, value] : keys) writer.SetU32(key, value);
  for (const Part& part : parts) {
    const quant::Format& format = *quant::Find(part.type);
    const size_t columns = part.ne[0];
    const size_t row_bytes = columns / format.block_weights * format.block_bytes;
    std::vector<std::byte> bytes(part.weights.size() / columns * row_bytes);
    for (size_t r = 0; r < part.weights.size() / columns; ++r)
      format.encode(part.weights.data() + r * columns, nullptr, bytes.data() + r * row_bytes, columns);
    const size_t size = bytes.size();
    writer.AddTensor(part.name, static_cast<uint32_t>(part.type), part.ne, size,
                     [bytes = std::move(bytes)](const gguf::Writer::Sink& sink) { return sink(bytes); });
  }
  gguf::Writer::SetOptions options;
  options.shard_tensors = shard_tensors;
  const auto made = writer.WriteSet(folder.Path(name), options);
  EXPECT_TRUE(made.ok()) << made.status().message();
  return made.ok() ? made->paths.front() : "";
}

std::vector<float> Random(std::mt19937_64& rng, size_t n) {
  std::normal_distribution<float> normal;
  std::vector<float> out(n);
  for (float& x : out) x = normal(rng);
  return out;
}

FileComparison Compared(const std::string& a, const std::string& b, int threads = 1) {
  auto out = CompareFiles(a, b, threads, {});
  EXPECT_TRUE(out.ok()) << out.status().message();
  return out.ok() ? std::move(*out) : FileComparison{};
}

const TensorDifference& Of(const FileComparison& files, const std::string& name) {
  static const TensorDifference none;
  for (const TensorDifference& t : files.tensors)
    if (t.name == name) return t;
  ADD_FAILURE() << name << " is not there";
  return none;
}

TEST(CompareFiles, NothingDiffersFromItselfOrASetOfIt) {
  const TempDir folder;
  std::mt19937_64 rng(1);
  const std::vector<Part> parts{{"a.weight", Type::kF32, {96, 3}, Random(rng, 288)},
                                {"b.weight", Type::kQ8_0, {64, 2, 2}, Random(rng, 256)},
                                {"c", Type::kF32, {5}, {1, -2, NAN, INFINITY, 0}}};
  const std::string one = Write(folder, "one.gguf", parts, {{"k", 1}});
  const std::string set = Write(folder, "set.gguf", parts, {{"k", 1}}, 1);
  for (const std::string& other : {one, set}) {
    const auto files = Compared(one, other);
    ASSERT_EQ(files.tensors.size(), 3u);
    for (const TensorDifference& t : files.tensors) {
      EXPECT_TRUE(t.same) << t.name;
      EXPECT_EQ(t.relative_rms, 0) << t.name;
      EXPECT_EQ(t.worst_block, 0) << t.name;
    }
    EXPECT_EQ(Of(files, "c").not_numbers, 2u);
    EXPECT_TRUE(files.keys.empty() && files.only_a.empty() && files.only_b.empty());
  }
}

// Errors put at known places: the sums, and where the worst block is, whatever the threads.
TEST(CompareFiles, FindsTheWorstBlock) {
  const TempDir folder;
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  constexpr size_t kColumns = 80, kRows = 7, kSlices = 3, kBlock = 32;
  const auto truth = Random(rng, kColumns * kRows * kSlices);
  auto other = truth;
  for (float& x : other) x += 0.001f * static_cast<float>(rng() % 16);
  // The last block of a row is short, 16 weights: a mean counts, not a sum.
  const size_t row = rng() % (kRows * kSlices);
  for (size_t c = 64; c < kColumns; ++c) other[row * kColumns + c] += 0.5f;
  const std::string a = Write(folder, "a.gguf", {{"t", Type::kF32, {kColumns, kRows, kSlices}, truth}});
  const std::string b = Write(folder, "b.gguf", {{"t", Type::kF32, {kColumns, kRows, kSlices}, other}});
  double error = 0, square = 0, worst = 0;
  for (size_t r = 0; r < kRows * kSlices; ++r) {
    for (size_t begin = 0; begin < kColumns; begin += kBlock) {
      double sum = 0;
      const size_t end = std::min(begin + kBlock, kColumns);
      for (size_t i = r * kColumns + begin; i < r * kColumns + end; ++i) {
        sum += std::pow(static_cast<double>(other[i]) - truth[i], 2);
        square += std::pow(static_cast<double>(truth[i]), 2);
      }
      error += sum;
      worst = std::max(worst, sum / static_cast<double>(end - begin));
    }
  }
  const auto wanted_worst = std::sqrt(worst / (square / static_cast<double>(truth.size())));
  for (const int threads : {1, 3}) {
    const auto files = Compared(a, b, threads);
    const TensorDifference& t = Of(files, "t");
    EXPECT_FALSE(t.same);
    EXPECT_NEAR(t.relative_rms, std::sqrt(error / square), 1e-12);
    EXPECT_NEAR(t.worst_block, wanted_worst, 1e-12);
    EXPECT_EQ(t.worst_row, row);
    EXPECT_EQ(t.worst_column, 64u);
  }
}

TEST(CompareFiles, TypesShapesKeysAndMissingTensors) {
  const TempDir folder;
  std::mt19937_64 rng(3);
  const auto w = Random(rng, 512);
  const std::string a = Write(folder, "a.gguf",
                              {{"both.weight", Type::kF32, {256, 2}, w},
                               {"shape.weight", Type::kF32, {256, 2}, w},
                               {"dims.weight", Type::kF32, {256, 2}, w},
                               {"old.weight", Type::kF32, {256, 2}, w},
                               {"zero.weight", Type::kF32, {256}, std::vector<float>(256)}},
                              {{"same", 1}, {"other", 2}, {"gone", 3}});
  const std::string b = Write(folder, "b.gguf",
                              {{"new.weight", Type::kF32, {256, 2}, w},
                               {"zero.weight", Type::kF32, {256}, std::vector<float>(256, 1)},
                               {"both.weight", Type::kQ4_K, {256, 2}, w},
                               {"dims.weight", Type::kF32, {256, 2, 1}, w},
                               {"shape.weight", Type::kF32, {128, 4}, w}},
                              {{"same", 1}, {"other", 4}, {"added", 5}});
  const auto files = Compared(a, b);
  EXPECT_EQ(files.only_a, std::vector<std::string>{"old.weight"});
  EXPECT_EQ(files.only_b, std::vector<std::string>{"new.weight"});
  const TensorDifference& both = Of(files, "both.weight");
  EXPECT_EQ(both.type_a, "f32");
  EXPECT_EQ(both.type_b, "q4_k");
  EXPECT_EQ(both.bytes_a, 2048u);
  EXPECT_EQ(both.bytes_b, 288u);
  EXPECT_FALSE(both.same);
  EXPECT_GT(both.relative_rms, 0.02);
  EXPECT_LT(both.relative_rms, 0.2);
  EXPECT_EQ(Of(files, "shape.weight").incomparable, "shapes 256x2 and 128x4");
  EXPECT_FALSE(Of(files, "shape.weight").same);
  EXPECT_TRUE(Of(files, "dims.weight").same) << "a dimension of one more";
  EXPECT_EQ(Of(files, "zero.weight").relative_rms, std::numeric_limits<double>::infinity());
  ASSERT_EQ(files.keys.size(), 3u);
  EXPECT_EQ(files.keys[0].key + files.keys[0].a + files.keys[0].b, "other24");
  EXPECT_EQ(files.keys[1].key + files.keys[1].a + files.keys[1].b, "gone3");
  EXPECT_EQ(files.keys[2].key + files.keys[2].a + files.keys[2].b, "added5");
}

// A factor beside a matrix belongs to its weights, one or one a slice; and NaN never hides in a sum.
TEST(CompareFiles, FactorsAndNotNumbers) {
  const TempDir folder;
  std::mt19937_64 rng(4);
  const auto w = Random(rng, 64 * 2 * 2);
  auto doubled = w;
  for (size_t i = 0; i < doubled.size(); ++i) doubled[i] *= i < 128 ? 2.0f : 4.0f;
  const Part scales{"m.scale", Type::kF32, {2}, {2, 4}};
  const std::string a = Write(folder, "a.gguf", {{"m.weight", Type::kF32, {64, 2, 2}, w}, scales});
  const std::string b = Write(folder, "b.gguf", {{"m.weight", Type::kF32, {64, 2, 2}, doubled}});
  const auto equal = Compared(a, b);
  EXPECT_FALSE(Of(equal, "m.weight").same);
  EXPECT_EQ(Of(equal, "m.weight").relative_rms, 0);
  EXPECT_EQ(equal.only_a, std::vector<std::string>{"m.scale"});
  doubled[200] = NAN;
  doubled[201] = INFINITY;
  const auto bad = Compared(a, Write(folder, "nan.gguf", {{"m.weight", Type::kF32, {64, 2, 2}, doubled}}));
  EXPECT_EQ(Of(bad, "m.weight").not_numbers, 2u);
  EXPECT_EQ(Of(bad, "m.weight").relative_rms, 0);
}

// Weights that glint can not decode: equal bytes are the same all the same.
TEST(CompareFiles, TypesThatCanNotBeDecoded) {
  const TempDir folder;
  const quant::Format& format = *quant::Find(Type::kQ8_K);
  ASSERT_FALSE(format.runnable());
  const auto write = [&](const std::string& name, char last) {
    gguf::Writer writer;
    std::string bytes(format.block_bytes, 'x');
    bytes.back() = last;
    writer.AddTensor("t", static_cast<uint32_t>(Type::kQ8_K), {format.block_weights}, bytes.size(),
                     [bytes](const gguf::Writer::Sink& sink) {
                       return sink(std::as_bytes(std::span(bytes.data(), bytes.size())));
                     });
    EXPECT_TRUE(writer.Write(folder.Path(name), {}).ok());
    return folder.Path(name);
  };
  const std::string a = write("a.gguf", 'x');
  EXPECT_TRUE(Of(Compared(a, write("b.gguf", 'x')), "t").same);
  const auto files = Compared(a, write("c.gguf", 'y'));
  EXPECT_FALSE(Of(files, "t").same);
  EXPECT_EQ(Of(files, "t").incomparable, "weights of q8_k can not be decoded");
}

TEST(CompareFiles, StopsWhenAsked) {
  const TempDir folder;
  const std::string a = Write(folder, "a.gguf", {{"t", Type::kF32, {4}, {1, 2, 3, 4}}});
  const auto out = CompareFiles(a, a, 1, [](uint64_t, uint64_t) { return false; });
  EXPECT_EQ(out.status().message(), "interrupted");
}

}  // namespace
}  // namespace glint::model
