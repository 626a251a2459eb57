#include "base/checked.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace glint {
namespace {

// All pairs of bytes, against arithmetic in int, which cannot overflow.
TEST(Checked, AgreesWithWiderArithmeticOnAllBytes) {
  for (int a = 0; a < 256; ++a) {
    for (int b = 0; b < 256; ++b) {
      const auto x = static_cast<uint8_t>(a), y = static_cast<uint8_t>(b);
      const auto sum = CheckedAdd(x, y), product = CheckedMul(x, y);
      ASSERT_EQ(sum.has_value(), a + b < 256) << a << " " << b;
      ASSERT_EQ(product.has_value(), a * b < 256) << a << " " << b;
      if (sum) {
        ASSERT_EQ(*sum, a + b);
      }
      if (product) {
        ASSERT_EQ(*product, a * b);
      }
      for (const int size : {0, 1, 100, 255}) {
        ASSERT_EQ(Within(x, y, static_cast<uint8_t>(size)), a + b <= size) << a << " " << b << " " << size;
      }
    }
  }
}

TEST(Checked, AlignsUpOrSaysItCannot) {
  for (int a = 0; a < 256; ++a) {
    for (int to = 1; to < 256; to *= 2) {
      const int want = (a + to - 1) / to * to;
      const auto got = CheckedAlign(static_cast<uint8_t>(a), static_cast<uint8_t>(to));
      ASSERT_EQ(got.has_value(), a + to - 1 < 256) << a << " " << to;
      if (got) {
        ASSERT_EQ(*got, want);
      }
    }
  }
  EXPECT_FALSE(CheckedAlign<uint64_t>(UINT64_MAX - 30, 32));
}

}  // namespace
}  // namespace glint
