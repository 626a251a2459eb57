#include "text/hf_tokenizer.h"

#include <gtest/gtest.h>

#include <random>
#include <sstream>

#include "tests/base/temp_dir.h"
#include "tests/text/random_text.h"
#include "tests/text/referee.h"
#include "text/tokenizer.h"

namespace glint::text {
namespace {

using test::TempDir;

constexpr const char* kStories = GLINT_TEST_DATA "/stories";

TEST(HfTokenizer, ReadsTheStoriesTokenizer) {
  const auto data = ReadHfTokenizer(kStories, 4100);
  ASSERT_TRUE(data.ok()) << data.status().message();
  EXPECT_EQ(data->tokens.size(), 4100);
  EXPECT_EQ(data->merges.size(), 3822);
  EXPECT_EQ(data->tokens[0], "!");
  EXPECT_EQ(data->kinds[0], TokenKind::kNormal);
  EXPECT_EQ(data->kinds[4078], TokenKind::kControl);
  EXPECT_EQ(data->tokens[4088], "<think>");
  EXPECT_EQ(data->kinds[4088], TokenKind::kUserDefined);
  EXPECT_EQ(data->kinds[4096], TokenKind::kUnused);
  EXPECT_FALSE(data->ignore_merges);
  EXPECT_EQ(data->stop_ids,
            std::vector<int32_t>{4078});  // eos_token: this copy has no generation_config.json
  EXPECT_EQ(data->pad_id, 4078);
  EXPECT_EQ(data->bos_id, -1);
  const auto tokenizer = Tokenizer::Create(*data);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ((*tokenizer)->usable(), 4096);
  EXPECT_NE(ReadHfChatTemplate(kStories).value().find("<|assistant|>"), std::string::npos);
}

TEST(HfTokenizer, EncodesAsTheReference) {
  if (!HasReferee()) GTEST_SKIP() << NoReferee();
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  std::vector<std::string> texts = {"", std::string(20000, 'a'), std::string(3000, ' ') + "x",
                                    std::string(3000, '\n')};
  static constexpr std::string_view kAdded[] = {"<|user|>",  "<|endoftext|>", "[gMASK]<sop>",
                                                "<think>",   "</think>",      "<tool_call>",
                                                "<arg_key>", "<|user|",       "[MASK]"};
  for (int i = 0; i < 5000; ++i) {
    std::string text = RandomText(rng, 40);
    if (i % 3 == 0) text += std::string(kAdded[rng() % std::size(kAdded)]) + RandomText(rng, 5);
    texts.push_back(text);
  }
  std::vector<std::string> lines;
  for (const auto& text : texts) lines.push_back(Hex(text));
  auto data = ReadHfTokenizer(kStories).value();
  for (const bool ignore_merges : {false, true}) {
    data.ignore_merges = ignore_merges;
    const auto tokenizer = Tokenizer::Create(data).value();
    for (const bool added : {false, true}) {
      const auto answer = AskReferee("referee_tokenizer.py",
                                     std::string("ids '") + kStories + "/tokenizer.json' " +
                                         (ignore_merges ? "1 " : "0 ") + (added ? "1" : "0"),
                                     lines);
      ASSERT_TRUE(answer && answer->size() == texts.size());
      for (size_t i = 0; i < texts.size(); ++i) {
        std::ostringstream got;
        const char* between = "";
        std::string decoded;
        for (const int32_t id : tokenizer->Encode(texts[i], added)) {
          got << std::exchange(between, " ") << id;
          decoded += tokenizer->Bytes(id);
        }
        ASSERT_EQ(got.str(), (*answer)[i]) << lines[i];
        ASSERT_EQ(decoded, texts[i]);
      }
    }
  }
}

// A whole tokenizer.json with a part of it replaced.
std::string Json(const std::string& what = "", const std::string& with = "") {
  std::string vocab;
  for (int i = 0; i < 3; ++i)
    vocab += (i ? ", \"" : "\"") + std::string(1, static_cast<char>('a' + i)) + "\": " + std::to_string(i);
  std::string json =
      R"({"normalizer": null, "added_tokens": [{"id": 4, "content": "<x>", "special": true, "lstrip": false}],
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"Regex": "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
       "behavior": "Isolated", "invert": false},
      {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]},
    "model": {"type": "BPE", "byte_fallback": false, "ignore_merges": true, "vocab": {)" +
      vocab + R"(}, "merges": [["a", "b"], "b c"]}})";
  if (what.empty()) return json;
  const size_t at = json.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return json.replace(at, what.size(), with);
}

TEST(HfTokenizer, ReadsBothFormsOfMergesAndOfIds) {
  TempDir dir;
  dir.Write("tokenizer.json", Json());
  dir.Write("generation_config.json", R"({"eos_token_id": [4, 2, 4], "pad_token_id": 1})");
  dir.Write("config.json", R"({"eos_token_id": 0, "text_config": {"bos_token_id": 2}})");
  dir.Write(
      "tokenizer_config.json",
      R"({"pad_token": "<x>", "chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]})");
  const auto data = ReadHfTokenizer(dir.path(), 6);
  ASSERT_TRUE(data.ok()) << data.status().message();
  EXPECT_EQ(data->merges, (std::vector<std::pair<std::string, std::string>>{{"a", "b"}, {"b", "c"}}));
  EXPECT_TRUE(data->ignore_merges);
  EXPECT_EQ(data->stop_ids, (std::vector<int32_t>{4, 2}));
  EXPECT_EQ(data->pad_id, 1);
  EXPECT_EQ(data->bos_id, 2);
  EXPECT_EQ(data->kinds[3], TokenKind::kUnused);
  EXPECT_EQ(data->tokens[3], "[PAD3]");
  EXPECT_EQ(data->kinds[5], TokenKind::kUnused);
  EXPECT_EQ(ReadHfChatTemplate(dir.path()).value(), "d");
  dir.Write("chat_template.jinja", "j");
  EXPECT_EQ(ReadHfChatTemplate(dir.path()).value(), "j");
  dir.Write("tokenizer_config.json", R"({"pad_token": {"content": "<x>"}})");
  dir.Write("generation_config.json", "{}");
  dir.Write("config.json", R"({"text_config": {"eos_token_id": 2}})");
  const auto again = ReadHfTokenizer(dir.path());
  EXPECT_EQ(again->stop_ids, std::vector<int32_t>{2});
  EXPECT_EQ(again->pad_id, 4);
}

