#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "tests/grammar/schemas.h"
#include "tests/grammar/texts.h"
#include "text/byte_alphabet.h"

namespace glint::grammar {
namespace {

int32_t AnyAllowed(Matcher& matcher, const Vocabulary& vocabulary, std::mt19937_64& rng) {
  const auto mask = MaskOf(matcher, vocabulary);
  std::vector<int32_t> allowed;
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    if (Has(mask, id)) allowed.push_back(id);
  }
  return allowed.empty() ? -1 : allowed[rng() % allowed.size()];
}

// Whatever was accepted and taken back, forked or asked in between: the state is that of a matcher that was only given what is left.
TEST(Matcher, RollbackAndForkLeaveNoTrace) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  const auto vocabulary = SmallVocabulary();
  for (const Case& c : Cases()) {
    const auto grammar = Compile(c.schema);
    if (grammar == nullptr) continue;
    Matcher matcher(grammar);
    std::vector<int32_t> kept;
    for (int step = 0; step < 60; ++step) {
      if (rng() % 4 == 0) {
        const size_t n = rng() % (kept.size() + 1);
        matcher.Rollback(n);
        kept.resize(kept.size() - n);
      } else if (rng() % 6 == 0) {
        Matcher fork = matcher;
        for (int i = 0; i < 3; ++i) fork.Accept(AnyAllowed(fork, *vocabulary, rng));
        if (rng() % 2) fork.Rollback(fork.accepted() - kept.size()), matcher = fork;
      } else {
        const int32_t id = rng() % 3 ? AnyAllowed(matcher, *vocabulary, rng)
                                     : static_cast<int32_t>(rng() % vocabulary->size());
        if (matcher.Accept(id)) kept.push_back(id);
      }
      Matcher fresh(grammar);
      for (const int32_t id : kept) ASSERT_TRUE(fresh.Accept(id));
      ASSERT_EQ(matcher.accepted(), kept.size());
      ASSERT_EQ(matcher.IsStopped(), fresh.IsStopped());
      ASSERT_EQ(matcher.IsComplete(), fresh.IsComplete());
      ASSERT_EQ(matcher.ForcedBytes(), fresh.ForcedBytes());
      ASSERT_EQ(MaskOf(matcher, *vocabulary), MaskOf(fresh, *vocabulary)) << c.schema;
    }
  }
}

TEST(Matcher, NothingFollowsAStop) {
  const auto grammar = Compile(R"({"type":"boolean"})");
  const int32_t stop = SmallVocabulary()->stop_ids()[0];
  Matcher matcher(grammar);
  EXPECT_FALSE(matcher.Accept(stop));
  for (const char c : std::string("true")) ASSERT_TRUE(matcher.Accept(ByteToken(*SmallVocabulary(), c)));
  EXPECT_TRUE(matcher.IsComplete());
  EXPECT_TRUE(matcher.Accept(stop));
  EXPECT_TRUE(matcher.IsStopped());
  for (int32_t id = 0; id < SmallVocabulary()->size(); ++id) EXPECT_FALSE(matcher.Accept(id));
  EXPECT_EQ(MaskOf(matcher, *SmallVocabulary()), std::vector<uint64_t>(SmallVocabulary()->mask_words()));
  EXPECT_FALSE(matcher.Accept(-1));
  EXPECT_FALSE(matcher.Accept(SmallVocabulary()->size()));
}

TEST(Matcher, ForcedBytesAreForced) {
  const auto grammar = Compile(
      R"({"type":"object","properties":{"kind":{"const":"abcd"},"n":{"type":"integer"}},"required":["kind","n"],"additionalProperties":false})");
  Matcher matcher(grammar);
  EXPECT_EQ(matcher.ForcedBytes(), "");  // white space may come first
  for (const char c : std::string("{\"")) ASSERT_TRUE(matcher.Accept(ByteToken(*SmallVocabulary(), c)));
  EXPECT_EQ(matcher.ForcedBytes(), "kind\":");
  for (const char c : std::string("kind\":\"")) ASSERT_TRUE(matcher.Accept(ByteToken(*SmallVocabulary(), c)));
  EXPECT_EQ(matcher.ForcedBytes(), "abcd\",");
}

