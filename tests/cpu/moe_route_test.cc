// moe.route where the choice is hard: ties go to the lower expert, NaN comes last.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "base/math.h"
#include "tests/cpu/bench.h"

namespace glint::test {
namespace {

TEST(MoeRoute, TiesGoToTheLowerExpertAndNanComesLast) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  SmallModel model;
  MakeSmall(model, seed, false);
  const auto& hp = model.hp;
  auto& moe = model.weights.layers[1].moe;
  // The router copies the first entries of x, so that the test decides the logits.
  std::vector<float> router(hp.experts * hp.hidden), bias(hp.experts);
  for (int64_t e = 0; e < hp.experts; ++e) router[e * hp.hidden + e] = 1;
  moe.router.data = reinterpret_cast<const std::byte*>(router.data());
  moe.router_bias = bias;
  const int rows = 200;
  Bench bench(model, rows);
  float* const x = bench.Floats(plan::Slot::kX);
  std::fill(x, x + rows * hp.hidden, 0.0f);
  for (int r = 0; r < rows; ++r) {
    for (int64_t e = 0; e < hp.experts; ++e) {
      x[r * hp.hidden + e] = static_cast<float>(static_cast<int>(model.rng() % 4)) - 2;  // many ties
    }
  }
  for (int64_t e = 0; e < hp.experts; ++e) bias[e] = model.rng() % 3 == 0 ? 0.25f : 0.0f;
  bias[3] = std::numeric_limits<float>::quiet_NaN();  // a bias only selects
  bench.Run(cpu::MoeRoute, 1, 0, rows, cpu::ScalarKernels(), true);
  for (int r = 0; r < rows; ++r) {
    std::vector<int32_t> order(hp.experts);
    std::iota(order.begin(), order.end(), 0);
    const auto rank = [&](int32_t e) { return Sigmoid(x[r * hp.hidden + e]) + bias[e]; };
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      if (std::isnan(rank(a)) || std::isnan(rank(b))) return !std::isnan(rank(a)) && std::isnan(rank(b));
      return rank(a) > rank(b);
    });
    order.resize(hp.experts_used);
    std::sort(order.begin(), order.end());
    const int32_t* ids = bench.Ints(plan::Slot::kExpertIds) + r * hp.experts_used;
    ASSERT_EQ(std::vector<int32_t>(ids, ids + hp.experts_used), order) << "row " << r;
    const float* weights = bench.Floats(plan::Slot::kExpertWeights) + r * hp.experts_used;
    ASSERT_NEAR(std::accumulate(weights, weights + hp.experts_used, 0.0), hp.routed_scale, 1e-5);
  }
}

}  // namespace
}  // namespace glint::test
