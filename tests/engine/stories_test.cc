// The trained model: the original weights, where GLINT_STORIES_DIR names their folder, against what Hugging Face transformers
// measured with them; and the quantised model that comes with glint.
#include "tests/engine/stories.h"

#include "base/file.h"
#include "base/json.h"

namespace glint {
namespace {

using test::FromEnvironment;

std::string Data(const std::string& name) {
  auto text = ReadFile(std::string(GLINT_TEST_DATA) + "/stories/" + name);
  EXPECT_TRUE(text.ok()) << text.status().message();
  return text.ok() ? *text : "";
}

struct Greedy {
  std::string prompt, form, prompt_text, text;
  std::vector<int32_t> prompt_ids, ids;
};

struct Eval {
  double loss = 0, acceptance = 0;
  int64_t tokens = 0;
  size_t window = 0, stride = 0;
  std::vector<double> window_losses;
  std::vector<Greedy> greedy;
};

template <class T>
T Must(Result<T> value) {
  EXPECT_TRUE(value.ok()) << value.status().message();
  return value.ok() ? std::move(*value) : T{};
}

Eval ReadEval() {
  const auto file = ReadJson(std::string(GLINT_TEST_DATA) + "/stories/eval.json");
  EXPECT_TRUE(file.ok()) << file.status().message();
  Eval eval;
  if (!file.ok()) return eval;
  eval.loss = Must(file->Get<double>("perplexity.loss"));
  eval.tokens = Must(file->Get<int64_t>("perplexity.tokens"));
  eval.window = static_cast<size_t>(Must(file->Get<int64_t>("perplexity.window")));
  eval.stride = static_cast<size_t>(Must(file->Get<int64_t>("perplexity.stride")));
  eval.window_losses = Must(file->Get<std::vector<double>>("perplexity.window_losses"));
  eval.acceptance = Must(file->Get<double>("mtp.draft_equals_trunk_argmax"));
  for (const Json& g : file->root().Find("greedy")->items()) {
    const auto ids = [&](const char* key) {
      const auto wide = Must(g.Get<std::vector<int64_t>>(key));
      return std::vector<int32_t>(wide.begin(), wide.end());
    };
    eval.greedy.push_back({Must(g.Get<std::string>("prompt")), Must(g.Get<std::string>("form")),
                           Must(g.Get<std::string>("prompt_text")), Must(g.Get<std::string>("text")),
                           ids("prompt_ids"), ids("ids")});
  }
  EXPECT_EQ(eval.greedy.size(), 5u);
  return eval;
}

const std::string& Embedded() {
  static const std::string path = std::string(GLINT_SOURCE_DIR) + "/models/stories/stories.gguf";
  return path;
}

class OriginalStories : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = FromEnvironment("GLINT_STORIES_DIR");
    if (folder_.empty())
      GTEST_SKIP()
          << "needs the original weights, which are not in the repository: set GLINT_STORIES_DIR to their "
             "folder (docs/testing.md, \"The trained model\")";
  }
  std::string folder_;
};

TEST_F(OriginalStories, LossOnHeldOutText) {
  const Model model = test::MustOpen(folder_);
  const Eval eval = ReadEval();
  const auto text = ReadFile(folder_ + "/valid.txt");
  ASSERT_TRUE(text.ok());
  const auto ids = model.tokenizer().Encode(*text);
  ASSERT_EQ(static_cast<int64_t>(ids.size()), eval.tokens);
  const auto result = test::Loss(model, ids, eval.window, eval.stride);
  for (size_t i = 0; i < eval.window_losses.size(); ++i)
    EXPECT_NEAR(result.windows[i], eval.window_losses[i], 1e-3) << i;
  EXPECT_NEAR(result.loss, eval.loss, 1e-3 * eval.loss);
  printf("loss %.5f over %lld tokens; transformers %.5f\n", result.loss,
         static_cast<long long>(result.scored), eval.loss);
}

// Equal for all 64 tokens, or to the first step whose two best logits lie within what float32 engines differ by.
TEST_F(OriginalStories, GreedyTexts) {
  const Model model = test::MustOpen(folder_);
  for (const auto& g : ReadEval().greedy) {
    EXPECT_EQ(model.tokenizer().Encode(g.prompt_text, true), g.prompt_ids);
    const auto result = test::Greedy(model, g.prompt_ids, g.ids.size());
    const auto [got, want] = std::mismatch(result.ids.begin(), result.ids.end(), g.ids.begin());
    const auto equal = static_cast<size_t>(want - g.ids.begin());
    if (equal < g.ids.size()) {
      EXPECT_GE(equal, 32u) << g.prompt;
      EXPECT_LT(result.gaps[equal], 1e-3f) << g.prompt << ": no near-tie at token " << equal;
    }
    EXPECT_EQ(*model.tokenizer().Decode(g.ids), g.text);
  }
}