// One grammar, its cache empty, and several threads with matchers of their own: the masks of one thread alone.
TEST(Matcher, ThreadsShareAGrammar) {
  const Case& c = Cases()[37];
  const auto masks = [&](const std::shared_ptr<const Grammar>& grammar) {
    std::vector<std::vector<uint64_t>> all;
    for (const char* text : c.right) {
      Matcher matcher(grammar);
      for (const char byte : std::string(text)) {
        all.push_back(MaskOf(matcher, grammar->vocabulary()));
        if (!matcher.Accept(ByteToken(grammar->vocabulary(), byte))) break;
      }
    }
    return all;
  };
  const auto want = masks(Compile(c.schema));
  const auto grammar = Compile(c.schema);
  std::vector<std::vector<std::vector<uint64_t>>> got(4);
  std::vector<std::thread> threads;
  for (auto& g : got) threads.emplace_back([&] { g = masks(grammar); });
  for (auto& t : threads) t.join();
  for (const auto& g : got) EXPECT_EQ(g, want);
}

TEST(ApplyMask, LeavesWhatIsAllowed) {
  for (const size_t n : {1u, 63u, 64u, 65u, 130u, 200u}) {
    std::vector<uint64_t> mask((n + 63) / 64, 0);
    std::vector<float> logits(n + 3, 1.5f);
    for (size_t i = 0; i < n; i += 3) mask[i / 64] |= uint64_t{1} << (i % 64);
    ApplyMask(mask, logits);
    for (size_t i = 0; i < logits.size(); ++i)
      EXPECT_EQ(logits[i], i < n && i % 3 == 0 ? 1.5f : -std::numeric_limits<float>::infinity())
          << i << " of " << n;
  }
}

