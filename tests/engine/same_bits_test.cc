// Promise 2 of docs/design.md: the bits of the logits depend on the tokens alone, not on threads, cuts of the prompt or bitwise levers.
#include <algorithm>
#include <cmath>

#include "cpu/backend.h"
#include "engine/session_impl.h"
#include "glint/session.h"
#include "tests/engine/reference.h"
#include "tests/support/sanitizers.h"

namespace glint {
namespace {

struct Outputs {
  std::vector<float> logits, mtp_logits, mtp_hidden;
  bool operator==(const Outputs& o) const {
    const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
      return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
    };
    return same(logits, o.logits) && same(mtp_logits, o.mtp_logits) && same(mtp_hidden, o.mtp_hidden);
  }
};

// All rows' logits, trunk and MTP block, with `ids` cut into parts of `chunk` tokens.
Outputs RunAll(const std::string& path, ModelOptions options, std::span<const int32_t> ids, size_t chunk) {
  options.mtp = true;
  const Model model = test::MustOpen(path, options);
  auto session = Session::Create(model, {.context = static_cast<int64_t>(ids.size()), .mtp = true});
  EXPECT_TRUE(session.ok()) << session.status().message();
  const auto vocab = static_cast<size_t>(model.vocab_size()),
             width = static_cast<size_t>(model.hidden_size());
  Outputs out{std::vector<float>(ids.size() * vocab, NAN), std::vector<float>((ids.size() - 1) * vocab, NAN),
              std::vector<float>((ids.size() - 1) * width, NAN)};
  std::vector<float> hidden(ids.size() * width, NAN);
  for (size_t at = 0; at < ids.size(); at += chunk) {
    const size_t n = std::min(chunk, ids.size() - at);
    const auto status = session->AppendWithHidden(ids.subspan(at, n), LogitRows::kAll,
                                                  std::span(out.logits).subspan(at * vocab, n * vocab),
                                                  std::span(hidden).subspan(at * width, n * width));
    EXPECT_TRUE(status.ok()) << status.message();
    const size_t rows = std::min(n, ids.size() - 1 - at);  // the last token has no next one
    const auto mtp =
        session->AppendMtp(ids.subspan(at + 1, rows), std::span(hidden).subspan(at * width, rows * width),
                           std::span(out.mtp_logits).subspan(at * vocab, rows * vocab),
                           std::span(out.mtp_hidden).subspan(at * width, rows * width));
    EXPECT_TRUE(mtp.ok()) << mtp.message();
  }
  return out;
}

struct Subject {
  std::string name, path;
  std::vector<int32_t> ids;
};

std::vector<Subject> Subjects() {
  std::vector<Subject> subjects;
  subjects.push_back({"micro", test::HfDirectory("micro"), test::Reference("micro").Ints("p200.ids")});
  const std::string stories = std::string(GLINT_SOURCE_DIR) + "/models/stories/stories.gguf";
  if (std::filesystem::exists(stories) && !test::kThreadSanitizer) {
    // Long enough that the indexer leaves pools out (from 260 tokens on) and that a prompt takes two passes.
    const Model model = test::MustOpen(stories);
    std::string text;
    for (int i = 0; i < 14; ++i) {
      text += "Once upon a time there was a fox who lived in a wood with " + std::to_string(i) +
              " hens, and the old king said: ";
    }
    auto ids = model.tokenizer().Encode(text);
    ids.resize(std::min<size_t>(ids.size(), 300));
    subjects.push_back({"stories", stories, ids});
  }
  return subjects;
}

TEST(SameBits, ThreadsAndCuts) {
  for (const auto& subject : Subjects()) {
    const auto want =
        RunAll(subject.path, {.threads = 1, .without = {"all"}}, subject.ids, subject.ids.size());
    EXPECT_TRUE(std::none_of(want.logits.begin(), want.logits.end(), [](float x) { return std::isnan(x); }));
    for (const int threads : {1, 2, 4}) {
      for (const size_t chunk : {size_t{1}, size_t{5}, size_t{16}, size_t{37}, subject.ids.size()}) {
        if (test::kAnySanitizer && (threads == 1 || chunk == 1 || chunk == 16)) continue;
        EXPECT_TRUE(RunAll(subject.path, {.threads = threads}, subject.ids, chunk) == want)
            << subject.name << ": " << threads << " threads, parts of " << chunk;
      }
    }
  }
}

TEST(SameBits, EveryBitwiseLeverOnAndOff) {
  for (const auto& subject : Subjects()) {
    // The larger model takes the shorter prompt: its canonical passes are slow.
    const bool small = subject.name == "micro";
    const auto ids = std::span(subject.ids).first(small ? 100 : 40);
    const auto want = RunAll(subject.path, {.threads = 2, .without = {"all"}}, ids, 37);
    int levers = 0;
    for (const auto& lever : cpu::Levers()) {
      if (!lever.bitwise || !lever.available) continue;
      ++levers;
      const std::string name(lever.name);
      for (const size_t chunk : {size_t{1}, size_t{37}, ids.size()}) {
        if (!small && chunk == 37) continue;
        EXPECT_TRUE(RunAll(subject.path, {.threads = 2, .with = {name}, .without = {"all"}}, ids, chunk) ==
                    want)
            << subject.name << ": " << name << " alone, parts of " << chunk;
      }
      EXPECT_TRUE(RunAll(subject.path, {.threads = 2, .without = {name}}, ids, 37) == want)
          << subject.name << ": without " << name;
    }
    EXPECT_GE(levers, 3);
  }
}

// The switch does something: a lever that is on stands in the plan, one that is off does not.
TEST(SameBits, SwitchesReachThePlan) {
  const auto uses = [](const ModelOptions& options, std::string_view name, int rows) {
    const Model model = test::MustOpen(test::HfDirectory("micro"), options);
    const std::lock_guard lock(model.impl()->mutex);
    const auto plan = model.impl()->PlanFor(plan::Pass::kTrunk, rows, false);
    EXPECT_TRUE(plan.ok());
    return std::any_of((*plan)->levers.begin(), (*plan)->levers.end(),
                       [&](const auto* l) { return l->name == name; });
  };
  for (const auto& lever : cpu::Levers()) {
    if (!lever.available) continue;
    const std::string name(lever.name);
    const int rows = std::max(lever.min_rows, 1);
    EXPECT_TRUE(uses({.threads = 2, .with = {name}, .without = {"all"}}, name, rows)) << name;
    EXPECT_FALSE(uses({.threads = 2, .without = {name}}, name, rows)) << name;
    EXPECT_FALSE(uses({.threads = 2, .without = {"all"}}, name, rows)) << name;
  }
}

}  // namespace
}  // namespace glint
