// What quantising does to a file's tensors: which change, by which importance, and that nothing else decides a bit.
#include "model/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "gguf/gguf.h"
#include "gguf/writer.h"
#include "model/glm_flash/gguf_source.h"
#include "tests/model/dialects.h"
#include "tests/model/scratch.h"

namespace glint::model {
namespace {

using quant::Type;

class Quantizing : public testing::Test {
 protected:
  void SetUp() override {
    auto data = LoadSynthetic("tiny,recipe=f32,layers=4,experts=3,vocab=300,dense_ffn=256");
    ASSERT_TRUE(data.ok()) << data.status().message();
    const auto paths = WriteDialect(*data, scratch_ / "in");
    ASSERT_TRUE(paths.ok()) << paths.status().message();
    in_ = paths->front();
  }
  QuantizeReport Must(const std::string& in, const std::string& out, const std::string& text,
                      const QuantizeOptions& options = {}) {
    const auto recipe = Recipe::Read(text, "test");
    EXPECT_TRUE(recipe.ok()) << recipe.status().message();
    auto report = Quantize(in, scratch_ / out, *recipe, options);
    EXPECT_TRUE(report.ok()) << report.status().message();
    return report.ok() ? std::move(*report) : QuantizeReport();
  }
  gguf::File Open(const std::string& name) {
    auto file = gguf::File::Open(scratch_ / name, BlockSizeOf);
    EXPECT_TRUE(file.ok()) << file.status().message();
    return std::move(*file);
  }
  static std::vector<float> Decoded(const gguf::TensorInfo& info) {
    std::vector<float> out(info.elements());
    quant::Find(static_cast<Type>(info.type))->decode(info.data, out.data(), out.size());
    return out;
  }
  static bool SameBytes(const gguf::TensorInfo& a, const gguf::TensorInfo& b) {
    return a.type == b.type && a.ne == b.ne && a.bytes == b.bytes &&
           std::memcmp(a.data, b.data, a.bytes) == 0;
  }

