#include "plan/step_bytes.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <string>

#include "model/glm_flash/synthetic_spec.h"
#include "model/glm_flash/tensors.h"

namespace glint::plan {
namespace {

using model::Tensor;

// The released model with the shapes of a recipe's weights, and no weights.
class Shapes {
 public:
  explicit Shapes(const std::string& spec) {
    auto parsed = model::ParseSynthetic(spec);
    EXPECT_TRUE(parsed.ok()) << parsed.status().message();
    hp = parsed->hparams;
    weights = model::EmptyWeights(hp);
    for (const Tensor& tensor : model::ListTensors(hp)) {
      const model::Site site = model::SiteOf(weights, hp, tensor.block);
      const quant::Type type = parsed->recipe.TypeFor(tensor, hp.layers);
      const auto columns = static_cast<uint64_t>(tensor.shape.columns);
      if (tensor.kind->matrix != nullptr) {
        model::Matrix& m = *tensor.kind->matrix(site);
        m.type = type;
        m.columns = tensor.shape.columns, m.rows = tensor.shape.rows, m.slices = tensor.shape.slices;
        m.row_bytes = *quant::RowBytes(*quant::Find(type), columns);
      } else {
        const auto count = static_cast<size_t>(tensor.shape.count());
        if (floats.size() < count) floats.resize(count);
      }
    }
    for (const Tensor& tensor : model::ListTensors(hp)) {  // all look at the same floats
      if (tensor.kind->vector == nullptr) continue;
      *tensor.kind->vector(model::SiteOf(weights, hp, tensor.block)) = {
          floats.data(), static_cast<size_t>(tensor.shape.count())};
    }
  }

  Plan Make(Pass pass, int rows, std::span<const Lever> levers = {}) const {
    PlanRequest request;
    request.hparams = &hp;
    request.weights = &weights;
    request.levers = levers;
    request.pass = pass;
    request.rows = rows;
    auto plan = MakePlan(request);
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    return std::move(*plan);
  }

  std::map<std::string, StepBytes> ByStage(Pass pass, const PassShape& shape) const {
    std::map<std::string, StepBytes> sums;
    for (const Step& step : Make(pass, static_cast<int>(shape.rows)).steps) {
      const StepBytes bytes = BytesOf(step, hp, weights, shape);
      sums[std::string(Name(step.stage))] += bytes;
      sums["all"] += bytes;
    }
    return sums;
  }

