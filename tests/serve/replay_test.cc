#include "serve/replay.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "fuzz/small_tokenizer.h"
#include "glint/model.h"
#include "tests/engine/reference.h"

namespace glint::serve {
namespace {

using Ids = std::vector<int32_t>;

const Tokenizer& Words() {
  static const Model model =
      test::MustOpen(GLINT_SOURCE_DIR "/models/stories/stories.gguf", {.device = "cpu", .threads = 1});
  return model.tokenizer();
}

std::string Text(const Ids& ids) { return Words().Decode(ids).value(); }

// The same text, a letter a token.
Ids Letters(const std::string& text) {
  Ids ids;
  for (const char c : text)
    for (const int32_t id : Words().Encode(std::string(1, c))) ids.push_back(id);
  return ids;
}

Ids Join(std::initializer_list<Ids> parts) {
  Ids all;
  for (const Ids& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

Ids Mark(const char* spelling) {
  const int32_t id = Words().Find(spelling);
  EXPECT_GE(id, 0) << spelling;
  return {id};
}

TEST(WithHistory, TakesTheTokensOfTheSameText) {
  const Ids user = Mark("<|user|>"), assistant = Mark("<|assistant|>");
  const Ids hi = Words().Encode("hello there"), answer = Words().Encode("once upon a time"),
            letters = Letters("once upon a time");
  ASSERT_NE(answer, letters);
  const Ids history = Join({user, hi, assistant, letters});
  const Ids rest = Join({user, Words().Encode("and then"), assistant});
  EXPECT_EQ(WithHistory(Words(), history, Join({user, hi, assistant, answer, rest})), Join({history, rest}));
  // Also where the prompt ends with it, or before it.
  EXPECT_EQ(WithHistory(Words(), history, Join({user, hi, assistant, answer})), history);
  EXPECT_EQ(WithHistory(Words(), history, Join({user, hi, assistant})), Join({user, hi, assistant}));
  EXPECT_EQ(WithHistory(Words(), Ids(), answer), answer);
  EXPECT_EQ(WithHistory(Words(), history, Ids()), Ids());
}

TEST(WithHistory, StopsWhereTheTextsPart) {
  const Ids user = Mark("<|user|>"), assistant = Mark("<|assistant|>");
  const Ids letters = Letters("hello"), hello = Words().Encode("hello");
  ASSERT_NE(letters, hello);
  const Ids history = Join({user, letters, assistant, letters, user, letters});
  // Another word, a space, a beginning, another mark.
  for (const Ids& other :
       {Words().Encode("hallo"), Words().Encode("hello "), Words().Encode("hell"), Ids()}) {
    const Ids rendered = Join({user, hello, assistant, other, user, hello});
    EXPECT_EQ(WithHistory(Words(), history, rendered), Join({user, letters, assistant, other, user, hello}));
  }
  EXPECT_EQ(WithHistory(Words(), history, Join({user, hello, user, hello})),
            Join({user, letters, user, hello}));
}

// What a person spelled is no mark, and what was a mark is no text.
TEST(WithHistory, MarksAreNotSwappedWithTheirSpelling) {
  for (const char* spelling : {"<|user|>", "<|assistant|>"}) {
    const Ids mark = Mark(spelling), spelled = Words().Encode(spelling), a = Words().Encode("a");
    ASSERT_NE(mark, spelled);
    EXPECT_EQ(WithHistory(Words(), Join({a, mark, a}), Join({a, spelled, a})), Join({a, spelled, a}));
    EXPECT_EQ(WithHistory(Words(), Join({a, spelled, a}), Join({a, mark, a})), Join({a, mark, a}));
  }
}

// The marks of reasoning and calls are no control tokens in every vocabulary.
TEST(WithHistory, MarksThatAreNoControlTokensAreMarks) {
  const Tokenizer tokenizer(text::Tokenizer::Create(fuzz::SmallTokenizerData()).value(), nullptr);
  for (const char* spelling : {"<think>", "</think>", "<tool_call>", "<arg_key>"}) {
    const Ids mark{tokenizer.Find(spelling)}, spelled = tokenizer.Encode(spelling), a = tokenizer.Encode("a");
    ASSERT_FALSE(tokenizer.IsSpecial(mark[0]));
    ASSERT_GT(spelled.size(), 1u);
    EXPECT_EQ(WithHistory(tokenizer, Join({a, mark, a}), Join({a, spelled, a})), Join({a, spelled, a}));
    EXPECT_EQ(WithHistory(tokenizer, Join({a, spelled, a}), Join({a, mark, a})), Join({a, mark, a}));
  }
}

// Any two ways to cut a conversation, one of them changed somewhere: what it says stays what it was.
TEST(WithHistory, NeverChangesWhatIsSaid) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  const std::vector<std::string> words{"once", " upon",        " a",      " time",
                                       "!",    "\xe2\x98\x83", " little", "girl"};
  for (int repeat = 0; repeat < 300; ++repeat) {
    Ids history, rendered;
    for (int turn = 0; turn < 4; ++turn) {
      std::string text;
      for (size_t n = rng() % 6; n > 0; --n) text += words[rng() % words.size()];
      const Ids mark = Mark(turn % 2 == 0 ? "<|user|>" : "<|assistant|>");
      history = Join({history, mark, rng() % 2 == 0 ? Letters(text) : Words().Encode(text)});
      if (rng() % 8 == 0) text += "x";
      rendered = Join({rendered, mark, rng() % 2 == 0 ? Letters(text) : Words().Encode(text)});
    }
    const Ids both = WithHistory(Words(), history, rendered);
    EXPECT_EQ(Text(both), Text(rendered));
    const auto marks = [](Ids ids) {
      std::erase_if(ids, [](int32_t id) { return !Words().IsSpecial(id); });
      return ids;
    };
    EXPECT_EQ(marks(both), marks(rendered));
  }
}

}  // namespace
}  // namespace glint::serve
