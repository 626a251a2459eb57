#include <gtest/gtest.h>

#include <random>

#include "base/printable.h"
#include "glint/tokenizer.h"
#include "tests/text/random_text.h"
#include "tests/text/referee.h"
#include "text/byte_alphabet.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace glint {
namespace {

constexpr int32_t kUser = 256, kThink = 257, kPadding = 258;

// Ids 0 to 255 are bytes, so a test can push any byte by itself.
std::shared_ptr<const text::Tokenizer> Bytewise() {
  text::TokenizerData data;
  for (int byte = 0; byte < 256; ++byte) {
    data.tokens.push_back(text::ToAlphabet(std::string(1, static_cast<char>(byte))));
    data.kinds.push_back(text::TokenKind::kNormal);
  }
  data.tokens.insert(data.tokens.end(), {"<|user|>", "<think>", "padding"});
  data.kinds.insert(data.kinds.end(),
                    {text::TokenKind::kControl, text::TokenKind::kUserDefined, text::TokenKind::kUnused});
  data.stop_ids = {kUser};
  return text::Tokenizer::Create(data).value();
}

std::string Streamed(const std::string& bytes) {
  TextStream stream(Bytewise());
  std::string out;
  for (const char c : bytes) {
    const std::string more = stream.Push(static_cast<uint8_t>(c));
    EXPECT_TRUE(ValidUtf8(more)) << text::Hex(more);
    out += more;
  }
  return out + stream.Finish();
}

TEST(TextStream, HoldsBackUnfinishedCharacters) {
  TextStream stream(Bytewise());
  EXPECT_EQ(stream.Push('a'), "a");
  EXPECT_EQ(stream.Push(0xf0), "");
  EXPECT_EQ(stream.Push(0x9f), "");
  EXPECT_EQ(stream.Push(0x98), "");
  EXPECT_EQ(stream.Push(0x80), "\xf0\x9f\x98\x80");
  EXPECT_EQ(stream.Push(0xe4), "");
  EXPECT_EQ(stream.Push('b'),
            "\xef\xbf\xbd"
            "b");
  EXPECT_EQ(stream.Push(0xff), "\xef\xbf\xbd");
  EXPECT_EQ(stream.Push(0xe4), "");
  EXPECT_EQ(stream.Push(0xb8), "");
  EXPECT_EQ(stream.Finish(), "\xef\xbf\xbd");  // one maximal subpart, one mark
  EXPECT_EQ(stream.Finish(), "");
  EXPECT_EQ(stream.Push('c'), "c");
}

TEST(TextStream, ValidTextComesOutAsItWas) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  for (int i = 0; i < 500; ++i) {
    const std::string text = text::RandomText(rng, 30);
    ASSERT_EQ(Streamed(text), text);
  }
}

TEST(TextStream, ReplacesAsPythonDoes) {
  if (!text::HasReferee()) GTEST_SKIP() << text::NoReferee();
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  static constexpr std::string_view kEdges =
      "\xc1\xc2\xdf\xe0\xe1\xec\xed\xee\xef\xf0\xf1\xf3\xf4\xf5\x7f\x80\x8f\x90\x9f\xa0\xbf";
  std::vector<std::string> texts, lines;
  for (int i = 0; i < 5000; ++i) {
    std::string text;
    for (size_t n = rng() % 12; n > 0; --n) text += kEdges[rng() % kEdges.size()];
    texts.push_back(text);
    lines.push_back(text::Hex(text));
  }
  const auto answer = text::AskReferee("referee_tokenizer.py", "decode", lines);
  ASSERT_TRUE(answer && answer->size() == texts.size());
  for (size_t i = 0; i < texts.size(); ++i)
    ASSERT_EQ(text::Hex(Streamed(texts[i])), (*answer)[i]) << lines[i];
}

TEST(TextStream, ShowsControlTokensOnlyWhenAsked) {
  TextStream hidden(Bytewise()), shown(Bytewise(), true);
  EXPECT_EQ(hidden.Push(kUser), "");
  EXPECT_EQ(shown.Push(kUser), "<|user|>");
  EXPECT_EQ(hidden.Push(kThink), "<think>");
  EXPECT_EQ(hidden.Push(kPadding), "");
  EXPECT_EQ(hidden.Push(-1), "");
  EXPECT_EQ(hidden.Push(1 << 30), "");
}

TEST(PublicTokenizer, DecodeGivesTheBytesAndRefusesForeignIds) {
  const Tokenizer tokenizer(Bytewise(), nullptr);
  EXPECT_EQ(tokenizer.size(), 258);
  const std::vector<int32_t> ids = {'a', 0xff, kUser, kThink};
  EXPECT_EQ(tokenizer.Decode(ids).value(), "a\xff<|user|><think>");
  EXPECT_EQ(tokenizer.Decode(ids, false).value(), "a\xff<think>");
  const std::vector<int32_t> padding = {'a', kPadding}, negative = {-1};
  EXPECT_EQ(tokenizer.Decode(padding).status().code(), Code::kBadInput);
  EXPECT_NE(tokenizer.Decode(padding).status().message().find("id 258 at index 1"), std::string::npos);
  EXPECT_EQ(tokenizer.Decode(negative).status().code(), Code::kBadInput);
  EXPECT_TRUE(tokenizer.IsSpecial(kUser));
  EXPECT_FALSE(tokenizer.IsSpecial(kThink));
  EXPECT_EQ(tokenizer.Find("<think>"), kThink);
  EXPECT_EQ(tokenizer.stop_ids()[0], kUser);
  EXPECT_EQ(tokenizer.RenderChat({}).status().code(), Code::kUnsupported);
  EXPECT_EQ(tokenizer.EncodeChat({}).status().code(), Code::kUnsupported);
}

}  // namespace
}  // namespace glint
