#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/text/random_text.h"
#include "text/byte_alphabet.h"

namespace glint::text {
namespace {

// The 256 bytes in order, then `words` with the merges that build them from the left, then added tokens.
TokenizerData Toy(const std::vector<std::string>& words) {
  TokenizerData data;
  for (int byte = 0; byte < 256; ++byte)
    data.tokens.push_back(ToAlphabet(std::string(1, static_cast<char>(byte))));
  for (const auto& word : words) {
    for (size_t n = 2; n <= word.size(); ++n) {
      const std::string token = ToAlphabet(word.substr(0, n));
      if (std::find(data.tokens.begin(), data.tokens.end(), token) != data.tokens.end()) continue;
      data.merges.emplace_back(ToAlphabet(word.substr(0, n - 1)), ToAlphabet(word.substr(n - 1, 1)));
      data.tokens.push_back(token);
    }
  }
  data.kinds.assign(data.tokens.size(), TokenKind::kNormal);
  return data;
}

int32_t AddToken(TokenizerData& data, std::string spelling, TokenKind kind) {
  data.tokens.push_back(std::move(spelling));
  data.kinds.push_back(kind);
  return static_cast<int32_t>(data.tokens.size()) - 1;
}

std::shared_ptr<const Tokenizer> Make(TokenizerData data) {
  auto made = Tokenizer::Create(std::move(data));
  EXPECT_TRUE(made.ok()) << made.status().message();
  return made.ok() ? made.value() : nullptr;
}

std::string Join(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  std::string out;
  for (const int32_t id : ids) out += tokenizer.Bytes(id);
  return out;
}

// The definition of byte-pair merging, quadratic: the lowest rank of all neighbours, the leftmost among
// equals.
std::vector<std::string> MergePlainly(const TokenizerData& data, std::string_view piece) {
  std::vector<std::string> symbols;
  for (const char c : piece) symbols.push_back(ToAlphabet(std::string(1, c)));
  for (;;) {
    size_t best_rank = data.merges.size(), best_at = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found =
          std::find(data.merges.begin(), data.merges.end(), std::pair(symbols[i], symbols[i + 1]));
      const auto rank = static_cast<size_t>(found - data.merges.begin());
      if (rank < best_rank) best_rank = rank, best_at = i;
    }
    if (best_rank == data.merges.size()) return symbols;
    symbols[best_at] += symbols[best_at + 1];
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best_at) + 1);
  }
}

TEST(Tokenizer, AlphabetGoesThereAndBack) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  EXPECT_EQ(FromAlphabet(ToAlphabet(all)), all);
  EXPECT_EQ(ToAlphabet(" a\n"),
            "\xc4\xa0"
            "a\xc4\x8a");
  EXPECT_EQ(FromAlphabet(" "), std::nullopt);
  EXPECT_EQ(FromAlphabet("\xff"), std::nullopt);
  EXPECT_EQ(FromAlphabet("\xe4\xb8\xad"), std::nullopt);
}

TEST(Tokenizer, MergesAsThePlainDefinition) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  for (int repeat = 0; repeat < 200; ++repeat) {
    // Any two tokens over few letters may merge, and in any order of ranks: so pairs overlap, and a pair that waits in the queue
    // is often gone, or another, when its turn comes.
    TokenizerData data = Toy({});
    data.ignore_merges = false;
    std::vector<std::string> joined = {"a", "b", "c"};
    while (data.merges.size() < 25) {
      const std::string &left = joined[rng() % joined.size()], &right = joined[rng() % joined.size()];
      const std::string both = left + right;
      if (both.size() > 8 || std::find(joined.begin(), joined.end(), both) != joined.end()) continue;
      data.merges.emplace_back(left, right);
      AddToken(data, both, TokenKind::kNormal);
      joined.push_back(both);
    }
    std::shuffle(data.merges.begin(), data.merges.end(), rng);
    const auto tokenizer = Make(data);
    for (int i = 0; i < 50; ++i) {
      std::string piece(rng() % 40, 'a');
      for (char& c : piece) c = static_cast<char>('a' + rng() % 3);
      std::vector<std::string> got;
      for (const int32_t id : tokenizer->Encode(piece, false)) got.push_back(data.tokens[id]);
      ASSERT_EQ(got, MergePlainly(data, piece)) << piece;
    }
  }
}

