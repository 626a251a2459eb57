// Pricing on a real backend: what is left out, done again, refused, and put back.
#include "plan/pricing.h"

#include <gtest/gtest.h>

#include <cstring>

#include "plan/edits.h"
#include "tests/cpu/passes.h"

namespace glint::test {
namespace {

using plan::Stage;

// Not poisoned: stages left out leave what is there, and that must be valid.
Conditions Plain(int threads = 2) { return {threads, {}, false, true}; }

struct Pass {
  std::vector<float> logits, after;
};

// A pass of `rows` tokens through an edited plan from a state of its own, and the logits of a next one through the whole plan: what the
// first left in the state shows there.
Pass RunEdited(const SmallModel& model, plan::Pass pass, int start, int rows,
               const std::function<plan::Plan(const plan::Plan&)>& edit) {
  Runner runner(model, Plain());
  auto state = runner.State();
  SmallModel tokens_of;
  tokens_of.hp = model.hp;
  tokens_of.rng.seed(3);
  const auto hidden = [&](int n) {
    std::vector<float> h(static_cast<size_t>(n) * static_cast<size_t>(model.hp.hidden));
    for (size_t i = 0; i < h.size(); ++i) h[i] = std::sin(static_cast<float>(i));
    return h;
  };
  const auto run = [&](const plan::Plan& plan, int n) {
    const auto tokens = tokens_of.Tokens(n);
    const auto h = hidden(n);
    const plan::Segment segment{state.get(),
                                pass == plan::Pass::kTrunk ? state->position() : state->mtp_position(), 0, n};
    std::vector<int32_t> wanted(tokens.size());
    for (int i = 0; i < n; ++i) wanted[static_cast<size_t>(i)] = i;
    std::vector<float> logits(tokens.size() * static_cast<size_t>(model.hp.vocab_size));
    plan::Batch batch;
    batch.tokens = tokens;
    batch.segments = {&segment, 1};
    batch.hidden_in = pass == plan::Pass::kMtp ? h.data() : nullptr;
    batch.wanted = wanted;
    batch.logits = logits.data();
    const Status status = runner.backend().Run(plan, batch);
    EXPECT_TRUE(status.ok()) << status.message();
    return logits;
  };
  if (start > 0) run(runner.Plan(pass, start), start);
  Pass result;
  result.logits = run(edit(runner.Plan(pass, rows)), rows);
  result.after = run(runner.Plan(pass, 5), 5);
  return result;
}

// plan::Idempotent says what really is: each stage twice, in long and short passes at several places of block and pool. An idempotent one
// never shows; one that is not does somewhere.
TEST(Idempotence, IsAsClaimed) {
  SmallModel model;
  MakeSmall(model, 11, false);
  for (const auto pass : {plan::Pass::kTrunk, plan::Pass::kMtp}) {
    Runner runner(model, Plain());
    for (const Stage stage : plan::StagesOf(runner.Plan(pass, 40))) {
      bool shows = false;
      for (const auto& [start, rows] :
           std::vector<std::pair<int, int>>{{0, 40}, {14, 1}, {13, 2}, {31, 37}}) {
        const auto whole = RunEdited(model, pass, start, rows, [](const plan::Plan& plan) { return plan; });
        const auto twice = RunEdited(model, pass, start, rows, [&](const plan::Plan& plan) {
          plan::Plan edited = plan;
          edited.steps.clear();
          for (const auto& step : plan.steps) {
            edited.steps.push_back(step);
            if (std::count(step.covers.begin(), step.covers.end(), stage) > 0) edited.steps.push_back(step);
          }
          return edited;
        });
        shows = shows || twice.logits != whole.logits || twice.after != whole.after;
      }
      EXPECT_EQ(shows, !plan::Idempotent(stage)) << plan::Name(stage);
    }
  }
}

class Prices : public testing::Test {
 protected:
  void SetUp() override {
    MakeSmall(model_, 5, true);
    runner_.emplace(model_, Plain());
    state_ = runner_->State();
    runner_->Trunk(*state_, model_.Tokens(21));
    tokens_ = model_.Tokens(12);
  }