// Training measured 24,528 positions; these are the first half of them.
TEST_F(OriginalStories, DraftsAreAcceptedAsOftenAsInTraining) {
  const Model model = test::MustOpen(folder_, {.mtp = true});
  const auto text = ReadFile(folder_ + "/valid.txt");
  ASSERT_TRUE(text.ok());
  const auto ids = model.tokenizer().Encode(*text);
  double sum = 0;
  for (size_t window = 0; window < 12; ++window) {
    sum += test::DraftAcceptance(model, std::span(ids).subspan(window * 1024, 1024));
  }
  EXPECT_NEAR(sum / 12, ReadEval().acceptance, 0.03);
}

class EmbeddedStories : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(Embedded())) GTEST_SKIP() << "models/stories/stories.gguf is not there";
  }
};

// models/stories/README.md: quantising costs under half a per cent of loss on the whole text. These are two windows.
TEST_F(EmbeddedStories, LossStaysNearTheOriginal) {
  const Model model = test::MustOpen(Embedded());
  const Eval eval = ReadEval();
  const auto ids = model.tokenizer().Encode(Data("valid_start.txt"));
  ASSERT_GE(ids.size(), eval.window + eval.stride);
  const auto result = test::Loss(model, ids, eval.window, eval.stride, 2);
  for (size_t i = 0; i < 2; ++i)
    EXPECT_NEAR(result.windows[i], eval.window_losses[i], 0.01 * eval.window_losses[i]) << i;
}

// The original weights' drafts are accepted at 0.477 of these positions, which are harder than the rest of the text.
TEST_F(EmbeddedStories, DraftsAreAccepted) {
  const Model model = test::MustOpen(Embedded(), {.mtp = true});
  const auto ids = model.tokenizer().Encode(Data("valid_start.txt"));
  EXPECT_NEAR(test::DraftAcceptance(model, std::span(ids).first(1024)), 0.477, 0.03);
}

// The ids on every machine. The quantised model tells another story than the original after 15 tokens; up to there the ids
// are transformers'.
TEST_F(EmbeddedStories, GreedyTextStaysTheSame) {
  const Model model = test::MustOpen(Embedded());
  const Greedy king = ReadEval().greedy[4];
  const std::vector<int32_t> want{259, 2685, 292,  410,  308, 835,  259, 1146, 546, 1165, 78,   85,
                                  621, 13,   384,  2685, 308, 835,  546, 1165, 78,  85,   621,  11,
                                  269, 259,  2685, 308,  259, 1070, 83,  3012, 292, 382,  11,   889,
                                  348, 308,  259,  2685, 292, 259,  896, 11,   269, 259,  2685, 308};
  EXPECT_TRUE(std::equal(want.begin(), want.begin() + 15, king.ids.begin()));
  EXPECT_EQ(model.tokenizer().Encode(king.prompt_text), king.prompt_ids);
  EXPECT_EQ(test::Greedy(model, king.prompt_ids, want.size()).ids, want);
  EXPECT_EQ(
      test::Greedy(test::MustOpen(Embedded(), {.threads = 1, .without = {"all"}}), king.prompt_ids, 8).ids,
      std::vector<int32_t>(want.begin(), want.begin() + 8));
}

// What the program relies on when nothing is said about sampling.
TEST_F(EmbeddedStories, SuggestsItsSampling) {
  const Model model = test::MustOpen(Embedded(), {.mtp = true});
  EXPECT_FLOAT_EQ(model.suggested_sampling().temperature.value_or(0), 0.7f);
  EXPECT_FLOAT_EQ(model.suggested_sampling().top_p.value_or(0), 0.9f);
  EXPECT_TRUE(model.has_mtp());
  EXPECT_EQ(model.usable_vocab(), 4096);
  const Message request{.role = Role::kUser, .content = "Tell me a story about a fox."};
  const auto ids = model.tokenizer().EncodeChat({&request, 1});
  ASSERT_TRUE(ids.ok()) << ids.status().message();
  EXPECT_EQ(std::vector<int32_t>(ids->begin(), ids->begin() + 3), (std::vector<int32_t>{4080, 4082, 4085}));
  const auto stops = model.tokenizer().stop_ids();
  EXPECT_NE(std::find(stops.begin(), stops.end(), 4078), stops.end());
}

}  // namespace
}  // namespace glint
