#include "serve/pace.h"

#include <gtest/gtest.h>

namespace glint::serve {
namespace {

// A machine on which a pass takes `fixed` seconds and `each` more for a row.
int64_t Settles(double fixed, double each, double bound, int64_t most) {
  Pace pace(bound, 16, most);
  for (int i = 0; i < 40; ++i) {
    const auto rows = pace.rows();
    pace.Saw(rows, fixed + each * static_cast<double>(rows));
  }
  return pace.rows();
}

TEST(Pace, StaysBelowTheBound) {
  for (const double each : {1e-5, 1e-4, 1e-3, 3e-3}) {
    const int64_t rows = Settles(0.005, each, 0.25, 2048);
    EXPECT_EQ(rows % 16, 0);
    EXPECT_LE(0.005 + each * static_cast<double>(rows), 0.25) << each;
    // And uses half of it at least, where there are rows for it.
    if (rows < 2048) {
      EXPECT_GE(0.005 + each * static_cast<double>(rows), 0.125) << each;
    }
  }
}

TEST(Pace, NeverStops) {
  EXPECT_EQ(Settles(10, 1, 0.25, 2048), 16);
  EXPECT_EQ(Settles(0, 1e-9, 0.25, 2048), 2048);
  EXPECT_EQ(Settles(0, 1e-9, 0.25, 40), 32);
  EXPECT_EQ(Settles(0, 1e-9, 0.25, 3), 16) << "a block goes on in any case";
}

TEST(Pace, ShortPassesSayNothingOfLongOnes) {
  Pace pace(0.25, 16, 2048);
  const int64_t before = pace.rows();
  for (int i = 0; i < 10; ++i) pace.Saw(2, 0.01);
  EXPECT_EQ(pace.rows(), before);
  pace.Saw(2048, 2);  // of a prompt alone: what it tells holds
  pace.Saw(1024, 1);
  EXPECT_LE(pace.rows(), 256);
  pace.Saw(pace.rows(), 0);
  pace.Saw(0, 1);
  EXPECT_GE(pace.rows(), 16);
}

}  // namespace
}  // namespace glint::serve
