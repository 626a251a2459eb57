// The state of a sequence moves as one: truncated, returned to a mark, cloned or cleared, it continues with the bits of a
// fresh run.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>

#include "plan/best.h"
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

// Rejected rows at every position of the block and of the pool, among them all rows of the last batch:
// where other engines kept some of what was rejected.
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
    std::vector<int32_t> best(wanted.size(), -7);
    batch.best = best.data();
    batch.usable_vocab = static_cast<int64_t>(vocab) / 2;
    const Status status = runner.backend().Run(plan, batch);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(logits == want);
    for (size_t i = 0; i < best.size(); ++i)
      EXPECT_EQ(best[i], plan::BestId(std::span(want).subspan(i * vocab, vocab / 2)));
    for (size_t i = 0; i < states.size(); ++i) {
      EXPECT_EQ(states[i]->position(), static_cast<int64_t>(prompts[i]) + rows[i]);
    }
  }
}

using Contents = std::vector<std::pair<plan::StatePart, std::vector<float>>>;

Contents TakeApart(const plan::SequenceState& state) {
  Contents contents;
  for (const auto& part : state.Parts(state.position(), state.mtp_position())) {
    contents.emplace_back(part, std::vector<float>(static_cast<size_t>(part.rows * part.width)));
    const Status status = state.Read(part, contents.back().second.data());
    EXPECT_TRUE(status.ok()) << status.message();
  }
  return contents;
}

// The parts depend on the tokens alone, hold no number that nobody wrote, and make a sequence that continues with the bits of
// a fresh run, in a memory of another capacity too; and it is as free to be cut back as the first.
TEST_P(State, TakenApartAndPutTogether) {
  SCOPED_TRACE(seed_);
  const int64_t block = model_.hp.block;
  const auto tokens = model_.Tokens(4 * block + 9);
  const Truth truth = Fresh(tokens);
  for (const int64_t at : {int64_t{0}, int64_t{1}, block - 1, block, block + 1, 3 * block + 5, 4 * block}) {
    SCOPED_TRACE(at);
    Contents contents;
    for (const int64_t chunk : {at, int64_t{1}, int64_t{7}}) {
      auto state = runner_->State();
      for (int64_t done = 0; done < at; done += chunk) {
        std::vector<float> final;
        const auto piece = std::span(tokens).subspan(static_cast<size_t>(done),
                                                     static_cast<size_t>(std::min(chunk, at - done)));
        runner_->Trunk(*state, piece, &final);
        runner_->Mtp(*state, piece, final.data());
      }
      auto again = TakeApart(*state);
      for (const auto& [part, floats] : again) {
        EXPECT_GT(part.rows, 0);
        for (const float x : floats)
          ASSERT_FALSE(std::isnan(x)) << Name(part.kind) << " of layer " << part.layer;
      }
      if (!contents.empty()) {
        ASSERT_TRUE(again == contents) << "chunks of " << chunk;
      }
      contents = std::move(again);
    }
    for (const int64_t cut : {int64_t{0}, at % block}) {
      auto copy = runner_->State(4 * block + 9);
      runner_->Trunk(*copy, model_.Tokens(block + 3));  // is forgotten
      auto mark = copy->Mark();
      for (const auto& [part, floats] : contents) ASSERT_TRUE(copy->Write(part, floats.data()).ok());
      ASSERT_TRUE(copy->Place(at, at).ok());
      EXPECT_FALSE(copy->Return(**mark).ok());
      EXPECT_TRUE(TakeApart(*copy) == contents);
      EXPECT_TRUE(copy->Truncate(at - cut).ok());
      EXPECT_TRUE(copy->TruncateMtp(at - cut).ok());
      Continue(*copy, tokens, 6, truth);
      if (HasFatalFailure()) return;
    }
  }
}

