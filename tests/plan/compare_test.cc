#include "plan/compare.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace glint::plan {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

uint32_t Bits(float x) { return std::bit_cast<uint32_t>(x); }
std::vector<uint32_t> All(std::initializer_list<float> values) {
  std::vector<uint32_t> bits;
  for (const float v : values) bits.push_back(Bits(v));
  return bits;
}

TEST(Compare, UlpsAreTheStepsBetween) {
  const auto steps = [](float a, float b) { return UlpsBetween(Bits(a), Bits(b)); };
  EXPECT_EQ(steps(1.0f, 1.0f), 0u);
  EXPECT_EQ(steps(1.0f, std::nextafterf(1.0f, 2.0f)), 1u);
  EXPECT_EQ(steps(std::nextafterf(1.0f, 0.0f), std::nextafterf(1.0f, 2.0f)), 2u);
  EXPECT_EQ(steps(-1.0f, std::nextafterf(-1.0f, -2.0f)), 1u);
  EXPECT_EQ(steps(0.0f, -0.0f), 1u);
  EXPECT_EQ(steps(std::numeric_limits<float>::denorm_min(), -std::numeric_limits<float>::denorm_min()), 3u);
  EXPECT_EQ(steps(std::numeric_limits<float>::max(), kInf), 1u);
  EXPECT_EQ(steps(1.0f, 2.0f), uint64_t{1} << 23);
  EXPECT_EQ(steps(NAN, 1.0f), 0u);
  // As many steps as nextafter takes.
  float x = -3e-44f;
  uint64_t count = 0;
  while (x < 2e-44f) x = std::nextafterf(x, 1.0f), ++count;
  EXPECT_EQ(steps(-3e-44f, x) - 1, count);  // both zeros count, nextafter knows one
}

TEST(Compare, TheFirstEntryOfOtherBits) {
  const auto want = All({1, -0.0f, NAN, 4});
  auto got = want;
  EXPECT_FALSE(FirstOtherBits(got, want, false));
  EXPECT_FALSE(FirstOtherBits({}, {}, false));
  got[2] = 0xffc12345;  // another NaN
  EXPECT_FALSE(FirstOtherBits(got, want, false));
  EXPECT_EQ(FirstOtherBits(got, want, true)->at, 2u);  // integers have no NaN
  got[3] = Bits(std::nextafterf(4, 5));
  EXPECT_EQ(FirstOtherBits(got, want, false)->at, 3u);
  got[1] = Bits(0.0f);
  const auto found = FirstOtherBits(got, want, false);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->at, 1u);
  EXPECT_EQ(found->got, Bits(0.0f));
  EXPECT_EQ(found->want, Bits(-0.0f));
  got = want;
  got[0] = Bits(NAN);
  EXPECT_EQ(FirstOtherBits(got, want, false)->at, 0u);
}

TEST(Compare, ToleranceIsOfTheLargestEntry) {
  const auto want = All({1, -8, 0, 2});
  Closeness close = Compare(All({1.5f, -8, 0.25f, 2}), want, 0.0625);
  EXPECT_EQ(close.scale, 8);
  EXPECT_EQ(close.largest, 0.5);
  EXPECT_FALSE(close.first);  // 0.5 is 0.0625 of 8
  close = Compare(All({1.5f, -8, 0.25f, 2}), want, 0.03125);
  ASSERT_TRUE(close.first);
  EXPECT_EQ(close.first->at, 0u);
  // No bound admits a NaN or an infinity that should not be there, or the lack of one that should.
  EXPECT_EQ(Compare(All({1, -8, NAN, 2}), want, 1e30).first->at, 2u);
  EXPECT_EQ(Compare(All({1, -8, 0, kInf}), want, 1e30).first->at, 3u);
  EXPECT_EQ(Compare(want, All({1, -8, 0, NAN}), 1e30).first->at, 3u);
  EXPECT_EQ(Compare(want, All({-kInf, -8, 0, 2}), 1e30).first->at, 0u);
  EXPECT_FALSE(Compare(All({NAN, kInf}), All({NAN, kInf}), 0.1).first);
  EXPECT_EQ(Compare(All({kInf}), All({-kInf}), 1e30).first->at, 0u);
}

}  // namespace
}  // namespace glint::plan