TEST(Tokenizer, IgnoreMergesEmitsAWholePiece) {
  TokenizerData data = Toy({"ab"});
  const int32_t abc = AddToken(data, "abc", TokenKind::kNormal);  // no merge makes it
  data.ignore_merges = true;
  EXPECT_EQ(Make(data)->Encode("abc", false), std::vector<int32_t>{abc});
  EXPECT_EQ(Make(data)->Encode("abcd", false), (std::vector<int32_t>{256, 'c', 'd'}));
  data.ignore_merges = false;
  EXPECT_EQ(Make(data)->Encode("abc", false), (std::vector<int32_t>{256, 'c'}));
}

TEST(Tokenizer, AddedTokensAreTheLongestAndOnlyWhenAsked) {
  TokenizerData data = Toy({});
  const int32_t user = AddToken(data, "<|user|>", TokenKind::kControl);
  const int32_t think = AddToken(data, "<think>", TokenKind::kUserDefined);
  const int32_t longer = AddToken(data, "<think>ing", TokenKind::kUserDefined);
  AddToken(data, "<unused>", TokenKind::kUnused);
  const auto tokenizer = Make(data);
  EXPECT_EQ(tokenizer->Encode("<think>i<think>ing<|user|>", true),
            (std::vector<int32_t>{think, 'i', longer, user}));
  EXPECT_EQ(tokenizer->Encode("<<|user|>>", true), (std::vector<int32_t>{'<', user, '>'}));
  for (const std::string_view text : {"<think>", "<|user|>", "a<think>ing", "<unused>"}) {
    EXPECT_EQ(tokenizer->Encode(text, false), std::vector<int32_t>(text.begin(), text.end()));
    EXPECT_EQ(Join(*tokenizer, tokenizer->Encode(text, true)), text);
  }
  EXPECT_EQ(tokenizer->FindAdded("<think>"), think);
  EXPECT_EQ(tokenizer->FindAdded("<unused>"), -1);
  EXPECT_EQ(tokenizer->FindAdded("a"), -1);
  EXPECT_EQ(tokenizer->size(), 260);
  EXPECT_EQ(tokenizer->usable(), 259);
  EXPECT_EQ(tokenizer->Bytes(259), "");
  EXPECT_EQ(tokenizer->Bytes(-1), "");
  EXPECT_EQ(tokenizer->Bytes(260), "");
  EXPECT_EQ(tokenizer->Kind(260), TokenKind::kUnused);
}

// A vocabulary whose merges build an added token's spelling must not let plain text reach it.
TEST(Tokenizer, MergesNeverMakeAnAddedToken) {
  for (const bool ignore_merges : {false, true}) {
    TokenizerData data = Toy({"xyz"});
    data.ignore_merges = ignore_merges;
    data.kinds.back() = TokenKind::kControl;  // xyz, which xy + z makes
    const auto tokenizer = Make(data);
    EXPECT_EQ(tokenizer->Encode("xyz", false), (std::vector<int32_t>{256, 'z'}));
    EXPECT_EQ(tokenizer->Encode("xyz", true), std::vector<int32_t>{257});
  }
}

TEST(Tokenizer, PartsAreOneTextAndOnlySpecialOnesMatch) {
  TokenizerData data = Toy({"\n\n"});
  const int32_t user = AddToken(data, "<|user|>", TokenKind::kControl);
  const auto tokenizer = Make(data);
  const std::vector<ChatPart> parts = {{"<|user|>\n", true}, {"\n<|user|>", false}};
  std::vector<int32_t> want = {user, 256};  // the newlines of both parts are one piece
  for (const char c : std::string_view("<|user|>")) want.push_back(c);
  EXPECT_EQ(tokenizer->Encode(parts), want);
  const std::vector<ChatPart> split = {{"<|us", true}, {"er|>", true}};
  const std::string_view text = "<|user|>";
  EXPECT_EQ(tokenizer->Encode(split), std::vector<int32_t>(text.begin(), text.end()));
}

