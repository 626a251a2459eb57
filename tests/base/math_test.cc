#include "base/math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace glint {
namespace {

// Units of the last place of the float nearest to `want` by which got is off.
double Ulps(double want, float got) {
  const auto near = static_cast<float>(want);
  const double ulp = static_cast<double>(std::nextafterf(near, INFINITY)) - near;
  return std::fabs(got - want) / ulp;
}

TEST(Exp, WithinOneAndAHalfUlpOverItsRange) {
  double worst = 0;
  float where = 0;
  // Every 61st float pattern: 71 million would be all; a stride that is prime to the powers of two meets every mantissa region.
  for (const float end : {-87.33654f, 88.72283f}) {
    for (uint32_t bits = 0; bits <= (std::bit_cast<uint32_t>(end) & 0x7fffffffu); bits += 61) {
      const float x = std::copysign(std::bit_cast<float>(bits), end);
      const double off = Ulps(std::exp(static_cast<double>(x)), Exp(x));
      if (off > worst) worst = off, where = x;
      if (bits < 0x30000000u) bits += 99991;  // tiny arguments give 1: a few suffice
    }
  }
  EXPECT_LE(worst, 1.5) << "at " << where;
  RecordProperty("worst_ulps", std::to_string(worst));
}

TEST(Exp, EdgesAndSpecials) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Exp(0.0f), 1.0f);
  EXPECT_EQ(Exp(-0.0f), 1.0f);
  EXPECT_EQ(Exp(kInfinity), kInfinity);
  EXPECT_EQ(Exp(-kInfinity), 0.0f);
  EXPECT_EQ(Exp(88.8f), kInfinity);
  EXPECT_EQ(Exp(-87.4f), 0.0f);
  EXPECT_TRUE(std::isfinite(Exp(88.72283f)));
  EXPECT_GE(Exp(-87.33654f), std::numeric_limits<float>::min());  // never a subnormal
  EXPECT_TRUE(std::isnan(Exp(std::numeric_limits<float>::quiet_NaN())));
}

TEST(Exp, NeverDecreases) {
  float last = 0;
  for (float x = -87.4f; x < 88.8f; x += 0.00037f) {
    const float y = Exp(x);
    ASSERT_GE(y, last) << x;
    last = y;
  }
}

// 1 / (1 + e): the relative errors of Exp (1.5 ulp of at most 2^-23), of the sum and of the quotient add up to less than 3 * 2^-23.
TEST(Sigmoid, AndSiluAgreeWithDouble) {
  for (float x = -87.0f; x < 88.0f; x += 0.0013f) {
    const double want = 1 / (1 + std::exp(-static_cast<double>(x)));
    ASSERT_NEAR(Sigmoid(x), want, want * 3 * 0x1p-23) << x;
    ASSERT_NEAR(Silu(x), x * want, std::fabs(x * want) * 3 * 0x1p-23) << x;
  }
  EXPECT_EQ(Sigmoid(-INFINITY), 0.0f);
  EXPECT_EQ(Sigmoid(INFINITY), 1.0f);
}

}  // namespace
}  // namespace glint