TEST(HfTokenizer, RefusesWhatItWouldReadWrongly) {
  TempDir dir;
  EXPECT_EQ(ReadHfTokenizer(dir.path()).status().code(), Code::kNotFound);
  const struct {
    std::string what, with, words;
    Code code;
  } cases[] = {
      {"\"BPE\"", "\"Unigram\"", "model.type", Code::kUnsupported},
      {"\"byte_fallback\": false", "\"byte_fallback\": true", "byte_fallback", Code::kUnsupported},
      {"\"byte_fallback\": false", "\"dropout\": 0.5", "dropout", Code::kUnsupported},
      {"\"byte_fallback\": false", "\"end_of_word_suffix\": \"</w>\"", "end_of_word_suffix",
       Code::kUnsupported},
      {"\"normalizer\": null", "\"normalizer\": {\"type\": \"NFC\"}", "normalizer", Code::kUnsupported},
      {"{1,3}", "{1,2}", "pattern", Code::kUnsupported},
      {"\"Isolated\"", "\"Removed\"", "isolates", Code::kUnsupported},
      {"\"Sequence\"", "\"ByteLevel\"", "sequence", Code::kUnsupported},
      {"\"add_prefix_space\": false", "\"add_prefix_space\": true", "prefix space", Code::kUnsupported},
      {"\"lstrip\": false", "\"lstrip\": true", "'<x>' has lstrip", Code::kUnsupported},
      {"[\"a\", \"b\"]", "[\"a\"]", "model.merges[0]", Code::kBadFile},
      {"\"b c\"", "\"bc\"", "model.merges[1]", Code::kBadFile},
      {"\"b c\"", "7", "model.merges[1]", Code::kBadFile},
      {"\"id\": 4", "\"id\": 1", "id 1 is 'b' already", Code::kBadFile},
      {"\"id\": 4", "\"id\": -1", "not an integer", Code::kBadFile},
      {"\"id\": 4", "\"id\": 99999999999", "not an integer", Code::kBadFile},
      {"\"id\": 4", "\"id\": 6", "6 rows", Code::kBadFile},
      {"\"vocab\"", "\"voc\"", "model.vocab", Code::kBadFile},
      {"\"merges\"", "\"merge\"", "model.merges", Code::kBadFile},
      {"\"model\"", "\"mod\"", "\"model\"", Code::kBadFile},
      {"{", "", "", Code::kBadFile},
  };
  for (const auto& c : cases) {
    dir.Write("tokenizer.json", Json(c.what, c.with));
    const auto data = ReadHfTokenizer(dir.path(), 6);
    ASSERT_FALSE(data.ok()) << c.with;
    EXPECT_EQ(data.status().code(), c.code) << data.status().message();
    EXPECT_NE(data.status().message().find("tokenizer.json"), std::string::npos) << data.status().message();
    EXPECT_NE(data.status().message().find(c.words), std::string::npos)
        << data.status().message() << " lacks " << c.words;
  }
  dir.Write("tokenizer.json", Json());
  dir.Write("generation_config.json", R"({"eos_token_id": [9]})");
  EXPECT_NE(ReadHfTokenizer(dir.path()).status().message().find("generation_config.json: eos_token_id"),
            std::string::npos);
  dir.Write("generation_config.json", "[");
  EXPECT_EQ(ReadHfTokenizer(dir.path()).status().code(), Code::kBadFile);
}

}  // namespace
}  // namespace glint::text
