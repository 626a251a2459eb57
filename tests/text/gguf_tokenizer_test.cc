#include "text/gguf_tokenizer.h"

#include <gtest/gtest.h>

#include "tests/base/temp_dir.h"
#include "tests/gguf/bytes.h"
#include "text/hf_tokenizer.h"
#include "text/tokenizer.h"

namespace glint::text {
namespace {

using test::GgufBytes;
using test::TempDir;

gguf::File Open(const TempDir& dir, std::string_view bytes) {
  auto file = gguf::File::Open(dir.Write("t.gguf", bytes), test::FewTypes);
  EXPECT_TRUE(file.ok()) << file.status().message();
  return file.ok() ? std::move(*file) : gguf::File();
}

// A file as others write it: no key of ours, one merge, padding at the end.
struct Foreign {
  std::string model = "gpt2", pre = "glm4";
  std::vector<int32_t> types = {1, 1, 1, 3, 4, 5};
  std::vector<std::string> merges = {"a b"};
  uint32_t eos = 3, eot = 4, pad = 3;
  std::string drop = {};  // "tokens", "token_type" or "merges": left out

  std::string Bytes() const {
    GgufBytes out;
    out.Text("general.architecture", "glm5next");
    if (!model.empty()) out.Text("tokenizer.ggml.model", model);
    if (!pre.empty()) out.Text("tokenizer.ggml.pre", pre);
    const auto keep = [&](std::string_view key) { return key != drop; };
    if (keep("tokens")) out.Texts("tokenizer.ggml.tokens", {"a", "b", "ab", "<|user|>", "<think>", "[PAD5]"});
    if (keep("token_type")) out.Numbers<int32_t>("tokenizer.ggml.token_type", 5, types);
    if (keep("merges")) out.Texts("tokenizer.ggml.merges", merges);
    out.Key<uint32_t>("tokenizer.ggml.eos_token_id", 4, eos);
    out.Key<uint32_t>("tokenizer.ggml.eot_token_id", 4, eot);
    out.Key<uint32_t>("tokenizer.ggml.padding_token_id", 4, pad);
    return out.Bytes();
  }
};

TEST(GgufTokenizer, ReadsAForeignFile) {
  TempDir dir;
  for (const char* pre : {"glm4", "glm5"}) {
    Foreign foreign;
    foreign.pre = pre;
    const auto data = ReadGgufTokenizer(Open(dir, foreign.Bytes()));
    ASSERT_TRUE(data.ok()) << data.status().message();
    EXPECT_EQ(data->tokens.size(), 6);
    EXPECT_EQ(data->kinds,
              (std::vector<TokenKind>{TokenKind::kNormal, TokenKind::kNormal, TokenKind::kNormal,
                                      TokenKind::kControl, TokenKind::kUserDefined, TokenKind::kUnused}));
    EXPECT_EQ(data->merges, (std::vector<std::pair<std::string, std::string>>{{"a", "b"}}));
    EXPECT_TRUE(data->ignore_merges);
    EXPECT_EQ(data->stop_ids, (std::vector<int32_t>{3, 4}));
    EXPECT_EQ(data->pad_id, 3);
    EXPECT_EQ(data->bos_id, -1);
  }
  EXPECT_EQ(ReadGgufChatTemplate(Open(dir, Foreign().Bytes())).value(), "");
}

TEST(GgufTokenizer, WrittenAndReadIsTheSame) {
  TempDir dir;
  auto data = ReadHfTokenizer(GLINT_TEST_DATA "/stories", 4100).value();
  data.stop_ids = {4078, 4085, 4087};
  data.bos_id = 4080;
  gguf::Writer writer;
  writer.SetString("general.architecture", "glm5next");
  ASSERT_TRUE(WriteGgufTokenizer(data, "{{ source }}", writer).ok());
  ASSERT_TRUE(writer.Write(dir.Path("out.gguf"), {}).ok());
  const auto file = gguf::File::Open(dir.Path("out.gguf"), test::FewTypes);
  ASSERT_TRUE(file.ok()) << file.status().message();
  const auto read = ReadGgufTokenizer(*file);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->tokens, data.tokens);
  EXPECT_EQ(read->kinds, data.kinds);
  EXPECT_EQ(read->merges, data.merges);
  EXPECT_EQ(read->ignore_merges, data.ignore_merges);
  EXPECT_EQ(read->stop_ids, data.stop_ids);
  EXPECT_EQ(read->pad_id, data.pad_id);
  EXPECT_EQ(read->bos_id, data.bos_id);
  EXPECT_EQ(ReadGgufChatTemplate(*file).value(), "{{ source }}");
  EXPECT_TRUE(Tokenizer::Create(*read).ok());

  data.stop_ids.push_back(1);
  EXPECT_EQ(WriteGgufTokenizer(data, "", writer).code(), Code::kUnsupported);
}

TEST(GgufTokenizer, RefusesWithTheKeyNamed) {
  TempDir dir;
  const auto expect = [&](const Foreign& foreign, Code code, std::string_view words) {
    const auto data = ReadGgufTokenizer(Open(dir, foreign.Bytes()));
    ASSERT_FALSE(data.ok()) << words;
    EXPECT_EQ(data.status().code(), code) << data.status().message();
    EXPECT_NE(data.status().message().find(words), std::string::npos)
        << data.status().message() << " lacks " << words;
    EXPECT_NE(data.status().message().find("t.gguf"), std::string::npos) << data.status().message();
  };
  expect({.model = "llama"}, Code::kUnsupported, "tokenizer.ggml.model");
  expect({.model = ""}, Code::kBadFile, "tokenizer.ggml.model: absent");
  for (const char* key : {"tokens", "token_type", "merges"}) {
    expect({.drop = key}, Code::kBadFile, std::string("tokenizer.ggml.") + key + ": absent");
  }
  expect({.pre = "qwen2"}, Code::kUnsupported, "tokenizer.ggml.pre");
  expect({.pre = ""}, Code::kUnsupported, "tokenizer.ggml.pre");
  expect({.types = {1, 1}}, Code::kBadFile, "2 types for 6 tokens");
  expect({.types = {1, 1, 6, 3, 4, 5}}, Code::kBadFile, "token 2 is of type 6");
  expect({.merges = {"a b", "ab"}}, Code::kBadFile, "entry 1, 'ab'");
  expect({.eos = 6}, Code::kBadFile, "tokenizer.ggml.eos_token_id: 6");
  expect({.pad = 4000000000}, Code::kBadFile, "tokenizer.ggml.padding_token_id");
  GgufBytes none;
  none.Text("general.architecture", "glm5next");
  EXPECT_EQ(ReadGgufTokenizer(Open(dir, none.Bytes())).status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace glint::text
