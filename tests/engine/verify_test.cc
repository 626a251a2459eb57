// `glint verify` beneath the command, and sessions that check every pass.
#include "engine/verify.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/session_impl.h"
#include "glint/session.h"
#include "tests/engine/reference.h"

namespace glint::engine {
namespace {

using Levers = VerifyOptions::Levers;

TEST(Verify, PiecesOfThePrompt) {
  EXPECT_EQ(PromptPieces(10, 4, 16), (std::vector<int64_t>{4, 4, 2}));
  EXPECT_EQ(PromptPieces(10, 100, 16), (std::vector<int64_t>{10}));
  EXPECT_EQ(PromptPieces(1, 0, 16), (std::vector<int64_t>{1}));
  for (int64_t prompt = 1; prompt < 700; ++prompt) {
    for (const int64_t block : {1, 12, 16}) {
      const auto pieces = PromptPieces(prompt, 0, block);
      int64_t sum = 0;
      for (const int64_t rows : pieces) {
        EXPECT_GT(rows, 0);
        EXPECT_LE(rows, kChunkRows);
        sum += rows;
      }
      EXPECT_EQ(sum, prompt);
      if (prompt < 16 || block == 1) continue;
      // Some pass begins inside a block and has several rows.
      int64_t at = 0;
      bool inside = false;
      for (const int64_t rows : pieces) {
        inside = inside || (at % block != 0 && rows > 1);
        at += rows;
      }
      EXPECT_TRUE(inside) << prompt << " " << block;
    }
  }
}

std::vector<int32_t> Ids(int n) {
  std::vector<int32_t> ids;
  for (int i = 0; i < n; ++i) ids.push_back(i * 37 % 256);
  return ids;
}

class VerifyModels : public testing::TestWithParam<const char*> {
 protected:
  static Model Open(const char* name, ModelOptions options = {}) {
    options.threads = 2;
    options.mtp_if_any = true;
    return test::MustOpen(test::ModelPath(name, "hf"), options);
  }
};

TEST_P(VerifyModels, AreCleanInEveryWay) {
  const Model model = Open(GetParam());
  for (const Levers levers : {Levers::kPlan, Levers::kEach, Levers::kPairs}) {
    VerifyOptions options;
    options.levers = levers;
    // Pools are dropped from 20 (micro) and 36 (tile) tokens on.
    options.prompt = Ids(levers == Levers::kPairs ? 40 : 60);
    options.decode = 3;
    options.mtp = model.has_mtp();
    uint64_t last = 0;
    bool whole = false;
    options.progress = [&](uint64_t done, uint64_t total) {
      EXPECT_GE(done, last);
      EXPECT_LE(done, total);
      last = done;
      whole = done == total;
      return true;
    };
    const auto report = Verify(model, options);
    ASSERT_TRUE(report.ok()) << report.status().message();
    for (const auto& c : report->cases) {
      EXPECT_FALSE(c.difference) << testing::PrintToString(c.levers) << plan::Describe(*c.difference);
    }
    EXPECT_TRUE(report->clean());
    EXPECT_TRUE(whole);
    EXPECT_EQ(report->generated.size(), 3u);
    size_t available = 0;
    for (const plan::Lever& lever : model.impl()->backend->levers()) available += lever.available ? 1 : 0;
    if (levers == Levers::kPlan) {
      EXPECT_EQ(report->cases.size(), 1u);
    } else if (levers == Levers::kEach) {
      EXPECT_EQ(report->cases.size(), available);
    } else {
      EXPECT_GE(report->cases.size(), available);
      EXPECT_LE(report->cases.size(), available * (available - 1) / 2);
    }
    EXPECT_GT(report->tally.steps, 100u);
    EXPECT_GT(report->tally.values, report->tally.slots);
    EXPECT_GT(report->tally.state_values, 1000u);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, VerifyModels, testing::Values("micro", "tile"),
                         [](const auto& p) { return std::string(p.param); });

TEST(Verify, TheChoiceOfLeversIsRespected) {
  const std::string path = test::ModelPath("micro", "hf");
  VerifyOptions options;
  options.prompt = Ids(20);
  options.decode = 1;
  // No levers: nothing to verify, and it says so.
  auto report = Verify(test::MustOpen(path, {.threads = 2, .without = {"all"}}), options);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->tally.steps, 0u);
  EXPECT_TRUE(report->levers.empty());
  report = Verify(test::MustOpen(path, {.threads = 2, .with = {"kda.block"}, .without = {"all"}}), options);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->levers, std::vector<std::string>{"kda.block"});
  // What is named stays on in every case, what is excluded is not tried.
  options.levers = Levers::kEach;
  report =
      Verify(test::MustOpen(path, {.threads = 2, .with = {"kda.block"}, .without = {"threads"}}), options);
  ASSERT_TRUE(report.ok());
  ASSERT_GT(report->cases.size(), 2u);
  EXPECT_TRUE(report->cases[0].levers.empty());
  for (const auto& c : report->cases) {
    EXPECT_TRUE(std::find(c.levers.begin(), c.levers.end(), "threads") == c.levers.end());
    EXPECT_TRUE(std::find(c.levers.begin(), c.levers.end(), "kda.block") == c.levers.end());
  }
  EXPECT_TRUE(std::find(report->levers.begin(), report->levers.end(), "kda.block") != report->levers.end());
  EXPECT_TRUE(std::find(report->levers.begin(), report->levers.end(), "threads") == report->levers.end());
}

TEST(Verify, RefusesWhatMakesNoSense) {
  const Model model = test::MustOpen(test::ModelPath("micro", "hf"), {.threads = 1});
  const auto code = [&](std::vector<int32_t> prompt, int64_t decode, bool mtp) {
    VerifyOptions options;
    options.prompt = std::move(prompt);
    options.decode = decode;
    options.mtp = mtp;
    return Verify(model, options).status().code();
  };
  EXPECT_EQ(code({}, 1, false), Code::kBadInput);
  EXPECT_EQ(code({1, 100000}, 1, false), Code::kBadInput);
  EXPECT_EQ(code({-1}, 1, false), Code::kBadInput);
  EXPECT_EQ(code({1}, 1 << 30, false), Code::kBadInput);
  EXPECT_EQ(code({1}, 1, true), Code::kBadInput);  // opened without it
  VerifyOptions stopped;
  stopped.prompt = Ids(20);
  stopped.progress = [](uint64_t, uint64_t) { return false; };
  EXPECT_EQ(Verify(model, stopped).status().message(), "interrupted");
}

// A checked session gives the bits of any other, in every kind of call.
TEST(Verify, ACheckedSessionIsLikeAnother) {
  const Model model = test::MustOpen(test::ModelPath("micro", "hf"), {.threads = 2, .mtp = true});
  auto checked = Session::Create(model, {.context = 128, .mtp = true, .check = true});
  auto plain = Session::Create(model, {.context = 128, .mtp = true});
  ASSERT_TRUE(checked.ok() && plain.ok());
  EXPECT_GT(Session::MemoryNeeded(model, {.context = 128, .mtp = true, .check = true}),
            2 * Session::MemoryNeeded(model, {.context = 128, .mtp = true}));
  EXPECT_GT(checked->memory_bytes(), 2 * plain->memory_bytes());
  const auto ids = Ids(50);
  const auto vocab = static_cast<size_t>(model.vocab_size()), d = static_cast<size_t>(model.hidden_size());
  const auto append = [&](Session& s, size_t first, size_t count) {
    std::vector<float> logits(count * vocab), hidden(count * d), drafts(count * vocab);
    EXPECT_TRUE(
        s.AppendWithHidden(std::span(ids).subspan(first, count), LogitRows::kAll, logits, hidden).ok());
    std::vector<float> h(count * d);
    EXPECT_TRUE(s.AppendMtp(std::span(ids).subspan(first + 1, count), hidden, drafts, h).ok());
    logits.insert(logits.end(), drafts.begin(), drafts.end());
    return logits;
  };
  EXPECT_EQ(append(*checked, 0, 21), append(*plain, 0, 21));
  EXPECT_EQ(append(*checked, 21, 1), append(*plain, 21, 1));
  for (Session* s : {&*checked, &*plain}) ASSERT_TRUE(s->RewindTo(18).ok());
  auto fork = checked->Fork();
  ASSERT_TRUE(fork.ok());
  EXPECT_TRUE(fork->impl().verifier != nullptr);
  const auto want = append(*plain, 18, 30);
  EXPECT_EQ(append(*checked, 18, 30), want);
  EXPECT_EQ(append(*fork, 18, 30), want);
  EXPECT_GT(checked->impl().verifier->tally().steps, 400u);
}

TEST(Verify, AnInterruptInsideACheckedPassKeepsWhatIsDone) {
  const Model model = test::MustOpen(test::ModelPath("micro", "hf"), {.threads = 2});
  const int64_t context = kChunkRows + 100;
  auto session = Session::Create(model, {.context = context, .check = true});
  ASSERT_TRUE(session.ok());
  const auto ids = Ids(static_cast<int>(kChunkRows) + 44);
  int calls = 0;
  const auto status = session->Append(ids, LogitRows::kNone, {}, [&](uint64_t done, uint64_t) {
    if (done > 0) ++calls;
    return calls < 10;
  });
  EXPECT_EQ(status.message(), "interrupted");
  EXPECT_EQ(session->position(), kChunkRows);
  EXPECT_EQ(session->tokens().size(), static_cast<size_t>(kChunkRows));
  ASSERT_TRUE(session->Append(std::span(ids).subspan(kChunkRows), LogitRows::kNone, {}).ok());
  auto whole = Session::Create(model, {.context = context});
  std::vector<float> a(static_cast<size_t>(model.vocab_size())), b(a.size());
  const int32_t next = 7;
  ASSERT_TRUE(whole->Append(ids, LogitRows::kNone, {}).ok());
  ASSERT_TRUE(whole->Append({&next, 1}, LogitRows::kLast, a).ok());
  ASSERT_TRUE(session->Append({&next, 1}, LogitRows::kLast, b).ok());
  EXPECT_EQ(a, b);
}

}  // namespace
}  // namespace glint::engine
