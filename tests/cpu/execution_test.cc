// A pass carried out step by step leaves the bits of Backend::Run, whatever else is in progress.
#include <gtest/gtest.h>

#include <random>

#include "tests/cpu/passes.h"

namespace glint::test {
namespace {

class ExecutionTest : public testing::TestWithParam<bool> {
 protected:
  ExecutionTest() {
    MakeSmall(model_, seed_, GetParam());
    runner_ = std::make_unique<Runner>(model_, Conditions{2, {}, true, false});
  }

  // One sequence, all rows wanted.
  struct Pass {
    std::vector<int32_t> tokens, wanted;
    plan::Segment segment;
    std::vector<float> logits, final, hidden;
    plan::Batch batch;
  };
  std::unique_ptr<Pass> Make(plan::SequenceState& state, std::vector<int32_t> tokens,
                             plan::Pass kind = plan::Pass::kTrunk, std::vector<float> hidden = {}) {
    auto p = std::make_unique<Pass>();
    p->tokens = std::move(tokens);
    p->hidden = std::move(hidden);
    const size_t rows = p->tokens.size();
    for (size_t i = 0; i < rows; ++i) p->wanted.push_back(static_cast<int32_t>(i));
    p->segment = {&state, kind == plan::Pass::kTrunk ? state.position() : state.mtp_position(), 0,
                  static_cast<int>(rows)};
    p->logits.assign(rows * static_cast<size_t>(model_.hp.vocab_size), NAN);
    p->final.assign(rows * static_cast<size_t>(model_.hp.hidden), NAN);
    p->batch = {p->tokens, {&p->segment, 1}, p->hidden.empty() ? nullptr : p->hidden.data(),
                p->wanted, p->logits.data(), p->final.data()};
    return p;
  }
  std::unique_ptr<plan::Execution> Begin(const plan::Plan& plan, const plan::Batch& batch) {
    auto e = runner_->backend().Begin(plan, batch);
    EXPECT_TRUE(e.ok()) << e.status().message();
    return std::move(*e);
  }

  const uint64_t seed_ = std::random_device{}();
  SmallModel model_;
  std::unique_ptr<Runner> runner_;
};

INSTANTIATE_TEST_SUITE_P(Weights, ExecutionTest, testing::Bool(),
                         [](const auto& p) { return std::string(p.param ? "Q8" : "F32"); });

TEST_P(ExecutionTest, TwoInterleavedPassesHaveTheBitsOfRun) {
  SCOPED_TRACE(seed_);
  auto& backend = runner_->backend();
  auto a = runner_->State(), b = runner_->State(), want_a = runner_->State(), want_b = runner_->State();
  for (const auto& [rows_a, rows_b] : {std::pair{7, 21}, {1, 1}, {18, 3}}) {
    const auto plan_a = runner_->Plan(plan::Pass::kTrunk, rows_a),
               plan_b = runner_->Plan(plan::Pass::kTrunk, rows_b);
    const auto tokens_a = model_.Tokens(rows_a), tokens_b = model_.Tokens(rows_b);
    const auto pass_a = Make(*a, tokens_a), pass_b = Make(*b, tokens_b);
    const auto run_a = Begin(plan_a, pass_a->batch), run_b = Begin(plan_b, pass_b->batch);
    size_t at_b = 0;
    for (size_t at_a = 0; at_a < plan_a.steps.size(); ++at_a) {
      ASSERT_TRUE(run_a->RunStep(at_a).ok());
      for (; at_b * plan_a.steps.size() < (at_a + 1) * plan_b.steps.size(); ++at_b)
        ASSERT_TRUE(run_b->RunStep(at_b).ok());
    }
    const int64_t before = a->position();
    ASSERT_TRUE(run_a->Finish().ok() && run_b->Finish().ok());
    EXPECT_EQ(a->position(), before + rows_a);

    const auto ref_a = Make(*want_a, tokens_a), ref_b = Make(*want_b, tokens_b);
    ASSERT_TRUE(backend.Run(plan_a, ref_a->batch).ok() && backend.Run(plan_b, ref_b->batch).ok());
    EXPECT_TRUE(pass_a->logits == ref_a->logits && pass_a->final == ref_a->final);
    EXPECT_TRUE(pass_b->logits == ref_b->logits && pass_b->final == ref_b->final);

    // The MTP block over the same rows.
    const auto mtp_plan = runner_->Plan(plan::Pass::kMtp, rows_a);
    const auto mtp = Make(*a, tokens_a, plan::Pass::kMtp, pass_a->final);
    const auto want = Make(*want_a, tokens_a, plan::Pass::kMtp, pass_a->final);
    const auto run = Begin(mtp_plan, mtp->batch);
    for (size_t i = 0; i < mtp_plan.steps.size(); ++i) ASSERT_TRUE(run->RunStep(i).ok());
    ASSERT_TRUE(run->Finish().ok());
    ASSERT_TRUE(backend.Run(mtp_plan, want->batch).ok());
    EXPECT_TRUE(mtp->logits == want->logits);
    EXPECT_EQ(a->mtp_position(), want_a->mtp_position());
  }
}

TEST_P(ExecutionTest, SlotsAreReadWrittenAndCopied) {
  SCOPED_TRACE(seed_);
  auto a = runner_->State(), b = runner_->State();
  const auto tokens = model_.Tokens(5);
  const auto plan = runner_->Plan(plan::Pass::kTrunk, 5);
  const auto pass_a = Make(*a, tokens), pass_b = Make(*b, tokens);
  const auto from = Begin(plan, pass_a->batch), to = Begin(plan, pass_b->batch);
  ASSERT_TRUE(from->RunStep(0).ok());  // embed
  const auto floats = static_cast<size_t>(5 * plan::Width(plan::Slot::kStreams, model_.hp));
  std::vector<float> want(floats), got(floats, NAN);
  ASSERT_TRUE(from->Read(plan::Slot::kStreams, want.data()).ok());
  ASSERT_TRUE(to->CopySlot(*from, plan::Slot::kStreams).ok());
  ASSERT_TRUE(to->Read(plan::Slot::kStreams, got.data()).ok());
  EXPECT_EQ(got, want);
  // A run that starts from what was written ends as one that computed it.
  for (float& x : want) x = -x;
  ASSERT_TRUE(from->Write(plan::Slot::kStreams, want.data()).ok());
  ASSERT_TRUE(to->CopySlot(*from, plan::Slot::kStreams).ok());
  for (size_t i = 1; i < plan.steps.size(); ++i) ASSERT_TRUE(from->RunStep(i).ok() && to->RunStep(i).ok());
  EXPECT_FALSE(std::isnan(pass_a->logits[0]));
  EXPECT_TRUE(pass_a->logits == pass_b->logits);
  // Logits are the caller's memory: the wanted rows.
  got.resize(pass_a->logits.size());
  ASSERT_TRUE(to->Read(plan::Slot::kLogits, got.data()).ok());
  EXPECT_EQ(got, pass_b->logits);
  // The MTP block's slot, and steps that are not there.
  EXPECT_EQ(to->Read(plan::Slot::kResidual, got.data()).code(), Code::kInternal);
  EXPECT_EQ(to->RunStep(plan.steps.size()).code(), Code::kInternal);
  const auto shorter = Make(*b, model_.Tokens(4));
  EXPECT_EQ(Begin(plan, shorter->batch)->CopySlot(*from, plan::Slot::kStreams).code(), Code::kInternal);
  EXPECT_EQ(a->position(), 0);  // nobody finished
}

}  // namespace
}  // namespace glint::test
