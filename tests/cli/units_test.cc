#include "cli/units.h"

#include <gtest/gtest.h>

#include <limits>

namespace glint::cli {
namespace {

TEST(Units, Grouped) {
  EXPECT_EQ(Grouped(0), "0");
  EXPECT_EQ(Grouped(999), "999");
  EXPECT_EQ(Grouped(1000), "1,000");
  EXPECT_EQ(Grouped(190866009464), "190,866,009,464");
  EXPECT_EQ(Grouped(UINT64_MAX), "18,446,744,073,709,551,615");
}

TEST(Units, BytesHasThreeFigures) {
  EXPECT_EQ(Bytes(0), "0 B");
  EXPECT_EQ(Bytes(999), "999 B");
  EXPECT_EQ(Bytes(1000), "1.00 kB");
  EXPECT_EQ(Bytes(9994), "9.99 kB");
  EXPECT_EQ(Bytes(9996), "10.0 kB");
  EXPECT_EQ(Bytes(99960), "100 kB");
  EXPECT_EQ(Bytes(999499), "999 kB");
  EXPECT_EQ(Bytes(999500), "1.00 MB");
  EXPECT_EQ(Bytes(190866009464), "191 GB");
  EXPECT_EQ(Bytes(UINT64_MAX), "18.4 EB");
}

TEST(Units, Duration) {
  EXPECT_EQ(Duration(0.04), "0.0 s");
  EXPECT_EQ(Duration(9.9), "9.9 s");
  EXPECT_EQ(Duration(59.4), "59 s");
  EXPECT_EQ(Duration(59.6), "1:00");
  EXPECT_EQ(Duration(3599), "59:59");
  EXPECT_EQ(Duration(3729), "1:02:09");
  EXPECT_EQ(Duration(std::numeric_limits<double>::quiet_NaN()), "?");
  EXPECT_NE(Duration(std::numeric_limits<double>::infinity()), "");
}

TEST(Units, Rate) {
  EXPECT_EQ(Rate(0.5), "0.500");
  EXPECT_EQ(Rate(8.314), "8.31");
  EXPECT_EQ(Rate(1204.4), "1,204");
  EXPECT_EQ(Rate(std::numeric_limits<double>::infinity()), "?");
}

}  // namespace
}  // namespace glint::cli
