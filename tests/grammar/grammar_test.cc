#include "grammar/grammar.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "tests/grammar/schemas.h"
#include "tests/grammar/texts.h"
#include "tests/text/referee.h"

namespace glint::grammar {
namespace {

TEST(Grammar, TakesWhatTheSchemaAllowsAndNothingElse) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.schema);
    const auto grammar = Compile(c.schema);
    if (grammar == nullptr) continue;
    for (const char* text : c.right) EXPECT_EQ(RefusedAt(grammar, text), std::nullopt) << text;
    for (const char* text : c.wrong) EXPECT_NE(RefusedAt(grammar, text), std::nullopt) << text;
  }
}

// Every document on the lists, every prefix of it: the mask is what trying all tokens says.
TEST(Mask, IsWhatAcceptSays) {
  for (const auto& vocabulary : {SmallVocabulary(), StoriesVocabulary()}) {
    for (const Case& c : Cases()) {
      SCOPED_TRACE(c.schema);
      const auto grammar = Compile(c.schema, vocabulary);
      if (grammar == nullptr) continue;
      const size_t documents = vocabulary == SmallVocabulary() ? c.right.size() : 1;
      for (size_t i = 0; i < documents; ++i) {
        Matcher matcher(grammar);
        const std::string text = c.right[i];
        for (size_t at = 0;; ++at) {
          const auto mask = MaskOf(matcher, *vocabulary);
          for (int32_t id = 0; id < vocabulary->size(); ++id) {
            const size_t before = matcher.accepted();
            const bool accepted = matcher.Accept(id);
            ASSERT_EQ(accepted, Has(mask, id))
                << id << " " << vocabulary->Bytes(id) << " after " << text.substr(0, at);
            if (accepted) matcher.Rollback(1);
            ASSERT_EQ(matcher.accepted(), before);
          }
          ASSERT_EQ(MaskOf(matcher, *vocabulary), mask) << "changed by trying";
          if (at == text.size()) break;
          ASSERT_TRUE(matcher.Accept(ByteToken(*vocabulary, text[at])));
        }
      }
    }
  }
}

std::string Request(const std::string& schema, const std::string& text) {
  return text::Hex("{\"schema\": " + schema + ", \"text\": \"" + text::Hex(text) + "\"}");
}

TEST(Referee, AgreesOnTheLists) {
  if (!text::HasReferee()) GTEST_SKIP() << text::NoReferee();
  std::vector<std::string> lines;
  std::vector<std::string> named;
  for (const Case& c : Cases()) {
    for (const char* t : c.right)
      lines.push_back(Request(c.schema, t)), named.push_back(std::string(c.schema) + " " + t);
  }
  const auto answers = text::AskReferee("../grammar/referee_schema.py", "", lines);
  ASSERT_TRUE(answers && answers->size() == lines.size());
  for (size_t i = 0; i < lines.size(); ++i) EXPECT_EQ((*answers)[i], "1") << named[i];
}

// Whatever is chosen under the mask, the text parses and is valid, says an implementation that nobody here wrote.
TEST(Referee, FindsEveryRandomTextValid) {
  if (!text::HasReferee()) GTEST_SKIP() << text::NoReferee();
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  std::vector<std::string> lines, named;
  size_t open = 0;
  for (const Case& c : Cases()) {
    for (const auto& vocabulary : {SmallVocabulary(), StoriesVocabulary()}) {
      const auto grammar = Compile(c.schema, vocabulary);
      if (grammar == nullptr) continue;
      for (int i = 0; i < 6; ++i) {
        const auto text = RandomText(grammar, rng, rng() % 40);
        if (!text) {
          ++open;
          continue;
        }
        lines.push_back(Request(c.schema, *text));
        named.push_back(std::string(c.schema) + " " + *text);
      }
    }
  }
  EXPECT_LT(open, lines.size() / 10) << "walks that did not end";
  const auto answers = text::AskReferee("../grammar/referee_schema.py", "", lines);
  ASSERT_TRUE(answers && answers->size() == lines.size());
  for (size_t i = 0; i < lines.size(); ++i) EXPECT_EQ((*answers)[i], "1") << named[i];
}

}  // namespace
}  // namespace glint::grammar