  Scratch scratch_;
  std::string in_;
};

TEST_F(Quantizing, ChangesWhatTheRecipeNamesAndNothingElse) {
  const QuantizeReport report = Must(in_, "out.gguf", "role:kda = q8_0\n");
  const auto before = Open("in.gguf"), after = Open("out.gguf");
  ASSERT_EQ(before.tensors().size(), after.tensors().size());
  size_t changed = 0;
  for (size_t i = 0; i < before.tensors().size(); ++i) {
    const gguf::TensorInfo &a = before.tensors()[i], &b = after.tensors()[i];
    ASSERT_EQ(a.name, b.name);
    EXPECT_EQ(report.tensors[i].kept, SameBytes(a, b)) << a.name;
    changed += !report.tensors[i].kept;
    if (report.tensors[i].kept) continue;
    // Every row is what the format's own encoder makes of it.
    const quant::Format& format = *quant::Find(Type::kQ8_0);
    std::vector<std::byte> want(b.bytes);
    format.encode(Decoded(a).data(), nullptr, want.data(), a.elements());
    EXPECT_EQ(0, std::memcmp(want.data(), b.data, b.bytes)) << a.name;
  }
  EXPECT_EQ(changed, 3u * 9);  // q, k, v, out, f, g, beta of three layers; convolutions, A and dt are vectors
  // Everything has its type now: the same recipe again changes no byte.
  Must(scratch_ / "out.gguf", "again.gguf", "role:kda = q8_0\n");
  EXPECT_EQ(ReadText(scratch_ / "out.gguf"), ReadText(scratch_ / "again.gguf"));
}

TEST_F(Quantizing, ThreadsAndPartsDecideNothing) {
  QuantizeOptions one, three;
  one.threads = 1, three.threads = 3;
  const auto a = Must(in_, "one.gguf", "* = q4_k\n", one), b = Must(in_, "three.gguf", "* = q4_k\n", three);
  EXPECT_EQ(ReadText(scratch_ / "one.gguf"), ReadText(scratch_ / "three.gguf"));
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    EXPECT_EQ(a.tensors[i].relative_rms, b.tensors[i].relative_rms) << a.tensors[i].name;
    EXPECT_EQ(a.tensors[i].largest_block, b.tensors[i].largest_block) << a.tensors[i].name;
  }
  three.shard_bytes = 500000;
  const auto set = Must(in_, "set.gguf", "* = q4_k\n", three);
  ASSERT_GT(set.paths.size(), 1u);
  auto file = gguf::File::Open(set.paths.back(), BlockSizeOf);
  ASSERT_TRUE(file.ok()) << file.status().message();
  const auto whole = Open("one.gguf");
  for (const gguf::TensorInfo& t : whole.tensors())
    EXPECT_TRUE(SameBytes(t, *file->FindTensor(t.name))) << t.name;
}

// Experts have importance each; one that was never hit is rounded as if there were none, and counted.
TEST_F(Quantizing, ImportanceGoesByExpert) {
  constexpr const char* kName = "blk.2.ffn_up_exps.weight";
  constexpr uint64_t kColumns = 256, kExperts = 3;
  ImportanceMatrix matrix;
  Importance importance{kColumns, kExperts, std::vector<float>(kColumns * kExperts, 1e-3f), {10, 0, 10}};
  for (size_t c = 0; c < 16; ++c) importance.mean[c] = 100;                 // expert 0
  for (size_t c = 0; c < kColumns; ++c) importance.mean[kColumns + c] = 0;  // expert 1
  matrix.Add(kName, importance);
  QuantizeOptions options;
  options.importance = &matrix;
  const std::string text = "blk.2.ffn_up_exps = q4_k\n";
  const auto weighed = Must(in_, "weighed.gguf", text, options), plain = Must(in_, "plain.gguf", text);
  const auto x = Open("in.gguf"), w = Open("weighed.gguf"), p = Open("plain.gguf");
  const auto want = Decoded(*x.FindTensor(kName)), a = Decoded(*w.FindTensor(kName)),
             b = Decoded(*p.FindTensor(kName));
  const size_t slice = want.size() / kExperts;
  // The columns that cost most are rounded better in expert 0; the others are as without importance.
  double with = 0, without = 0;
  for (size_t i = 0; i < slice; ++i) {
    if (i % kColumns >= 16) continue;
    with += std::pow(want[i] - a[i], 2), without += std::pow(want[i] - b[i], 2);
  }
  EXPECT_LT(with, 0.8 * without);
  EXPECT_TRUE(std::equal(a.begin() + static_cast<std::ptrdiff_t>(slice),
                         a.begin() + static_cast<std::ptrdiff_t>(2 * slice),
                         b.begin() + static_cast<std::ptrdiff_t>(slice)));
  for (const QuantizedTensor& t : weighed.tensors) {
    EXPECT_EQ(t.weighed, t.name == kName) << t.name;
    EXPECT_EQ(t.unhit, t.name == kName ? 1u : 0u) << t.name;
  }
  EXPECT_TRUE(w.GetUint("quantize.imatrix.entries_count").ok());

  ImportanceMatrix foreign;
  foreign.Add(kName,
              Importance{kColumns / 2, kExperts, std::vector<float>(kColumns / 2 * kExperts, 1), {1, 1, 1}});
  options.importance = &foreign;
  const auto refused = Quantize(in_, scratch_ / "x.gguf", *Recipe::Read(text, "test"), options);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find(kName), std::string::npos) << refused.status().message();
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "x.gguf"));
}

