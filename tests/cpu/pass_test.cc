// A whole pass gives the same bits however the tokens were cut, whatever levers are on, and after any truncation.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <deque>
#include <random>

#include "model/glm_flash/tensors.h"
#include "tests/cpu/passes.h"
#include "tests/support/sanitizers.h"

namespace glint::test {
namespace {

struct Shape {
  bool quantised;
  int64_t pool;
};

class Pass : public testing::TestWithParam<Shape> {
 protected:
  void SetUp() override {
    seed_ = std::random_device{}();
    MakeSmall(model_, seed_, GetParam().quantised, GetParam().pool);
  }
  uint64_t seed_ = 0;
  SmallModel model_;
};

INSTANTIATE_TEST_SUITE_P(Shapes, Pass,
                         testing::Values(Shape{false, 3}, Shape{true, 3}, Shape{false, 8}, Shape{true, 4},
                                         Shape{false, 1}, Shape{false, 20}),
                         [](const auto& p) {
                           return std::string(p.param.quantised ? "Q8" : "F32") + "Pool" +
                                  std::to_string(p.param.pool);
                         });

bool Finite(const std::vector<float>& v) {
  for (const float x : v) {
    if (!std::isfinite(x)) return false;
  }
  return true;
}

TEST_P(Pass, BitsDoNotDependOnChunksThreadsOrLevers) {
  SCOPED_TRACE(seed_);
  const auto tokens = model_.Tokens(kThreadSanitizer ? 40 : 101);
  Runner canonical(model_, Canonical());
  auto state = canonical.State();
  const auto want = canonical.TrunkInChunks(*state, tokens, tokens.size());
  ASSERT_TRUE(Finite(want.logits));
  std::vector<Conditions> all_conditions = {Canonical()};
  for (const int threads : {1, 2, 4}) all_conditions.push_back({threads, {}, true, false});
  const size_t every_chunk =
      kThreadSanitizer ? 0 : all_conditions.size();  // what follows is cut in two ways only
  for (const plan::Lever& lever : cpu::Levers()) {
    if (!lever.bitwise) continue;
    if (lever.available) all_conditions.push_back({2, {{std::string(lever.name)}, {"all"}}, true, false});
    all_conditions.push_back({1, {{}, {std::string(lever.name)}}, true, false});
  }
  for (size_t i = 0; i < all_conditions.size(); ++i) {
    const Conditions& conditions = all_conditions[i];
    Runner runner(model_, conditions);
    for (const size_t chunk : {size_t{1}, size_t{5}, size_t{16}, size_t{37}, tokens.size()}) {
      SCOPED_TRACE(testing::Message() << "chunk " << chunk << ", " << conditions.threads << " threads, with "
                                      << testing::PrintToString(conditions.choice.with) << ", without "
                                      << testing::PrintToString(conditions.choice.without));
      // Every step shares its work out, however little (Runner): with 4 threads on a busy machine each meeting takes long.
      if (conditions.threads == 4 && chunk < 16) continue;
      if (i >= every_chunk && chunk != 5 && chunk != tokens.size()) continue;
      auto s = runner.State();
      ASSERT_TRUE(runner.TrunkInChunks(*s, tokens, chunk) == want);
    }
  }
}

// Factors beside the matrices, powers of two so that nothing rounds: as good as in the weights. All of the model's matrices are F32.
TEST(ScaledMatrices, AreTheMatricesTimesTheirScales) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  SmallModel plain, scaled;
  MakeSmall(plain, seed, false, 3);
  MakeSmall(scaled, seed, false, 3);
  std::mt19937_64 rng(seed);
  std::deque<std::vector<float>> kept;
  for (const model::Tensor& tensor : model::ListTensors(plain.hp)) {
    if (tensor.kind->matrix == nullptr) continue;
    model::Matrix& a = *tensor.kind->matrix(model::SiteOf(plain.weights, plain.hp, tensor.block));
    model::Matrix& b = *tensor.kind->matrix(model::SiteOf(scaled.weights, scaled.hp, tensor.block));
    ASSERT_EQ(a.type, quant::Type::kF32);
    auto& scales = kept.emplace_back(static_cast<size_t>(a.slices));
    for (float& s : scales) s = rng() % 2 ? 0.5f : 2.0f;
    b.scales = scales.data();
    auto& values = kept.emplace_back(a.bytes() / sizeof(float));
    std::memcpy(values.data(), a.data, a.bytes());
    for (size_t i = 0; i < values.size(); ++i) values[i] *= scales[i / (values.size() / scales.size())];
    a.data = reinterpret_cast<const std::byte*>(values.data());
  }
  const auto tokens = plain.Tokens(21);
  for (const Conditions& conditions : {Canonical(), Conditions{2, {}, true, false}}) {
    Runner want(plain, conditions), got(scaled, conditions);
    auto want_state = want.State(), got_state = got.State();
    ASSERT_TRUE(want.TrunkInChunks(*want_state, tokens, 7) == got.TrunkInChunks(*got_state, tokens, 7));
  }
}

}  // namespace
}  // namespace glint::test
