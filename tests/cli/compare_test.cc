// glint compare as a program: what it says in words and in JSON, and what it refuses.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <span>

#include "base/json.h"
#include "base/printable.h"
#include "gguf/writer.h"
#include "tests/cli/program.h"

namespace glint::cli {
namespace {

using test::TempDir;
using testing::RunGlint;

bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

class Compare : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(RunGlint({"convert", testing::MicroModel(), Path("a.gguf"), "--type", "f32"}).code, 0);
    std::string ids;
    for (int i = 0; i < 40; ++i) ids += (i == 0 ? "" : ",") + std::to_string(i * 37 % 250);
    text_ = {"--ids", ids, "--ctx", "16", "--bins", "0,4,8,100", "--threads", "1"};
  }
  std::string Path(const std::string& name) const { return folder_.Path(name); }
  testing::Outcome Run(const std::string& a, const std::string& b, std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"compare", Path(a), Path(b)});
    return RunGlint(more);
  }
  testing::Outcome RunJson(const std::string& a, const std::string& b,
                           std::vector<std::string> more = {}) const {
    more.emplace_back("--json");
    return Run(a, b, more);
  }
  std::vector<std::string> text_;
  TempDir folder_;
};

TEST_F(Compare, AModelWithItself) {
  ASSERT_EQ(RunGlint({"split", Path("a.gguf"), Path("set.gguf"), "--split-tensors", "100"}).code, 0);
  const auto words = Run("a.gguf", "set-00002-of-00003.gguf");
  ASSERT_EQ(words.code, 0) << words.err;
  EXPECT_TRUE(Has(words.out, " common tensors are the same byte for byte")) << words.out;
  EXPECT_FALSE(Has(words.out, "relative rms") || Has(words.out, "metadata") || Has(words.out, "only in"))
      << words.out;
  const auto o = RunJson("a.gguf", "set-00002-of-00003.gguf", text_);
  ASSERT_EQ(o.code, 0) << o.err;
  const auto json = ParseJson(o.out, "stdout");
  ASSERT_TRUE(json.ok()) << json.status().message();
  ASSERT_GT(json->Find("tensors")->items().size(), 100u);
  for (const Json& t : json->Find("tensors")->items()) EXPECT_TRUE(*t.Get<bool>("same"));
  EXPECT_TRUE(json->Find("metadata")->items().empty());
  EXPECT_TRUE(json->Find("only_a")->items().empty());
  const Json& all = json->Find("divergence")->items().back();
  EXPECT_LT(std::fabs(*all.Get<double>("mean")), 1e-9);
  EXPECT_EQ(*all.Get<double>("same_top"), 1);
}

// The figures of `quantize --report`, which come from its own loops, and of the files themselves.
TEST_F(Compare, TwoTypes) {
  ASSERT_EQ(RunGlint({"quantize", Path("a.gguf"), Path("b.gguf"), "--type", "q4_0", "--report",
                      Path("report.json")})
                .code,
            0);
  const auto report = ParseJson(folder_.Read("report.json"), "report");
  ASSERT_TRUE(report.ok());
  std::map<std::string, const Json*> made;
  for (const Json& t : report->Find("tensors")->items()) made[*t.Get<std::string>("name")] = &t;
  const auto o = RunJson("a.gguf", "b.gguf", text_);
  ASSERT_EQ(o.code, 0) << o.err;
  const auto json = ParseJson(o.out, "stdout");
  ASSERT_TRUE(json.ok()) << json.status().message();
  EXPECT_EQ(*json->Get<uint64_t>("bytes_a"), folder_.Read("a.gguf").size());
  EXPECT_EQ(*json->Get<uint64_t>("bytes_b"), folder_.Read("b.gguf").size());
  ASSERT_EQ(json->Find("tensors")->items().size(), made.size());
  int changed = 0;
  for (const Json& t : json->Find("tensors")->items()) {
    const std::string name = *t.Get<std::string>("name");
    SCOPED_TRACE(name);
    ASSERT_TRUE(made.contains(name));
    const Json& wanted = *made[name];
    EXPECT_EQ(*t.Get<std::string>("type_b"), *wanted.Get<std::string>("to"));
    EXPECT_EQ(*t.Get<uint64_t>("bytes_b"), *wanted.Get<uint64_t>("bytes"));
    EXPECT_EQ(*t.Get<bool>("same"), *wanted.Get<bool>("kept"));
    if (*wanted.Get<bool>("kept")) continue;
    ++changed;
    EXPECT_NEAR(*t.Get<double>("relative_rms"), *wanted.Get<double>("relative_rms_error"), 1e-9);
    // Rows that fit no block fall back to f16, whose "blocks" are single weights there and 32 here.
    if (*t.Get<std::string>("type_b") == "f16") continue;
    EXPECT_NEAR(*t.Get<double>("worst_block"), *wanted.Get<double>("largest_block_error"), 1e-9);
  }
  EXPECT_GT(changed, 20);
  EXPECT_FALSE(json->Find("metadata")->items().empty());  // general.file_type
  EXPECT_GT(*json->Find("divergence")->items().back().Get<double>("mean"), 1e-6);
  const Json& speed = *json->Find("speed");
  ASSERT_EQ(speed.items().size(), 3u);
  for (const Json& phase : speed.items()) EXPECT_GT(*phase.Get<double>("a"), 0);
  const auto words = Run("a.gguf", "b.gguf");
  EXPECT_TRUE(Has(words.out, "f32 -> q4_0")) << words.out;
  EXPECT_TRUE(Has(words.out, "general.file_type: ")) << words.out;
}