  plan::PriceRequest Request(const plan::Plan& plan, int64_t rows) {
    plan::PriceRequest request;
    request.backend = &runner_->backend();
    request.state = state_.get();
    request.hparams = &model_.hp;
    request.plan = &plan;
    request.tokens = tokens_;
    request.rows = rows;
    request.rounds = 2;
    return request;
  }

  SmallModel model_;
  std::optional<Runner> runner_;
  std::unique_ptr<plan::SequenceState> state_;
  std::vector<int32_t> tokens_;
};

// The sequence goes on afterwards as if nobody had priced anything.
TEST_F(Prices, LeaveTheStateAsItWas) {
  auto untouched = state_->Clone();
  ASSERT_TRUE(untouched.ok());
  for (const int64_t rows : {1, 4, 12}) {
    const auto plan = runner_->Plan(plan::Pass::kTrunk, static_cast<int>(rows));
    for (const auto how : {plan::Pricing::kAblate, plan::Pricing::kRepeat}) {
      const auto stages = plan::StagesOf(plan);
      const auto prices = plan::PriceStages(how, Request(plan, rows), stages);
      ASSERT_TRUE(prices.ok()) << prices.status().message();
      ASSERT_EQ(prices->size(), stages.size());
      for (const plan::Price& price : *prices) {
        SCOPED_TRACE(plan::Name(price.stage));
        const bool refused = how == plan::Pricing::kRepeat && !plan::Idempotent(price.stage);
        EXPECT_EQ(price.refused.empty(), !refused) << price.refused;
        EXPECT_EQ(price.calls, static_cast<int>(plan::StepsOf(plan, price.stage).size()));
        EXPECT_EQ(price.served_by, plan::ServedBy(plan, price.stage));
        if (!refused) {
          EXPECT_GT(price.baseline.median, 0);
        }
      }
      EXPECT_EQ(state_->position(), 21);
    }
  }
  EXPECT_EQ(runner_->Trunk(*state_, tokens_), runner_->Trunk(**untouched, tokens_));
}

// A "repetition" that changes the result is found out: here a lever's step stands twice whose second run sees its own output.
TEST_F(Prices, RepetitionThatChangesTheLogitsIsAnError) {
  auto plan = runner_->Plan(plan::Pass::kTrunk, 1);
  const size_t victim = plan::StepsOf(plan, Stage::kHcPost).front();
  // A step that lies about what it does: hc.post, declared as kda.norm.
  plan.steps[victim].covers = {Stage::kMtpInput};
  plan.steps[victim].in = {plan::Slot::kBranch};
  const auto prices =
      plan::PriceStages(plan::Pricing::kRepeat, Request(plan, 1), std::vector{Stage::kMtpInput});
  ASSERT_FALSE(prices.ok());
  EXPECT_NE(prices.status().message().find("repetition of mtp.input"), std::string::npos)
      << prices.status().message();
  EXPECT_NE(prices.status().message().find("the logits changed: pass 0, entry"), std::string::npos);
  EXPECT_EQ(state_->position(), 21);  // brought back after a failure too
}

TEST_F(Prices, StopWhenAskedAndBringTheStateBack) {
  const auto plan = runner_->Plan(plan::Pass::kTrunk, 1);
  auto request = Request(plan, 1);
  request.progress = [](uint64_t done, uint64_t total) {
    EXPECT_LE(done, total);
    return done < 3;
  };
  const auto prices = plan::PriceStages(plan::Pricing::kAblate, request, std::vector{Stage::kKdaQkv});
  ASSERT_FALSE(prices.ok());
  EXPECT_EQ(prices.status().message(), "interrupted");
  EXPECT_EQ(state_->position(), 21);
}

}  // namespace
}  // namespace glint::test