  model::HParams hp;
  model::Weights weights;
  std::vector<float> floats;
};

std::map<std::string, StepBytes> Decode(const Shapes& shapes, int64_t cached, int64_t cache_entry = 2) {
  PassShape shape;
  shape.position = cached - 1;  // the budget counts the token itself among the cached
  shape.cache_entry = cache_entry;
  return shapes.ByStage(Pass::kTrunk, shape);
}

// spec/budget.md section 2, last rows of the table; DS4's indexer vectors are BF16 there and float in memory, so A is left out.
TEST(StepBytes, WeightsOfADecodedTokenAreThoseOfTheBudget) {
  struct Row {
    const char* recipe;
    double token, nextn, nextn_with_head;
  };
  for (const Row& row : {Row{"q8_0-q4_k", 13722533368, 313553024, 987590784},
                         Row{"q8_0-iq3_xxs", 12203146744, 277377152, 951414912},
                         Row{"q4_k", 9615652344, 221802624, 578646144}}) {
    SCOPED_TRACE(row.recipe);
    const Shapes shapes(std::string("glm-5.3-flash,recipe=") + row.recipe);
    EXPECT_EQ(Decode(shapes, 1)["all"].weights, row.token);
    const auto mtp = shapes.ByStage(Pass::kMtp, {});
    // The budget leaves out the embedding row that mtp.input reads.
    const double embedding = static_cast<double>(shapes.weights.embedding.row_bytes);
    EXPECT_EQ(mtp.at("all").weights - mtp.at("head.logits").weights - embedding, row.nextn);
    EXPECT_EQ(mtp.at("all").weights - embedding, row.nextn_with_head);
  }
}

// Section 2, column B, in MB with two decimals.
TEST(StepBytes, WeightsOfEachStageAreThoseOfTheBudget) {
  const Shapes shapes("glm-5.3-flash,recipe=q8_0-q4_k");
  auto bytes = Decode(shapes, 1);
  const auto mb = [&](const char* stage) { return bytes.at(stage).weights / 1e6; };
  EXPECT_NEAR(mb("head.logits"), 674.04, 0.005);
  EXPECT_NEAR(mb("kda.qkv"), 3636.46, 0.005);
  EXPECT_NEAR(mb("kda.out"), 1212.15, 0.005);
  EXPECT_NEAR(mb("kda.conv"), 13.37, 0.005);
  EXPECT_NEAR(mb("dsa.attend"), 98.04 + 98.04, 0.01);
  EXPECT_NEAR(mb("dsa.out"), 784.33, 0.005);
  EXPECT_NEAR(mb("moe.route"), 198.18 + 0.05, 0.01);
  EXPECT_NEAR(mb("moe.gate_up"), 3170.89, 0.005);
  EXPECT_NEAR(mb("moe.down"), 1585.45, 0.005);
  EXPECT_NEAR(mb("moe.shared_gate_up") + mb("moe.shared_down"), 1123.02, 0.01);
  EXPECT_NEAR(mb("ffn.gate_up") + mb("ffn.down"), 481.30, 0.01);
  EXPECT_NEAR(mb("hc.pre"), 37.60 + 0.01, 0.01);
}

// Section 3. The recurrent state is read every token; what the plain recurrence writes every token, the grid writes when a block ends
// (docs/design.md, "The grid"), so the budget's sum is met there.
TEST(StepBytes, ContextTrafficIsThatOfTheBudget) {
  const Shapes shapes("glm-5.3-flash,recipe=q8_0");
  struct Row {
    int64_t cached;
    double latent, pooled;  // MB
  };
  for (const Row& row : {Row{1, 0.01, 0}, Row{2048, 23.07, 0}, Row{2051, 23.10, 0}, Row{8195, 23.10, 5.77},
                         Row{32771, 23.10, 23.07}, Row{262147, 23.10, 184.55}, Row{1048575, 23.10, 738.20}}) {
    SCOPED_TRACE(row.cached);
    auto bytes = Decode(shapes, row.cached);
    EXPECT_NEAR(bytes["dsa.attend"].cache / 1e6, row.latent, 0.006);
    EXPECT_NEAR(bytes["dsa.select"].cache / 1e6, row.pooled, 0.006);
    EXPECT_EQ(bytes["dsa.kv"].cache, 11 * 1024);
    EXPECT_EQ(bytes["dsa.index"].cache, row.cached % 4 == 0 ? 11 * 256 : 0);
  }
  // The pools alone decide when scores are needed: the budget's 2051.
  EXPECT_EQ(Decode(shapes, 2051)["dsa.select"].cache, 0);
  EXPECT_EQ(Decode(shapes, 2052)["dsa.select"].cache, 11 * 513 * 256);
  EXPECT_EQ(Decode(shapes, 2052, 4)["dsa.select"].cache, 2 * 11 * 513 * 256);

  const double s = 142606336;           // 34 x 4 MiB
  const double rows = 34 * 4 * 8192.0;  // one row of keys, of deltas or of decays, all layers
  EXPECT_EQ(Decode(shapes, 1)["kda.recur"].state, s + 3 * rows);
  EXPECT_EQ(Decode(shapes, 16)["kda.recur"].state,
            2 * s + 31 * rows);  // the block ends: nothing of it is kept
  EXPECT_EQ(Decode(shapes, 17)["kda.recur"].state, s + 3 * rows);
  EXPECT_EQ(Decode(shapes, 24)["kda.recur"].state, s + (15 + 3) * rows);
  const double conv = 10027008;  // three rows
  EXPECT_EQ(Decode(shapes, 2048)["kda.conv"].state, conv + conv / 3);
  EXPECT_EQ(Decode(shapes, 1)["kda.conv"].state, conv / 3);
}

TEST(StepBytes, APromptReadsEachThingOnce) {
  const Shapes shapes("glm-5.3-flash,recipe=q8_0-q4_k");
  PassShape shape;
  shape.rows = 256;
  shape.position = 4096;
  shape.wanted = 0;
  shape.cache_entry = 2;
  auto many = shapes.ByStage(Pass::kTrunk, shape);
  auto one = Decode(shapes, 4097);
  EXPECT_EQ(many["kda.qkv"].weights, one["kda.qkv"].weights);
  EXPECT_EQ(many["embed"].weights, 256 * one["embed"].weights);
  EXPECT_EQ(many["head.logits"].total(), 4 * 256 * 4096);  // the final rows, looked at for nothing
  EXPECT_EQ(many["kda.recur"].state, 2 * 142606336.0);
  EXPECT_EQ(many["dsa.kv"].cache, 256 * 11 * 1024);
  EXPECT_EQ(many["dsa.index"].cache, 64 * 11 * 256);
  EXPECT_EQ(many["dsa.select"].cache, (4352 / 4) * 11 * 256);
  EXPECT_EQ(many["dsa.attend"].cache, 4352 * 11 * 1024);
  EXPECT_EQ(many["hc.post"].activations, 90 * 256 * 4.0 * (2 * 4 * 4096 + 4096 + 4 + 16));
}

// Given counts are used; without them the mean of random choices is, here against choices drawn.
TEST(StepBytes, ExpertsAreCountedOnce) {
  const Shapes shapes("glm-5.3-flash,layers=5,recipe=q4_k,experts=48,experts_used=3");
  const double one = Decode(shapes, 1)["moe.gate_up"].weights;
  PassShape shape;
  shape.rows = 20;
  std::vector<double> experts(6, 0);
  experts[3] = 7, experts[4] = 11;  // the layers with experts are 3 and 4
  shape.experts = experts;
  EXPECT_EQ(shapes.ByStage(Pass::kTrunk, shape)["moe.gate_up"].weights, one / 2 / 3 * 18);

  std::mt19937_64 rng(1);
  double sum = 0;
  constexpr int kDraws = 2000;
  for (int draw = 0; draw < kDraws; ++draw) {
    std::set<uint64_t> chosen;
    for (int row = 0; row < 20; ++row) {
      std::set<uint64_t> own;
      while (own.size() < 3) own.insert(rng() % 48);
      chosen.insert(own.begin(), own.end());
    }
    sum += static_cast<double>(chosen.size());
  }
  EXPECT_NEAR(ExpectedExperts(shapes.hp, 20), sum / kDraws, 0.3);
  EXPECT_EQ(ExpectedExperts(shapes.hp, 1), 3);
}

// A lever over several stages moves what they move, but for what stays inside.
TEST(StepBytes, AFusedStepMovesWhatItsStagesMove) {
  const Shapes shapes("glm-5.3-flash,layers=5,recipe=q4_k,experts=48");
  const std::vector<Lever> levers = {{"fuse",
                                      Lever::Kind::kReplace,
                                      {Stage::kKdaConv, Stage::kKdaGates, Stage::kKdaRecur},
                                      true,
                                      0,
                                      true,
                                      1,
                                      0,
                                      true,
                                      "a test's lever"}};
  PassShape shape;
  shape.position = 100;
  StepBytes fused, apart;
  for (const Step& step : shapes.Make(Pass::kTrunk, 1, levers).steps)
    if (step.lever != nullptr) fused += BytesOf(step, shapes.hp, shapes.weights, shape);
  for (const Step& step : shapes.Make(Pass::kTrunk, 1).steps)
    if (step.stage == Stage::kKdaConv || step.stage == Stage::kKdaGates || step.stage == Stage::kKdaRecur)
      apart += BytesOf(step, shapes.hp, shapes.weights, shape);
  EXPECT_GT(fused.state, 0);
  EXPECT_EQ(fused.weights, apart.weights);
  EXPECT_EQ(fused.state, apart.state);
  EXPECT_LT(fused.activations, apart.activations);
}

}  // namespace
}  // namespace glint::plan