TEST(Tokenizer, DecodesWhatItEncoded) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  TokenizerData data = Toy({"the", " the", "\xe4\xb8\xad", "\r\n\r\n", "    ", "ing", "\xf0\x9f\x98\x80"});
  AddToken(data, "<|user|>", TokenKind::kControl);
  AddToken(data, "<think>", TokenKind::kUserDefined);
  for (const bool ignore_merges : {false, true}) {
    data.ignore_merges = ignore_merges;
    const auto tokenizer = Make(data);
    for (int i = 0; i < 3000; ++i) {
      std::string text = i % 2 ? RandomBytes(rng, 50) : RandomText(rng, 30);
      if (i % 3 == 0) text += "<|user|>" + RandomBytes(rng, 5) + "<think>";
      for (const bool parse_special : {false, true}) {
        const auto ids = tokenizer->Encode(text, parse_special);
        ASSERT_EQ(Join(*tokenizer, ids), text);
        for (const int32_t id : ids) ASSERT_TRUE(parse_special || tokenizer->Kind(id) == TokenKind::kNormal);
      }
    }
  }
}

// A megabyte without a boundary: quadratic merging would take hours here, and the suite would time out.
TEST(Tokenizer, OneLongWordIsMergedInGoodTime) {
  TokenizerData data = Toy({"aa"});
  for (std::string half = "aa"; half.size() < 64; half += half) {
    data.merges.emplace_back(half, half);
    AddToken(data, half + half, TokenKind::kNormal);
  }
  const auto tokenizer = Make(data);
  const std::string text((1 << 20) + 3, 'a');
  const auto ids = tokenizer->Encode(text, false);
  EXPECT_EQ(Join(*tokenizer, ids), text);
  EXPECT_EQ(ids.size(), (text.size() - 3) / 64 + 2);  // what is left over is aa and a
}

TEST(Tokenizer, CreateRefusesBadDataWithWords) {
  const auto message = [](const TokenizerData& data) {
    const auto made = Tokenizer::Create(data);
    if (made.ok()) return std::string("accepted");
    EXPECT_EQ(made.status().code(), Code::kBadFile);
    return made.status().message();
  };
  const auto expect = [&](const TokenizerData& data, std::string_view words) {
    EXPECT_NE(message(data).find(words), std::string::npos) << message(data) << " lacks: " << words;
  };
  expect({}, "no tokens");
  TokenizerData data = Toy({"ab"});
  data.kinds.pop_back();
  expect(data, "257 tokens but 256 token types");
  data = Toy({"ab"});
  data.tokens[65] = ToAlphabet("zz");
  expect(data, "byte 0x41");
  data = Toy({"ab"});
  data.merges.emplace_back("a", "c");
  expect(data, "there is no token 'ac'");
  data = Toy({"ab"});
  AddToken(data, "ab", TokenKind::kNormal);
  expect(data, "tokens 256 and 257");
  AddToken(data = Toy({}), "a b", TokenKind::kNormal);
  expect(data, "byte-level alphabet");
  AddToken(data = Toy({}), "", TokenKind::kNormal);
  expect(data, "empty");
  AddToken(data = Toy({}), "", TokenKind::kControl);
  expect(data, "no spelling");
  AddToken(data = Toy({}), "\x1b[31m\xff", TokenKind::kNormal);
  expect(data, "\\x1b[31m\\xff");
  data = Toy({});
  data.stop_ids = {256};
  expect(data, "stop id 256");
  data = Toy({});
  data.pad_id = -2;
  expect(data, "padding id -2");
  data = Toy({});
  data.bos_id = 256;
  expect(data, "bos id 256");
  data = Toy({});
  data.kinds[3] = static_cast<TokenKind>(9);
  expect(data, "kind 9");
}

}  // namespace
}  // namespace glint::text
