// The greedy choice against a plain loop over ids.
#include "plan/best.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace glint::plan {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

int32_t ByLoop(const std::vector<float>& logits) {
  int32_t best = -1;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] > -kInfinity)) continue;
    if (best < 0 || logits[i] > logits[static_cast<size_t>(best)]) best = static_cast<int32_t>(i);
  }
  return best;
}

TEST(BestId, IsTheFirstOfTheHighest) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  for (const size_t n : {1, 2, 15, 16, 17, 31, 1023, 1024, 1025, 2048, 3000, 5121}) {
    for (int kind = 0; kind < 60; ++kind) {
      SCOPED_TRACE(testing::Message() << n << " logits, kind " << kind);
      std::vector<float> logits(n);
      // Few values, so that ties abound; signed zeros among them; then NaN and infinities sprinkled in.
      for (float& x : logits)
        x = kind % 3 == 0   ? static_cast<float>(rng() % 5) - 2.0f
            : kind % 3 == 1 ? std::normal_distribution<float>()(rng)
                            : (rng() % 2 == 0 ? -0.0f : 0.0f) - (rng() % 3 == 0 ? 1.0f : 0.0f);
      for (uint64_t i = rng() % (n + 1); kind % 4 == 1 && i > 0; --i) logits[rng() % n] = NAN;
      for (uint64_t i = rng() % (n + 1); kind % 4 == 2 && i > 0; --i) logits[rng() % n] = -kInfinity;
      if (kind % 20 == 3) logits[rng() % n] = kInfinity;
      EXPECT_EQ(BestId(logits), ByLoop(logits));
    }
  }
}

TEST(BestId, OfNothingIsNone) {
  EXPECT_EQ(BestId({}), -1);
  EXPECT_EQ(BestId(std::vector<float>(40, NAN)), -1);
  EXPECT_EQ(BestId(std::vector<float>(2000, -kInfinity)), -1);
  std::vector<float> one(2000, NAN);
  one[1999] = -3e38f;
  EXPECT_EQ(BestId(one), 1999);
}

}  // namespace
}  // namespace glint::plan
