#include "base/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace glint {
namespace {

// The value of a small float by its definition, in double: sign, exponent field, mantissa field.
double Value(uint32_t bits, int exponent_bits, int mantissa_bits, bool has_infinity) {
  const uint32_t mantissa = bits & ((1u << mantissa_bits) - 1);
  const uint32_t exponent = bits >> mantissa_bits & ((1u << exponent_bits) - 1);
  const double sign = bits >> (mantissa_bits + exponent_bits) & 1 ? -1 : 1;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  if (has_infinity && exponent == (1u << exponent_bits) - 1) return mantissa ? NAN : sign * INFINITY;
  const double fraction = std::ldexp(mantissa, -mantissa_bits);
  return sign * (exponent == 0 ? std::ldexp(fraction, 1 - bias)
                               : std::ldexp(1 + fraction, static_cast<int>(exponent) - bias));
}

void ExpectSame(double want, float got, uint32_t bits) {
  if (std::isnan(want)) {
    EXPECT_TRUE(std::isnan(got)) << std::hex << bits;
  } else {
    EXPECT_EQ(want, got) << std::hex << bits;
    EXPECT_EQ(std::signbit(want), std::signbit(got)) << std::hex << bits;
  }
}

TEST(Half, EveryPatternHasItsValueAndComesBack) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const float f = HalfToFloat(static_cast<uint16_t>(h));
    ExpectSame(Value(h, 5, 10, true), f, h);
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(f))));
    } else {
      EXPECT_EQ(FloatToHalf(f), h);
    }
  }
}

TEST(BFloat, EveryPatternHasItsValueAndComesBack) {
  for (uint32_t b = 0; b < 0x10000; ++b) {
    const float f = BFloatToFloat(static_cast<uint16_t>(b));
    ExpectSame(Value(b, 8, 7, true), f, b);
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(BFloatToFloat(FloatToBFloat(f))));
    } else {
      EXPECT_EQ(FloatToBFloat(f), b);
    }
  }
}

TEST(Fp8E4M3, EveryPatternHasItsValue) {
  for (uint32_t v = 0; v < 0x100; ++v)
    ExpectSame((v & 0x7f) == 0x7f ? NAN : Value(v, 4, 3, false), Fp8E4M3ToFloat(static_cast<uint8_t>(v)), v);
}

// Rounding, checked by neighbours: the result must be the nearer of the two, the even one on a tie, and beyond the
// largest finite number by more than half a step an infinity. Neighbours of a pattern are the patterns beside it.
void ExpectNearest(float f, uint32_t got, double (*value)(uint32_t), uint32_t infinity) {
  const uint32_t magnitude = got & 0x7fffu;
  ASSERT_EQ(std::signbit(f), (got & 0x8000u) != 0) << f;
  const double x = std::fabs(static_cast<double>(f));
  ASSERT_LE(magnitude, infinity) << f;
  // The infinity stands where the next finite number would be, for the purpose of rounding.
  const auto at = [&](uint32_t m) { return m == infinity ? 2 * value(m - 1) - value(m - 2) : value(m); };
  const double off = std::fabs(x - at(magnitude));
  if (magnitude == infinity && x >= at(infinity)) return;
  if (magnitude > 0) {
    const double below = std::fabs(x - at(magnitude - 1));
    ASSERT_TRUE(off < below || (off == below && magnitude % 2 == 0)) << f << " gave " << std::hex << got;
  }
  if (magnitude < infinity) {
    const double above = std::fabs(x - at(magnitude + 1));
    ASSERT_TRUE(off < above || (off == above && magnitude % 2 == 0)) << f << " gave " << std::hex << got;
  }
}

double HalfValue(uint32_t m) { return Value(m, 5, 10, true); }
double BFloatValue(uint32_t m) { return Value(m, 8, 7, true); }

TEST(Half, RoundsToNearestEven) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  const auto check = [](float f) {
    if (!std::isnan(f)) ExpectNearest(f, FloatToHalf(f), HalfValue, 0x7c00);
  };
  for (int i = 0; i < 1000000; ++i) {
    // Exponents around and beyond the halves' range, so that most draws round.
    const auto exponent = static_cast<uint32_t>(95 + rng() % 55);
    check(std::bit_cast<float>(static_cast<uint32_t>(rng() & 0x807fffffu) | exponent << 23));
  }
  for (uint32_t m = 0; m < 0x7c00; ++m) {  // every half way point and its float neighbours
    const double next = m + 1 == 0x7c00 ? 65536 : HalfValue(m + 1);
    const auto middle = static_cast<float>((HalfValue(m) + next) / 2);
    for (const float f : {middle, std::nextafterf(middle, 0), std::nextafterf(middle, 1e9f)})
      check(f), check(-f);
  }
  check(INFINITY), check(0.0f), check(-0.0f), check(1e-45f), check(3.4e38f);
  EXPECT_EQ(FloatToHalf(65519.996f), 0x7bff);
  EXPECT_EQ(FloatToHalf(65520.0f), 0x7c00);
}

TEST(BFloat, RoundsToNearestEven) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  for (int i = 0; i < 1000000; ++i) {
    const auto bits =
        static_cast<uint32_t>(i % 4 ? rng() : (rng() & 0xffff0000u) | 0x8000u);  // a quarter are ties
    const auto f = std::bit_cast<float>(bits);
    if (!std::isnan(f)) ExpectNearest(f, FloatToBFloat(f), BFloatValue, 0x7f80);
  }
}

}  // namespace
}  // namespace glint