TEST_F(Compare, OtherShapesAndVocabularies) {
  if (!testing::HaveStories()) GTEST_SKIP() << "the stories model is not here";
  const std::string stories = testing::StoriesModel();
  const auto words = RunGlint({"compare", Path("a.gguf"), stories});
  ASSERT_EQ(words.code, 0) << words.err;
  EXPECT_TRUE(Has(words.out, "shapes 64x256 and ")) << words.out;
  EXPECT_TRUE(Has(words.out, "only in ")) << words.out;
  std::vector<std::string> arguments{"compare", Path("a.gguf"), stories};
  arguments.insert(arguments.end(), text_.begin(), text_.end());
  const auto o = RunGlint(arguments);
  EXPECT_EQ(o.code, 1);
  EXPECT_TRUE(Has(o.err, "vocabularies of 256 and ")) << o.err;
}

TEST_F(Compare, DamageIsRefused) {
  const std::string whole = folder_.Read("a.gguf");
  folder_.Write("short.gguf", whole.substr(0, whole.size() - 5000));
  folder_.Write("nothing.gguf", "");
  folder_.Write("words.gguf", "Once upon a time there was a file that was no model.");
  std::string broken = whole;
  broken[8] = static_cast<char>(0xff);  // the number of tensors
  folder_.Write("count.gguf", broken);
  for (const char* bad : {"short.gguf", "nothing.gguf", "words.gguf", "count.gguf", "gone.gguf"}) {
    for (const bool first : {true, false}) {
      const auto o = first ? Run(bad, "a.gguf") : Run("a.gguf", bad);
      EXPECT_EQ(o.code, 1) << bad;
      EXPECT_TRUE(Has(o.err, bad)) << o.err;
      EXPECT_TRUE(o.out.empty()) << o.out;
    }
  }
  // Weights that are no numbers are counted; what they do to predictions is refused, not averaged.
  std::string nan = whole;
  for (size_t i = nan.size() - 64 * 256 * 4; i + 4 <= nan.size(); i += 4)
    nan.replace(i, 4, "\0\0\xc0\x7f", 4);
  folder_.Write("nan.gguf", nan);
  const auto counted = Run("a.gguf", "nan.gguf");
  EXPECT_EQ(counted.code, 0) << counted.err;
  EXPECT_TRUE(Has(counted.out, "weights are no numbers)")) << counted.out;
  EXPECT_EQ(Run("a.gguf", "a.gguf", {"--ctx", "x"}).code, 2);
}

// What a file says does not get to move the cursor, nor a large number to push columns into one another.
TEST_F(Compare, WhatFilesSayIsMadePrintable) {
  const auto write = [&](const std::string& name, float weight, const std::string& text) {
    gguf::Writer writer;
    writer.SetString("key\x1b[2J", text);
    writer.AddTensor("na\nme", 0, {64}, 64 * sizeof(float), [=](const gguf::Writer::Sink& sink) {
      const std::vector<float> weights(64, weight);
      return sink(std::as_bytes(std::span(weights)));
    });
    writer.AddTensor("only\r" + name, 0, {1}, sizeof(float),
                     [](const gguf::Writer::Sink& sink) { return sink(std::vector<std::byte>(4)); });
    const Status written = writer.Write(Path(name), {});
    ASSERT_TRUE(written.ok()) << written.message();
  };
  const std::string umlaut = "\xc3\xa4";
  write("plain.gguf", 1, std::string(99, 'x') + umlaut);  // what is shown ends after 100 bytes
  write("large.gguf", 1e30f, "a\nb");
  const auto o = Run("plain.gguf", "large.gguf");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(Has(o.out, "  na\\nme  f32 -> f32 ")) << o.out;
  EXPECT_TRUE(Has(o.out, "  1.000000e+30  1.000000e+30  0, 0\n")) << o.out;
  EXPECT_TRUE(Has(o.out, "only in A: only\\rplain.gguf\n")) << o.out;
  EXPECT_TRUE(Has(o.out, "key\\x1b[2J: \"" + std::string(99, 'x') + "\"... | \"a\\nb\"\n")) << o.out;
  for (const char c : o.out) EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= ' ') << o.out;
  const auto json = RunJson("plain.gguf", "large.gguf");
  EXPECT_TRUE(ValidUtf8(json.out)) << json.out;
  EXPECT_TRUE(ParseJson(json.out, "stdout").ok()) << json.out;
}

}  // namespace
}  // namespace glint::cli