// No part is there for nothing: without any one of them the continuation is another.
TEST_P(State, EveryPartMatters) {
  SCOPED_TRACE(seed_);
  const int64_t at = 185;  // an open block and, but for pools of one token, an open pool
  const auto tokens = model_.Tokens(at + 2);
  const Truth truth = Fresh(tokens);
  const auto vocab = static_cast<size_t>(model_.hp.vocab_size);
  auto state = runner_->State();
  std::vector<float> final;
  runner_->Trunk(*state, std::span(tokens).first(at), &final);
  runner_->Mtp(*state, std::span(tokens).first(at), final.data());
  const Contents contents = TakeApart(*state);
  std::set<plan::StatePart::Kind> kinds;
  int pooled_tried = 0, pooled_shown = 0;
  for (const auto& [left_out, unused] : contents) {
    kinds.insert(left_out.kind);
    using Kind = plan::StatePart::Kind;
    const bool raw = left_out.kind == Kind::kRawKey || left_out.kind == Kind::kRawGate;
    if (raw && at / model_.hp.index_kpool == (at + 2) / model_.hp.index_kpool)
      continue;                                       // no pool is completed
    if (raw && model_.hp.index_kpool == 1) continue;  // nothing is ever rebuilt
    if (left_out.kind == Kind::kPooledKey && at / model_.hp.index_kpool <= model_.hp.pools_kept())
      continue;  // no score
    auto copy = runner_->State();
    for (const auto& [part, floats] : contents) {
      ASSERT_TRUE(part == left_out || copy->Write(part, floats.data()).ok());
    }
    if (!copy->Place(at, at).ok()) continue;  // raw rows of the MTP block are missed at once
    const auto rest = std::span(tokens).subspan(at);
    const auto trunk = runner_->Trunk(*copy, rest, &final);
    const auto mtp = runner_->Mtp(*copy, rest, truth.final.data() + at * model_.hp.hidden);
    bool same =
        std::equal(trunk.begin(), trunk.end(),
                   truth.trunk.begin() + static_cast<std::ptrdiff_t>(at * vocab)) &&
        std::equal(mtp.begin(), mtp.end(), truth.mtp.begin() + static_cast<std::ptrdiff_t>(at * vocab));
    if (raw) {  // a pool made from nothing may happen not to be selected: its key shows
      for (const auto& [part, floats] : TakeApart(*copy)) {
        same &= part.kind != Kind::kPooledKey ||
                std::none_of(floats.begin(), floats.end(), [](float x) { return std::isnan(x); });
      }
    }
    if (left_out.kind == Kind::kPooledKey) {
      // Without keys the lowest pools are taken; one layer may have chosen them by chance.
      ++pooled_tried, pooled_shown += !same;
      continue;
    }
    EXPECT_FALSE(same) << Name(left_out.kind) << " of layer " << left_out.layer << " was left out";
  }
  EXPECT_TRUE(pooled_tried == 0 || pooled_shown > 0) << "pooled keys were left out";
  EXPECT_EQ(kinds.size(), static_cast<size_t>(plan::StatePart::Kind::kCount));
}

TEST_P(State, CopiesAnotherSequence) {
  SCOPED_TRACE(seed_);
  const auto tokens = model_.Tokens(70);
  const Truth truth = Fresh(tokens);
  auto state = runner_->State();
  std::vector<float> final;
  runner_->Trunk(*state, std::span(tokens).first(41), &final);
  runner_->Mtp(*state, std::span(tokens).first(41), final.data());
  auto mark = state->Mark();
  auto copy = runner_->State(70), small = runner_->State(40);
  runner_->Trunk(*copy, model_.Tokens(50));
  auto own = copy->Mark();
  ASSERT_TRUE(copy->CopyFrom(*state).ok());
  EXPECT_TRUE(TakeApart(*copy) == TakeApart(*state));
  EXPECT_EQ(copy->Return(**own).code(), Code::kBadInput);
  EXPECT_EQ(small->CopyFrom(*state).code(), Code::kNoRoom);
  EXPECT_EQ(small->position(), 0);
  Continue(*copy, tokens, 5, truth);
  Continue(*state, tokens, 29, truth);
  ASSERT_TRUE(copy->CopyFrom(*copy).ok());
  EXPECT_EQ(copy->position(), 70);
}

// Parts that no sequence has, and positions that the written parts do not make, are refused.
TEST_P(State, RefusesForeignParts) {
  using Kind = plan::StatePart::Kind;
  auto state = runner_->State(100);
  std::vector<float> room(1 << 16);
  const int64_t width = model_.hp.kv_lora_rank;
  for (const plan::StatePart& part :
       std::vector<plan::StatePart>{{Kind::kLatent, 0, 0, 1, width},  // a KDA layer
                                    {Kind::kLatent, 1, 0, 1, width + 1},
                                    {Kind::kLatent, 1, 0, 101, width},
                                    {Kind::kLatent, 1, 100, 1, width},
                                    {Kind::kLatent, 1, -1, 1, width},
                                    {Kind::kLatent, 1, 0, -1, width},
                                    {Kind::kLatent, 5, 0, 1, width},
                                    {Kind::kLatent, -1, 0, 1, width},
                                    {Kind::kConv, 0, 0, 60, 3 * model_.hp.kda_width()},
                                    {Kind::kCount, 0, 0, 1, 1}}) {
    EXPECT_EQ(state->Read(part, room.data()).code(), Code::kBadInput) << Name(part.kind);
    EXPECT_EQ(state->Write(part, room.data()).code(), Code::kBadInput) << Name(part.kind);
  }
  EXPECT_EQ(state->Place(101, 0).code(), Code::kBadInput);
  EXPECT_EQ(state->Place(-1, 0).code(), Code::kBadInput);
  EXPECT_EQ(state->Place(50, 101).code(), Code::kBadInput);
  if (model_.hp.index_kpool > 1) {
    EXPECT_EQ(state->Place(50, 41).code(), Code::kBadInput);  // no raw rows
  }
  EXPECT_EQ(state->position(), 0);
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