// Ids 0 to 255 are bytes.
Tokenizer WithMarks(bool all) {
  text::TokenizerData data;
  for (int byte = 0; byte < 256; ++byte)
    data.tokens.push_back(text::ToAlphabet(std::string(1, static_cast<char>(byte))));
  data.kinds.assign(256, text::TokenKind::kNormal);
  for (const char* mark :
       {"<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "<think>"}) {
    if (!all && std::string_view(mark) == "</arg_key>") continue;
    data.tokens.emplace_back(mark);
    data.kinds.push_back(text::TokenKind::kUserDefined);
  }
  data.tokens.emplace_back("<|observation|>");
  data.kinds.push_back(text::TokenKind::kControl);
  data.stop_ids = {static_cast<int32_t>(data.tokens.size() - 1)};
  return Tokenizer(*text::Tokenizer::Create(std::move(data)), nullptr);
}

// A call spelled with its marks, through the tokenizer; whether it is taken and complete.
bool Takes(const std::shared_ptr<const Grammar>& grammar, const Tokenizer& tokenizer,
           const std::string& text) {
  Matcher matcher(grammar);
  for (const int32_t id : tokenizer.Encode(text, true)) {
    const bool allowed = Has(MaskOf(matcher, grammar->vocabulary()), id);
    const bool accepted = matcher.Accept(id);
    EXPECT_EQ(allowed, accepted) << text << " at " << matcher.accepted();
    if (!accepted) return false;
  }
  return matcher.IsComplete();
}

TEST(ToolCalls, AreOfTheToolsGiven) {
  const Tokenizer tokenizer = WithMarks(true);
  const auto marks = GlmToolMarks(tokenizer);
  ASSERT_TRUE(marks.ok());
  EXPECT_FALSE(GlmToolMarks(WithMarks(false)).ok());
  const auto vocabulary = Vocabulary::Create(tokenizer);
  ASSERT_TRUE(vocabulary.ok());
  const auto weather = ParseJson(
      R"({"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer","minimum":1,"maximum":9},"unit":{"enum":["C","F"]},)"
      R"("where":{"type":"object","properties":{"x":{"type":"number"}},"required":["x"]},"zip":{"type":["string","null"],"maxLength":5}},"required":["city"]})",
      "tool");
  ASSERT_TRUE(weather.ok());
  const std::vector<ToolSchema> tools = {{"weather", &*weather}, {"weather_now", nullptr}};
  const auto one = Grammar::ToolCalls(*vocabulary, tools, *marks, 1);
  const auto two = Grammar::ToolCalls(*vocabulary, tools, *marks, 2);
  ASSERT_TRUE(one.ok() && two.ok()) << one.status().message();
  const auto argument = [](const std::string& key, const std::string& value) {
    return "<arg_key>" + key + "</arg_key><arg_value>" + value + "</arg_value>";
  };
  const auto call = [](const std::string& name, const std::string& arguments) {
    return "<tool_call>" + name + arguments + "</tool_call>";
  };
  const std::string city = argument("city", "K\xc3\xb6ln \"007\" <arg> \n");
  for (const std::string& right :
       {call("weather", city), call("weather_now", ""), call("weather", city + argument("days", "3")),
        call("weather", argument("city", "")),
        call("weather", city + argument("unit", "F") + argument("where", "{\"x\": 1.5}")),
        call("weather", city + argument("zip", "00712"))}) {
    EXPECT_TRUE(Takes(*one, tokenizer, right)) << right;
    EXPECT_TRUE(Takes(*two, tokenizer, right)) << right;
    EXPECT_TRUE(Takes(*two, tokenizer, right + call("weather_now", ""))) << right;
    EXPECT_FALSE(Takes(*one, tokenizer, right + right)) << right;
    EXPECT_FALSE(Takes(*two, tokenizer, right + right + right)) << right;
    EXPECT_FALSE(Takes(*two, tokenizer, " " + right)) << right;
    EXPECT_FALSE(Takes(*two, tokenizer, right + "x")) << right;
  }
  for (const std::string& wrong :
       {call("weather", ""), call("weather", argument("days", "3")), call("wether", city),
        call("weather_nov", ""), call("", ""), call("weather", city + argument("days", "10")),
        call("weather", city + argument("days", "\"3\"")), call("weather", city + city),
        call("weather", city + argument("unit", "K")), call("weather", argument("days", "3") + city),
        call("weather", city + argument("zip", "123456")), call("weather", city + argument("other", "1")),
        call("weather", argument("city", "<think>")), call("weather_now", city), std::string("weather"),
        std::string()}) {
    EXPECT_FALSE(Takes(*two, tokenizer, wrong)) << wrong;
  }
  // The closing mark's spelling, byte by byte, is not part of any value.
  Matcher matcher(*one);
  for (const int32_t id :
       tokenizer.Encode("<tool_call>weather<arg_key>city</arg_key><arg_value>a<</arg_valu", true))
    ASSERT_TRUE(matcher.Accept(id));
  ASSERT_TRUE(matcher.Accept('e'));
  EXPECT_FALSE(matcher.Accept('>'));
  EXPECT_TRUE(matcher.Accept('<'));
  const auto list = ParseJson(R"({"type":"array"})", "tool");
  const std::vector<ToolSchema> bad = {{"list", &*list}};
  EXPECT_FALSE(Grammar::ToolCalls(*vocabulary, bad, *marks, 1).ok());
  EXPECT_FALSE(Grammar::ToolCalls(*vocabulary, {}, *marks, 1).ok());
  EXPECT_FALSE(Grammar::ToolCalls(*vocabulary, tools, *marks, 0).ok());
}

TEST(Vocabulary, LeavesOutWhatIsNoText) {
  const Tokenizer tokenizer = WithMarks(true);
  const auto vocabulary = Vocabulary::Create(tokenizer);
  ASSERT_TRUE(vocabulary.ok());
  EXPECT_EQ((*vocabulary)->Bytes('a'), "a");
  for (int32_t id = 256; id < (*vocabulary)->size(); ++id) EXPECT_EQ((*vocabulary)->Bytes(id), "");
  EXPECT_FALSE(Vocabulary::Create({"a", "b"}, {}).ok());  // no token for most bytes
}

}  // namespace
}  // namespace glint::grammar
