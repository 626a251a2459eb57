#include <gtest/gtest.h>

#include <random>

#include "base/json.h"
#include "tests/cli/program.h"

namespace glint::cli {
namespace {

using testing::RunGlint;

class Tokenize : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!testing::HaveStories()) GTEST_SKIP() << "no embedded model";
  }
};

TEST_F(Tokenize, ThereAndBackIsTheSameBytes) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  std::vector<std::string> texts{"a fox and a hen", "", "\n", "tab\there\r\n", "grün 漢字 \xf0\x9f\xa6\x8a",
                                 "<|user|> is text"};
  for (int i = 0; i < 4; ++i) {
    std::string bytes(1 + rng() % 200, '\0');
    for (char& byte : bytes) byte = static_cast<char>(rng() % 256);
    texts.push_back(bytes);
  }
  for (const std::string& text : texts) {
    const auto ids = RunGlint({"tokenize", "--ids"}, {.input = text});
    ASSERT_EQ(ids.code, 0) << ids.err;
    EXPECT_EQ(RunGlint({"detokenize"}, {.input = ids.out}).out, text);
  }
}

TEST_F(Tokenize, ShowsIdsAndPieces) {
  const auto o = RunGlint({"tokenize", "a\tfox"});
  EXPECT_EQ(o.code, 0);
  EXPECT_NE(o.out.find("\\t"), std::string::npos) << o.out;
  EXPECT_NE(o.err.find("tokens\n"), std::string::npos);
  const auto json = ParseJson(RunGlint({"tokenize", "--json", "a fox"}).out, "stdout");
  ASSERT_TRUE(json.ok());
  std::string joined;
  for (const Json& token : json->Find("tokens")->items()) joined += token.Get<std::string>("piece").value();
  EXPECT_EQ(joined, "a fox");
  EXPECT_EQ(json->Get<uint64_t>("count").value(), json->Find("tokens")->items().size());
}

TEST_F(Tokenize, SpecialTokensOnlyWhenAsked) {
  EXPECT_EQ(RunGlint({"tokenize", "--special", "--ids", "[gMASK]<sop><|user|>"}).out, "4080,4082,4085\n");
  EXPECT_EQ(RunGlint({"tokenize", "--ids", "<|user|>"}).out.find("4085"), std::string::npos);
  EXPECT_EQ(RunGlint({"detokenize", "4080", "4082,4085"}).out, "[gMASK]<sop><|user|>");
  EXPECT_EQ(RunGlint({"detokenize", "--hide-special", "4080", "4082,4085"}).out, "");
}

TEST_F(Tokenize, BadIdsAreNamed) {
  const auto o = RunGlint({"detokenize", "1", "99999"});
  EXPECT_EQ(o.code, 1);
  EXPECT_NE(o.err.find("99999"), std::string::npos) << o.err;
}

TEST(TokenizeWithout, AModelWithoutTokenizerSaysSo) {
  for (const char* command : {"tokenize", "detokenize"}) {
    const auto o = RunGlint({command, "-m", testing::MicroModel(), "1"});
    EXPECT_EQ(o.code, 1);
    EXPECT_NE(o.err.find("has no tokenizer"), std::string::npos) << o.err;
  }
}

// Sparse: nothing of it is on the disk.
TEST(TokenizeWithout, MemoryEnoughIsAnError) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need address space of their own";
#endif
  const test::TempDir folder;
  folder.Write("large", "");
  std::filesystem::resize_file(folder.Path("large"), 900u << 20);
  const auto o =
      RunGlint({"tokenize", "--synthetic", "tiny", "-f", folder.Path("large")}, {.memory_bytes = 500u << 20});
  EXPECT_EQ(o.code, 1) << o.err;
  EXPECT_NE(o.err.find("not enough memory"), std::string::npos) << o.err;
}

}  // namespace
}  // namespace glint::cli
