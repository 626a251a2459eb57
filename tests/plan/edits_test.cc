#include "plan/edits.h"

#include <gtest/gtest.h>

#include "tests/support/small_model.h"

namespace glint::plan {
namespace {

class Edits : public testing::Test {
 protected:
  void SetUp() override { test::MakeSmall(model_, 1, false); }
  Plan Make(Pass pass = Pass::kTrunk, std::span<const Lever> levers = {}) {
    PlanRequest request;
    request.hparams = &model_.hp;
    request.weights = &model_.weights;
    request.levers = levers;
    request.pass = pass;
    request.rows = 2;
    auto plan = MakePlan(request);
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    return std::move(*plan);
  }
  static Lever Fuse(std::string_view name, std::vector<Stage> covers) {
    return {name, Lever::Kind::kReplace, std::move(covers), true, 0, true, 1, 0, true, "a test's lever"};
  }
  test::SmallModel model_;
};

bool Has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

TEST_F(Edits, WithoutLeavesOutAllStepsOfAStageAndNothingElse) {
  const Plan plan = Make();
  for (const Stage stage : StagesOf(plan)) {
    const Plan edited = Without(plan, stage);
    EXPECT_EQ(edited.steps.size() + StepsOf(plan, stage).size(), plan.steps.size()) << Name(stage);
    EXPECT_TRUE(StepsOf(edited, stage).empty());
    EXPECT_EQ(edited.buffers.total_bytes, plan.buffers.total_bytes);
    for (size_t i = 0; i < plan.buffers.places.size(); ++i)
      EXPECT_EQ(edited.buffers.places[i].offset, plan.buffers.places[i].offset);
  }
}

// As late as nobody sees it: what brings its weights from memory once more.
TEST_F(Edits, RepeatingDoesTheSameStepAgainWhereItsResultIsDead) {
  const Plan plan = Make();
  const auto before = [&](Stage stage) {  // the steps before each repetition, and its layer
    const auto edited = Repeating(plan, stage);
    EXPECT_TRUE(edited.ok()) << edited.status().message();
    const auto steps = StepsOf(*edited, stage);
    EXPECT_EQ(steps.size(), 2 * StepsOf(plan, stage).size());
    EXPECT_EQ(edited->steps.size(), plan.steps.size() + steps.size() / 2);
    std::vector<std::string_view> names;
    for (size_t i = 1; i < steps.size(); i += 2) {
      EXPECT_EQ(edited->steps[steps[i]].layer, edited->steps[steps[i - 1]].layer);
      names.push_back(Name(edited->steps[steps[i] - 1].stage));
    }
    return names;
  };
  using Names = std::vector<std::string_view>;
  EXPECT_EQ(before(Stage::kKdaQkv), (Names{"hc.post", "hc.post"}));  // at the layer's end
  EXPECT_EQ(before(Stage::kMoeGateUp), (Names{"hc.post", "hc.post", "hc.post"}));
  EXPECT_EQ(before(Stage::kKdaOut), (Names{"hc.post", "hc.post"}));  // the FFN's branch was taken in by then
  EXPECT_EQ(before(Stage::kMoeRoute), (Names{"hc.post", "hc.post", "hc.post"}));
  EXPECT_EQ(before(Stage::kDsaKv),
            (Names{"dsa.kv", "dsa.kv"}));  // writes state: only right behind itself is harmless
  EXPECT_EQ(before(Stage::kHeadLogits), (Names{"head.logits"}));
  EXPECT_EQ(before(Stage::kEmbed), (Names{"embed"}));
}

TEST_F(Edits, RepeatingRefusesWhatIsNotIdempotentAndSaysWhy) {
  const Plan trunk = Make(), mtp = Make(Pass::kMtp);
  const auto refusal = [](const Plan& plan, Stage stage) {
    const auto edited = Repeating(plan, stage);
    EXPECT_FALSE(edited.ok()) << Name(stage);
    return edited.ok() ? "" : edited.status().message();
  };
  EXPECT_TRUE(Has(refusal(trunk, Stage::kKdaRecur), "kda.recur advances the sequence's state"));
  EXPECT_TRUE(Has(refusal(trunk, Stage::kKdaConv), "advances"));
  EXPECT_TRUE(Has(refusal(trunk, Stage::kDsaIndex), "advances"));
  EXPECT_TRUE(Has(refusal(trunk, Stage::kHcPost), "hc.post updates its result in place"));
  EXPECT_TRUE(Has(refusal(mtp, Stage::kResidual), "in place"));
}

// Whoever asks for one stage of a fused step gets the whole step, so one bad stage in it spoils it.
TEST_F(Edits, AFusedStepIsJudgedByAllThatItCovers) {
  const std::vector<Lever> levers = {Fuse("gates_recur", {Stage::kKdaGates, Stage::kKdaRecur}),
                                     Fuse("norm_out", {Stage::kKdaNorm, Stage::kKdaOut}),
                                     Fuse("post_pre", {Stage::kHcPost, Stage::kHcPre})};
  const Plan plan = Make(Pass::kTrunk, levers);
  const auto refused = Repeating(plan, Stage::kKdaGates);
  ASSERT_FALSE(refused.ok());
  EXPECT_TRUE(Has(refused.status().message(), "kda.gates can't be repeated: kda.recur advances"))
      << refused.status().message();
  EXPECT_TRUE(Repeating(plan, Stage::kKdaOut).ok());
  EXPECT_FALSE(Repeating(plan, Stage::kHcPre).ok());  // streams are mixed in place
  EXPECT_EQ(ServedBy(plan, Stage::kKdaNorm), "norm_out (with kda.out)");
  EXPECT_EQ(ServedBy(plan, Stage::kKdaQkv), "canonical");
  EXPECT_EQ(Without(plan, Stage::kKdaNorm).steps.size(), plan.steps.size() - 2);  // two layers' fused steps
  EXPECT_TRUE(StepsOf(Without(plan, Stage::kKdaNorm), Stage::kKdaOut).empty());
}

TEST_F(Edits, AStepThatUpdatesASlotInPlaceIsNotIdempotent) {
  Plan plan = Make();
  Step step = plan.steps[StepsOf(plan, Stage::kKdaNorm).front()];
  EXPECT_TRUE(Idempotent(step));
  step.out.push_back(step.in.front());
  EXPECT_FALSE(Idempotent(step));
}

TEST_F(Edits, StagesAreFoundByName) {
  const Plan plan = Make();
  using Names = std::vector<std::string>;
  const auto find = [&](const Names& names) { return FindStages(plan, names); };
  EXPECT_EQ(*find({"kda.recur", "embed", "kda.recur"}),
            (std::vector<Stage>{Stage::kKdaRecur, Stage::kEmbed}));
  EXPECT_EQ(*find({"all"}), StagesOf(plan));
  const auto unknown = find({"kda.recur", "kda"});
  ASSERT_FALSE(unknown.ok());
  EXPECT_TRUE(Has(unknown.status().message(), "unknown stage 'kda'; there are: embed, hc.pre, "));
  EXPECT_TRUE(Has(unknown.status().message(), "mtp.input; or all"));
  const auto elsewhere = find({"mtp.input"});
  ASSERT_FALSE(elsewhere.ok());
  EXPECT_TRUE(Has(elsewhere.status().message(), "mtp.input is not in this pass"));
  EXPECT_TRUE(CheckStageNames(Names{"mtp.input"}).ok());  // known, if not here
  EXPECT_FALSE(CheckStageNames(Names{""}).ok());
}

}  // namespace
}  // namespace glint::plan