// Weights of ordinary size are far below what NVFP4's own scales are made for: without the second one they would be lost.
TEST_F(Quantizing, SecondScalesComeAndGo) {
  const std::string name = "blk.2.ffn_up_exps.weight";
  Must(in_, "fp4.gguf", "blk.2.ffn_up_exps = nvfp4\n");
  const auto fp4 = Open("fp4.gguf");
  ASSERT_NE(fp4.FindTensor("blk.2.ffn_up_exps.scale"), nullptr);
  auto model = Load(scratch_ / "fp4.gguf");
  ASSERT_TRUE(model.ok()) << model.status().message();
  const Matrix& m = model->weights.layers[2].moe.up;
  ASSERT_NE(m.scales, nullptr);
  Must(scratch_ / "fp4.gguf", "back.gguf", "blk.2.ffn_up_exps = f32\n");
  const auto back = Open("back.gguf"), first = Open("in.gguf");
  EXPECT_EQ(back.FindTensor("blk.2.ffn_up_exps.scale"), nullptr);
  const auto got = Decoded(*back.FindTensor(name)), want = Decoded(*first.FindTensor(name));
  double error = 0, square = 0;
  for (size_t i = 0; i < want.size(); ++i)
    error += std::pow(got[i] - want[i], 2), square += std::pow(want[i], 2);
  EXPECT_LT(std::sqrt(error / square), 0.12);
}

// Second scales are looked for beside NAME.weight alone. A matrix of another name (glint knows none) has its weights in its blocks as
// they are, and what those can't hold is refused.
TEST_F(Quantizing, NoSecondScaleWithoutAPlaceForIt) {
  std::vector<float> weights(2 * 64);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = 100 * std::sin(static_cast<float>(i));
  const auto recipe = Recipe::Read("more* = nvfp4\n", "test");
  ASSERT_TRUE(recipe.ok());
  const auto made = [&] {
    const auto in = Open("in.gguf");
    gguf::Writer writer;
    for (const auto& [key, value] : in.metadata()) writer.Set(key, value);
    for (const gguf::TensorInfo& t : in.tensors())
      writer.AddTensor(t.name, t.type, {t.ne.begin(), t.ne.begin() + t.dims}, t.bytes,
                       [&t](const gguf::Writer::Sink& sink) {
                         return sink({t.data, t.bytes});
                       });
    for (const char* name : {"more", "more.weight"})
      writer.AddTensor(name, 0, {64, 2}, weights.size() * sizeof(float), [&](const gguf::Writer::Sink& sink) {
        return sink(std::as_bytes(std::span(weights)));
      });
    const Status written = writer.Write(scratch_ / "more.gguf", {});
    EXPECT_TRUE(written.ok()) << written.message();
    QuantizeOptions options;
    options.replace = true;
    return Quantize(scratch_ / "more.gguf", scratch_ / "out.gguf", *recipe, options);
  };
  const auto report = made();
  ASSERT_TRUE(report.ok()) << report.status().message();
  const auto out = Open("out.gguf");
  ASSERT_NE(out.FindTensor("more.scale"), nullptr);  // of more.weight
  const auto got = Decoded(*out.FindTensor("more"));
  double error = 0, square = 0;
  for (size_t i = 0; i < got.size(); ++i)
    error += std::pow(got[i] - weights[i], 2), square += std::pow(weights[i], 2);
  EXPECT_LT(std::sqrt(error / square), 0.12);
  weights[70] = 5000;
  const auto refused = made();
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("more: slice 0, row 1, column 6 is 5000"), std::string::npos)
      << refused.status().message();
}

