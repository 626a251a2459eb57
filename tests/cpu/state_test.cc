// The state of a sequence moves as one: truncated, returned to a mark, cloned or cleared, it continues with the bits of a
// fresh run.
#include <gtest/gtest.h>

#include <random>

#include "tests/cpu/passes.h"

namespace glint::test {
namespace {

class State : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    MakeSmall(model_, seed_, false, GetParam());
    runner_ = std::make_unique<Runner>(model_, Conditions{1, {}, true, false});
  }

  // What a fresh sequence gives for the tokens: logits of trunk and MTP rows, all in one pass each.
  struct Truth {
    std::vector<float> trunk, final, mtp;
  };
  Truth Fresh(std::span<const int32_t> tokens) {
    auto state = runner_->State();
    Truth t;
    t.trunk = runner_->Trunk(*state, tokens, &t.final);
    t.mtp = runner_->Mtp(*state, tokens, t.final.data());
    return t;
  }

  // Feeds tokens[state's position ...] in steps of `chunk` and compares with the truth.
  void Continue(plan::SequenceState& state, const std::vector<int32_t>& tokens, size_t chunk,
                const Truth& truth) {
    const auto vocab = static_cast<size_t>(model_.hp.vocab_size), d = static_cast<size_t>(model_.hp.hidden);
    while (static_cast<size_t>(state.position()) < tokens.size()) {
      const auto at = static_cast<size_t>(state.position());
      const auto piece = std::span(tokens).subspan(at, std::min(chunk, tokens.size() - at));
      const auto logits = runner_->Trunk(state, piece);
      ASSERT_TRUE(std::equal(logits.begin(), logits.end(),
                             truth.trunk.begin() + static_cast<std::ptrdiff_t>(at * vocab)))
          << "trunk from position " << at;
    }
    while (static_cast<size_t>(state.mtp_position()) < tokens.size()) {
      const auto at = static_cast<size_t>(state.mtp_position());
      const auto piece = std::span(tokens).subspan(at, std::min(chunk, tokens.size() - at));
      const auto logits = runner_->Mtp(state, piece, truth.final.data() + at * d);
      ASSERT_TRUE(std::equal(logits.begin(), logits.end(),
                             truth.mtp.begin() + static_cast<std::ptrdiff_t>(at * vocab)))
          << "mtp from position " << at;
    }
  }

  const uint64_t seed_ = std::random_device{}();
  SmallModel model_;
  std::unique_ptr<Runner> runner_;
};

INSTANTIATE_TEST_SUITE_P(Pools, State, testing::Values(1, 3, 4, 8, 20),
                         [](const auto& p) { return "Pool" + std::to_string(p.param); });

