#include "cli/conversation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "text/tokenizer.h"

namespace glint::cli {
namespace {

// GPT-2's alphabet: bytes that are printable in Latin-1 stand for themselves, the others follow from U+0100.
std::string Letter(int byte) {
  const auto printable = [](int b) { return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174; };
  int code = byte;
  if (!printable(byte)) {
    code = 256;
    for (int b = 0; b < byte; ++b) code += !printable(b);
  }
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
}

// Bytes 0 to 255, "ab" = 256, then control tokens <u> = 257, <a> = 258.
Tokenizer TestTokenizer() {
  text::TokenizerData data;
  for (int byte = 0; byte < 256; ++byte) data.tokens.push_back(Letter(byte));
  data.tokens.push_back("ab");
  data.merges.emplace_back("a", "b");
  data.kinds.assign(257, text::TokenKind::kNormal);
  for (const char* name : {"<u>", "<a>"}) {
    data.tokens.emplace_back(name);
    data.kinds.push_back(text::TokenKind::kControl);
  }
  auto tokenizer = text::Tokenizer::Create(std::move(data));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return Tokenizer(*tokenizer, nullptr);
}

const std::vector<ChatPart> kParts{{"<u>", true},  {"hi", false}, {"<a>", true},
                                   {"abc", false}, {"<u>", true}, {"x", false}};

TEST(Conversation, ANewSessionGetsEverything) {
  const auto way = PlanContinuation(TestTokenizer(), kParts, {}, std::vector<int64_t>{0});
  ASSERT_TRUE(way.ok());
  EXPECT_EQ(way->keep, 0);
  EXPECT_EQ(way->append, (std::vector<int32_t>{257, 'h', 'i', 258, 256, 'c', 257, 'x'}));
}

TEST(Conversation, APrefixIsExtended) {
  const std::vector<int32_t> session{257, 'h', 'i', 258, 256, 'c'};
  const auto way = PlanContinuation(TestTokenizer(), kParts, session, {});
  ASSERT_TRUE(way.ok());
  EXPECT_EQ(way->keep, 6);
  EXPECT_EQ(way->append, (std::vector<int32_t>{257, 'x'}));
}

// The model wrote "abc" as a, b, c: other ids, the same text. The state is right for it.
TEST(Conversation, AnotherSpellingOfTheSameTextIsExtended) {
  const std::vector<int32_t> session{257, 'h', 'i', 258, 'a', 'b', 'c'};
  const auto way = PlanContinuation(TestTokenizer(), kParts, session, std::vector<int64_t>{0, 4});
  ASSERT_TRUE(way.ok());
  EXPECT_EQ(way->keep, 7);
  EXPECT_EQ(way->append, (std::vector<int32_t>{257, 'x'}));
}

// It stopped inside "abc": the rest is not at a boundary of tokens, so the session goes back.
TEST(Conversation, AnUnfinishedSpellingIsNot) {
  const std::vector<int32_t> session{257, 'h', 'i', 258, 'a', 'b'};
  const auto way = PlanContinuation(TestTokenizer(), kParts, session, std::vector<int64_t>{0, 3, 4, 5});
  ASSERT_TRUE(way.ok());
  EXPECT_EQ(way->keep, 4);
  EXPECT_EQ(way->append, (std::vector<int32_t>{256, 'c', 257, 'x'}));
}

TEST(Conversation, GoesBackOnlyWhereItCan) {
  const std::vector<int32_t> session{257, 'h', 'i', 258, 'z', 'z'};
  for (const auto& [rewindable, keep] : std::vector<std::pair<std::vector<int64_t>, int64_t>>{
           {{}, 0}, {{0}, 0}, {{0, 5, 6}, 0}, {{0, 2, 5}, 2}, {{0, 2, 4, 6}, 4}}) {
    const auto way = PlanContinuation(TestTokenizer(), kParts, session, rewindable);
    ASSERT_TRUE(way.ok());
    EXPECT_EQ(way->keep, keep);
  }
}

// Asked again with nothing new, a token must still be appended, or there were no logits to sample from.
TEST(Conversation, SomethingIsAlwaysAppended) {
  const std::vector<int32_t> session{257, 'h', 'i', 258, 256, 'c', 257, 'x'};
  for (const std::vector<int64_t>& rewindable : {std::vector<int64_t>{}, {0, 7, 8}, {8}}) {
    const auto way = PlanContinuation(TestTokenizer(), kParts, session, rewindable);
    ASSERT_TRUE(way.ok());
    EXPECT_FALSE(way->append.empty());
    EXPECT_LT(way->keep, 8);
  }
}

// Whatever the session holds: what is kept and what is appended spell the conversation.
TEST(Conversation, TheResultAlwaysSpellsTheConversation) {
  const Tokenizer tokenizer = TestTokenizer();
  std::string wanted;
  for (const ChatPart& part : kParts) wanted += part.text;
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  const std::vector<std::vector<int32_t>> spellings{{257, 'h', 'i', 258, 256, 'c', 257, 'x'},
                                                    {257, 'h', 'i', 258, 'a', 'b', 'c', 257, 'x'}};
  for (int repeat = 0; repeat < 2000; ++repeat) {
    std::vector<int32_t> session = spellings[rng() % 2];
    session.resize(rng() % (session.size() + 1));
    for (size_t i = rng() % 4; i > 0 && !session.empty(); --i) {
      if (rng() % 2)
        session[rng() % session.size()] = static_cast<int32_t>(rng() % 259);
      else
        session.push_back(static_cast<int32_t>(rng() % 259));
    }
    std::vector<int64_t> rewindable;
    for (size_t p = 0; p <= session.size(); ++p) {
      if (rng() % 2) rewindable.push_back(static_cast<int64_t>(p));
    }
    const auto way = PlanContinuation(tokenizer, kParts, session, rewindable);
    ASSERT_TRUE(way.ok());
    const bool extended = way->keep == static_cast<int64_t>(session.size());
    ASSERT_TRUE(way->keep == 0 || extended ||
                std::find(rewindable.begin(), rewindable.end(), way->keep) != rewindable.end());
    std::vector<int32_t> all(session.begin(), session.begin() + way->keep);
    all.insert(all.end(), way->append.begin(), way->append.end());
    ASSERT_EQ(tokenizer.Decode(all).value(), wanted);
    ASSERT_FALSE(way->append.empty());
  }
}

}  // namespace
}  // namespace glint::cli