// Both spellings of a matrix's second scale in one file: which of them holds can't be known, so nothing is made.
TEST_F(Quantizing, TwoScalesOfOneMatrixAreRefused) {
  const std::string stem = "blk.2.ffn_up_exps", first = stem + ".scale", second = stem + ".weight.scale";
  const auto recipe = Recipe::Read("blk.2.ffn_up_exps = q8_0\n", "test");
  ASSERT_TRUE(recipe.ok());
  const auto made = [&](const std::vector<std::string>& scales) {
    const auto in = Open("in.gguf");
    gguf::Writer writer;
    for (const auto& [key, value] : in.metadata()) writer.Set(key, value);
    for (const gguf::TensorInfo& t : in.tensors())
      writer.AddTensor(t.name, t.type, {t.ne.begin(), t.ne.begin() + t.dims}, t.bytes,
                       [&t](const gguf::Writer::Sink& sink) {
                         return sink({t.data, t.bytes});
                       });
    for (const std::string& name : scales)
      writer.AddTensor(name, 0, {1}, 4, [](const gguf::Writer::Sink& sink) {
        const float two = 2;
        return sink(std::as_bytes(std::span(&two, 1)));
      });
    const Status written = writer.Write(scratch_ / "scales.gguf", {});
    EXPECT_TRUE(written.ok()) << written.message();
    QuantizeOptions options;
    options.replace = true;
    return Quantize(scratch_ / "scales.gguf", scratch_ / "out.gguf", *recipe, options);
  };
  for (const std::string& one : {first, second}) {
    const auto report = made({one});
    ASSERT_TRUE(report.ok()) << report.status().message();
    const auto got = Decoded(*Open("out.gguf").FindTensor(stem + ".weight"));
    const auto want = Decoded(*Open("in.gguf").FindTensor(stem + ".weight"));
    double error = 0, square = 0;
    for (size_t i = 0; i < want.size(); ++i)
      error += std::pow(got[i] - 2 * want[i], 2), square += std::pow(2 * want[i], 2);
    EXPECT_LT(std::sqrt(error / square), 0.01) << one;
  }
  std::filesystem::remove(scratch_ / "out.gguf");
  for (const auto& both : {std::vector{first, second}, std::vector{second, first}}) {
    const auto refused = made(both);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.status().code(), Code::kBadFile);
    for (const std::string& name : {first, second, stem + ".weight"})
      EXPECT_NE(refused.status().message().find(name), std::string::npos) << refused.status().message();
    EXPECT_FALSE(std::filesystem::exists(scratch_ / "out.gguf"));
  }
}

// Stopped within tensors again and again: file and report are those of one run, to the last bit of the errors.
TEST_F(Quantizing, GoesOnWithinATensor) {
  // An embedding of three batches of rows, and experts of a batch each.
  const auto data = LoadSynthetic("tiny,recipe=f32,layers=4,experts=3,vocab=9000,dense_ffn=256");
  ASSERT_TRUE(data.ok()) << data.status().message();
  const auto paths = WriteDialect(*data, scratch_ / "large");
  ASSERT_TRUE(paths.ok()) << paths.status().message();
  in_ = paths->front();
  QuantizeOptions options;
  options.piece_bytes = 1;  // every batch of rows
  options.threads = 2;
  const QuantizeReport whole = Must(in_, "whole.gguf", "* = q4_k\n", options);
  const auto recipe = Recipe::Read("* = q4_k\n", "test");
  ASSERT_TRUE(recipe.ok());
  uint64_t last = 0, stops = 0;
  Result<QuantizeReport> report = Status(Code::kInternal, "never run");
  for (; stops < 10000; ++stops) {
    // The first progress that is further than the last run came stops this one.
    options.progress = [&](uint64_t done, uint64_t total) {
      if (done <= last || done == total) return true;
      last = done;
      return false;
    };
    report = Quantize(in_, scratch_ / "pieces.gguf", *recipe, options);
    if (report.ok()) break;
    ASSERT_NE(report.status().message().find("interrupted"), std::string::npos) << report.status().message();
  }
  ASSERT_TRUE(report.ok());
  EXPECT_GT(stops, whole.tensors.size());
  ASSERT_EQ(report->tensors.size(), whole.tensors.size());
  for (size_t i = 0; i < whole.tensors.size(); ++i) {
    EXPECT_EQ(report->tensors[i].relative_rms, whole.tensors[i].relative_rms) << whole.tensors[i].name;
    EXPECT_EQ(report->tensors[i].largest_block, whole.tensors[i].largest_block) << whole.tensors[i].name;
  }
  EXPECT_GT(report->taken_over_bytes, 0u);
  const auto a = Open("whole.gguf"), b = Open("pieces.gguf");
  ASSERT_EQ(a.tensors().size(), b.tensors().size());
  for (size_t i = 0; i < a.tensors().size(); ++i)
    EXPECT_TRUE(SameBytes(a.tensors()[i], b.tensors()[i])) << a.tensors()[i].name;
}

}  // namespace
}  // namespace glint::model