// Rejected rows at every position of the block and of the pool, among them all rows of the last batch (bugs B04, B05, B14 of
// other engines).
TEST_P(State, TruncatedItContinuesAsAFreshRun) {
  SCOPED_TRACE(seed_);
  const auto block = static_cast<size_t>(model_.hp.block);
  for (const size_t prompt : {size_t{0}, block, 3 * block}) {
    const auto tokens = model_.Tokens(static_cast<int64_t>(prompt + 2 * block));
    const Truth truth = Fresh(tokens);
    for (size_t keep = 0; keep < block; ++keep) {
      for (const size_t wrong : {size_t{1}, size_t{3}, block - 1}) {
        if (keep + wrong >= block) continue;
        SCOPED_TRACE(testing::Message()
                     << "prompt " << prompt << ", kept " << keep << ", rejected " << wrong);
        auto state = runner_->State();
        std::vector<float> final;
        const auto kept = std::span(tokens).first(prompt + keep);
        if (!kept.empty()) {
          runner_->Trunk(*state, kept, &final);
          runner_->Mtp(*state, kept, final.data());
        }
        const auto rejected = model_.Tokens(static_cast<int64_t>(wrong));
        runner_->Trunk(*state, rejected, &final);
        runner_->Mtp(*state, rejected, final.data());
        const auto to = static_cast<int64_t>(kept.size());
        ASSERT_TRUE(state->Truncate(to).ok());
        ASSERT_TRUE(state->TruncateMtp(to).ok());
        ASSERT_EQ(state->position(), to);
        Continue(*state, tokens, wrong, truth);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(State, RefusesToTruncateWhereStateIsGone) {
  SCOPED_TRACE(seed_);
  const int64_t block = model_.hp.block;
  auto state = runner_->State();
  std::vector<float> final;
  const auto tokens = model_.Tokens(3 * block);
  runner_->Trunk(*state, tokens, &final);
  runner_->Mtp(*state, tokens, final.data());
  // At a boundary the block that has just ended is folded away.
  EXPECT_EQ(state->Truncate(3 * block - 1).code(), Code::kBadInput);
  EXPECT_EQ(state->Truncate(3 * block + 1).code(), Code::kBadInput);
  EXPECT_EQ(state->Truncate(-1).code(), Code::kBadInput);
  EXPECT_EQ(state->TruncateMtp(3 * block + 1).code(), Code::kBadInput);
  EXPECT_TRUE(state->Truncate(3 * block).ok());
  EXPECT_EQ(state->position(), 3 * block);
  // The MTP block has no recurrent state: every whole pool is a place to go back to, others while raw rows are kept.
  if (model_.hp.index_kpool > 1) {
    EXPECT_EQ(state->TruncateMtp(1).code(), Code::kBadInput);
  }
  EXPECT_TRUE(state->TruncateMtp(2 * block + 1).ok());
  EXPECT_TRUE(state->TruncateMtp(0).ok());
  EXPECT_EQ(state->mtp_position(), 0);
}

TEST_P(State, MtpBlockContinuesAfterAnyTruncation) {
  SCOPED_TRACE(seed_);
  const auto tokens = model_.Tokens(50);
  const Truth truth = Fresh(tokens);
  for (int64_t to = 0; to <= 50; ++to) {
    auto state = runner_->State();
    std::vector<float> final;
    runner_->Trunk(*state, tokens, &final);
    runner_->Mtp(*state, tokens, final.data());
    if (!state->TruncateMtp(to).ok()) {
      EXPECT_NE(to % model_.hp.index_kpool, 0);
      EXPECT_LT(to, 50 - model_.hp.block);
      continue;
    }
    Continue(*state, tokens, 7, truth);
    if (HasFatalFailure()) return;
  }
}

TEST_P(State, ReturnsToAMarkAcrossBlocks) {
  SCOPED_TRACE(seed_);
  const int64_t block = model_.hp.block;
  const auto tokens = model_.Tokens(4 * block);
  const Truth truth = Fresh(tokens);
  for (const int64_t at : {int64_t{0}, block - 1, block, block + 2, 2 * block + 5}) {
    SCOPED_TRACE(at);
    auto state = runner_->State();
    std::vector<float> final;
    if (at > 0) {
      const auto kept = std::span(tokens).first(static_cast<size_t>(at));
      runner_->Trunk(*state, kept, &final);
      runner_->Mtp(*state, kept, final.data());
    }
    auto mark = state->Mark();
    ASSERT_TRUE(mark.ok());
    EXPECT_EQ((*mark)->position(), at);
    for (const int64_t wrong : {int64_t{1}, block, 2 * block + 1}) {  // the mark serves more than once
      const auto rejected = model_.Tokens(wrong);
      runner_->Trunk(*state, rejected, &final);
      runner_->Mtp(*state, rejected, final.data());
      ASSERT_TRUE(state->Return(**mark).ok());
      ASSERT_EQ(state->position(), at);
    }
    // Marks of a sequence hold for its clone, and the two then live apart.
    auto clone = state->Clone();
    ASSERT_TRUE(clone.ok());
    const auto other = model_.Tokens(20);
    runner_->Trunk(**clone, other, &final);
    Continue(*state, tokens, 5, truth);
    ASSERT_TRUE((*clone)->Return(**mark).ok());
    Continue(**clone, tokens, 16, truth);
    if (HasFatalFailure()) return;
  }
}

TEST_P(State, RefusesMarksThatNoLongerHold) {
  SCOPED_TRACE(seed_);
  const int64_t block = model_.hp.block;
  auto state = runner_->State();
  runner_->Trunk(*state, model_.Tokens(block + 1));
  auto early = state->Mark();
  runner_->Trunk(*state, model_.Tokens(3));
  auto late = state->Mark();
  ASSERT_TRUE(early.ok() && late.ok());
  ASSERT_TRUE(state->Return(**early).ok());
  // The rows between the marks were forgotten, and may be written over.
  EXPECT_EQ(state->Return(**late).code(), Code::kBadInput);
  EXPECT_EQ(state->position(), block + 1);
  ASSERT_TRUE(state->Truncate(block).ok());
  EXPECT_EQ(state->Return(**early).code(), Code::kBadInput);

  auto stranger = runner_->State();
  auto foreign = stranger->Mark();
  ASSERT_TRUE(foreign.ok());
  EXPECT_EQ(state->Return(**foreign).code(), Code::kBadInput);
  auto clone = state->Clone();
  auto after = state->Mark();  // taken when the clone had parted
  ASSERT_TRUE(clone.ok() && after.ok());
  EXPECT_EQ((*clone)->Return(**after).code(), Code::kBadInput);
}

TEST_P(State, ClearedItIsEmpty) {
  SCOPED_TRACE(seed_);
  auto state = runner_->State();
  std::vector<float> final;
  const auto before = model_.Tokens(37);
  runner_->Trunk(*state, before, &final);
  runner_->Mtp(*state, before, final.data());
  auto mark = state->Mark();
  state->Clear();
  EXPECT_EQ(state->position(), 0);
  EXPECT_EQ(state->mtp_position(), 0);
  EXPECT_FALSE(state->Return(**mark).ok());
  const auto tokens = model_.Tokens(40);
  Continue(*state, tokens, 9, Fresh(tokens));
}

// Several sequences of different lengths in one batch, each row with the bits it has alone.
TEST_P(State, SequencesShareABatchWithoutTouchingOneAnother) {
  SCOPED_TRACE(seed_);
  for (const bool canonical : {true, false}) {
    Runner runner(model_, canonical ? Canonical() : Conditions{3, {}, true, false});
    const std::vector<size_t> prompts = {0, 17, 40};
    const std::vector<int> rows = {5, 1, 30};
    const auto vocab = static_cast<size_t>(model_.hp.vocab_size);
    std::vector<std::unique_ptr<plan::SequenceState>> states;
    std::vector<plan::Segment> segments;
    std::vector<int32_t> batch_tokens, wanted;
    std::vector<float> want;
    for (size_t i = 0; i < prompts.size(); ++i) {
      const auto tokens = model_.Tokens(static_cast<int64_t>(prompts[i]) + rows[i]);
      auto& state = states.emplace_back(runner.State());
      if (prompts[i] > 0) runner.Trunk(*state, std::span(tokens).first(prompts[i]));
      const auto first = static_cast<int>(batch_tokens.size());
      segments.push_back({state.get(), static_cast<int64_t>(prompts[i]), first, rows[i]});
      batch_tokens.insert(batch_tokens.end(), tokens.begin() + static_cast<std::ptrdiff_t>(prompts[i]),
                          tokens.end());
      wanted.push_back(first + rows[i] - 1);  // of each sequence the last row only
      const Truth alone = Fresh(tokens);
      want.insert(want.end(), alone.trunk.end() - static_cast<std::ptrdiff_t>(vocab), alone.trunk.end());
    }
    const auto plan = runner.Plan(plan::Pass::kTrunk, static_cast<int>(batch_tokens.size()) + 10);
    std::vector<float> logits(want.size());
    plan::Batch batch;
    batch.tokens = batch_tokens;
    batch.segments = segments;
    batch.wanted = wanted;
    batch.logits = logits.data();
    const Status status = runner.backend().Run(plan, batch);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(logits == want);
    for (size_t i = 0; i < states.size(); ++i) {
      EXPECT_EQ(states[i]->position(), static_cast<int64_t>(prompts[i]) + rows[i]);
    }
  }
}

TEST_P(State, RefusesWhatDoesNotFit) {
  auto state = runner_->State(20);
  runner_->Trunk(*state, model_.Tokens(19));
  const auto tokens = model_.Tokens(2);
  const auto plan = runner_->Plan(plan::Pass::kTrunk, 2);
  const plan::Segment segment{state.get(), 19, 0, 2};
  plan::Batch batch;
  batch.tokens = tokens;
  batch.segments = {&segment, 1};
  EXPECT_EQ(runner_->backend().Run(plan, batch).code(), Code::kNoRoom);
  EXPECT_EQ(state->position(), 19);
  EXPECT_EQ(runner_->backend().NewState(0, false).status().code(), Code::kBadInput);
  EXPECT_EQ(state->bytes(), runner_->backend().StateBytes(20, true));
}

}  // namespace
}  // namespace glint::test
