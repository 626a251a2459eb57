// Importance files: written, read back, and refused when damaged.
#include "model/imatrix.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "gguf/writer.h"
#include "quant/format.h"
#include "tests/base/temp_dir.h"

namespace glint::model {
namespace {

using test::TempDir;

ImportanceMatrix Sample() {
  ImportanceMatrix matrix;
  matrix.datasets = {"a.txt", "b.txt"};
  matrix.chunks = 3;
  matrix.chunk_tokens = 256;
  std::mt19937 random(7);
  const auto importance = [&](uint64_t columns, uint64_t matrices) {
    Importance out{.columns = columns, .matrices = matrices, .mean = {}, .counts = {}};
    for (uint64_t m = 0; m < matrices; ++m) {
      out.counts.push_back(m == 1 ? 0.0f : static_cast<float>(random() % 1000 + 1));
      for (uint64_t c = 0; c < columns; ++c)
        out.mean.push_back(m == 1 ? 0.0f : static_cast<float>(random() % 10000) / 100);
    }
    return out;
  };
  matrix.Add("blk.0.attn_q.weight", importance(32, 1));
  matrix.Add("blk.3.ffn_up_exps.weight", importance(8, 5));
  return matrix;
}

TEST(ImportanceFile, ComesBackAsItWas) {
  const TempDir folder;
  const auto matrix = Sample();
  ASSERT_TRUE(matrix.Write(folder.Path("x.gguf"), {}).ok());
  const auto back = ImportanceMatrix::Read(folder.Path("x.gguf"));
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(back->datasets, matrix.datasets);
  EXPECT_EQ(back->chunks, 3u);
  EXPECT_EQ(back->chunk_tokens, 256u);
  ASSERT_EQ(back->tensors().size(), 2u);
  for (const auto& [name, want] : matrix.tensors()) {
    const Importance* got = back->Find(name);
    ASSERT_NE(got, nullptr) << name;
    EXPECT_EQ(got->columns, want.columns);
    EXPECT_EQ(got->matrices, want.matrices);
    EXPECT_EQ(got->counts, want.counts);
    for (size_t i = 0; i < want.mean.size(); ++i)
      EXPECT_NEAR(got->mean[i], want.mean[i], want.mean[i] * 1e-6) << i;
  }
  EXPECT_EQ(back->Find("blk.0.attn_k.weight"), nullptr);
}

struct Tensor {
  std::string name;
  std::vector<uint64_t> ne;
  std::vector<float> values;
  quant::Type type = quant::Type::kF32;
};

TEST(ImportanceFile, SaysWhatIsWrong) {
  const TempDir folder;
  const auto read = [&](const char* type, const std::vector<Tensor>& tensors) {
    gguf::Writer writer;
    if (type != nullptr) writer.SetString("general.type", type);
    for (const Tensor& t : tensors)
      writer.AddTensor(
          t.name, static_cast<uint32_t>(t.type), t.ne, t.values.size() * sizeof(float),
          [&](const gguf::Writer::Sink& sink) { return sink(std::as_bytes(std::span(t.values))); });
    EXPECT_TRUE(writer.Write(folder.Path("x.gguf"), {}).ok());
    return ImportanceMatrix::Read(folder.Path("x.gguf")).status();
  };
  const Tensor sums{"a.in_sum2", {2, 1}, {1, 2}}, counts{"a.counts", {1, 1}, {4}};
  ASSERT_TRUE(read("imatrix", {sums, counts}).ok());
  const std::vector<std::pair<std::string, Status>> cases{
      {"general.type is missing", read(nullptr, {sums, counts})},
      {"'model', wanted 'imatrix'", read("model", {sums, counts})},
      {"no tensor's importance", read("imatrix", {})},
      {"no .counts beside it", read("imatrix", {sums})},
      {"belongs to no tensor", read("imatrix", {counts})},
      {"belongs to no tensor", read("imatrix", {sums, counts, {"b", {1}, {1}}})},
      {"has 2 entries, wanted 1", read("imatrix", {sums, {"a.counts", {1, 2}, {4, 4}}})},
      {"entry 1 is -2", read("imatrix", {{"a.in_sum2", {2, 1}, {1, -2}}, counts})},
      {"entry 0 is nan", read("imatrix", {{"a.in_sum2", {2, 1}, {NAN, 2}}, counts})},
      {"entry 0 is inf", read("imatrix", {sums, {"a.counts", {1, 1}, {INFINITY}}})},
      {"more than two dimensions", read("imatrix", {{"a.in_sum2", {1, 1, 2}, {1, 2}}, counts})},
      {"is no number", read("imatrix", {{"a.in_sum2", {2, 1}, {3e38f, 2}}, {"a.counts", {1, 1}, {1e-3f}}})},
      {"of type i32", read("imatrix", {{"a.in_sum2", {2, 1}, {1, 2}, quant::Type::kI32}, counts})},
  };
  for (const auto& [want, status] : cases) {
    EXPECT_FALSE(status.ok()) << want;
    EXPECT_NE(status.message().find(want), std::string::npos) << status.message() << "\nwanted: " << want;
  }
}

TEST(ImportanceFile, SurvivesAnyDamage) {
  const TempDir folder;
  ASSERT_TRUE(Sample().Write(folder.Path("x.gguf"), {}).ok());
  const std::string good = folder.Read("x.gguf");
  std::mt19937 random(8);
  SCOPED_TRACE("seed 8");
  for (int i = 0; i < 300; ++i) {
    std::string bad = good;
    if (i % 3 == 0)
      bad.resize(random() % bad.size());
    else
      bad[random() % bad.size()] = static_cast<char>(random());
    folder.Write("bad.gguf", bad);
    const auto read = ImportanceMatrix::Read(folder.Path("bad.gguf"));
    if (!read.ok()) {
      EXPECT_NE(read.status().message().find("bad.gguf"), std::string::npos);
    }
    if (bad.size() < good.size()) {
      EXPECT_FALSE(read.ok()) << bad.size();
    }
  }
}

// Other tools keep these numbers in 32 bits: none is cut to fit.
TEST(ImportanceFile, CountsOfChunksAreNeverCut) {
  const TempDir folder;
  for (uint64_t ImportanceMatrix::*number : {&ImportanceMatrix::chunks, &ImportanceMatrix::chunk_tokens}) {
    auto matrix = Sample();
    matrix.*number = kMostChunks;
    ASSERT_TRUE(matrix.Write(folder.Path("most.gguf"), {}).ok());
    const auto back = ImportanceMatrix::Read(folder.Path("most.gguf"));
    ASSERT_TRUE(back.ok()) << back.status().message();
    EXPECT_EQ((*back).*number, kMostChunks);
    for (const uint64_t more : {kMostChunks + 1, uint64_t{1} << 32, (uint64_t{1} << 32) + 7}) {
      matrix.*number = more;
      const Status refused = matrix.Write(folder.Path("more.gguf"), {});
      EXPECT_EQ(refused.code(), Code::kBadInput) << more;
      EXPECT_NE(refused.message().find(std::to_string(more)), std::string::npos) << refused.message();
      EXPECT_FALSE(std::filesystem::exists(folder.Path("more.gguf")));
    }
  }
  // A file that says more, or something else than a number.
  for (const bool text : {false, true}) {
    gguf::Writer writer;
    writer.SetString("general.type", "imatrix");
    if (text)
      writer.SetString("imatrix.chunk_count", "many");
    else
      writer.SetU32("imatrix.chunk_count", 0x80000000u);
    ASSERT_TRUE(writer.Write(folder.Path("bad.gguf"), {}).ok());
    const auto read = ImportanceMatrix::Read(folder.Path("bad.gguf"));
    EXPECT_EQ(read.status().code(), Code::kBadFile);
    EXPECT_NE(read.status().message().find("imatrix.chunk_count"), std::string::npos)
        << read.status().message();
  }
}

}  // namespace
}  // namespace glint::model
