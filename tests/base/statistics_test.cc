#include "base/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <vector>

namespace glint {
namespace {

// numpy.quantile([7, 1, 3, 10], p), worked out by hand from its definition.
TEST(Statistics, QuantilesInterpolate) {
  const std::vector<double> values{7, 1, 3, 10};
  EXPECT_DOUBLE_EQ(Quantile(values, 0), 1);
  EXPECT_DOUBLE_EQ(Quantile(values, 0.25), 2.5);
  EXPECT_DOUBLE_EQ(Median(values), 5);
  EXPECT_DOUBLE_EQ(Quantile(values, 0.75), 7.75);
  EXPECT_DOUBLE_EQ(Quantile(values, 0.9), 9.1);
  EXPECT_DOUBLE_EQ(Quantile(values, 1), 10);
  EXPECT_DOUBLE_EQ(Median(std::vector<double>{4}), 4);
  EXPECT_TRUE(std::isnan(Median({})));
  const Spread spread = SpreadOf(values);
  EXPECT_EQ((std::vector<double>{spread.least, spread.low, spread.median, spread.high, spread.most}),
            (std::vector<double>{1, 2.5, 5, 7.75, 10}));
}

// Exact values: sums of binomial coefficients over 2^n.
TEST(Statistics, FairCoinsAreTheBinomialDistribution) {
  EXPECT_NEAR(FairCoins(10, 2), 56.0 / 1024, 1e-14);
  EXPECT_NEAR(FairCoins(20, 5), 21700.0 / 1048576, 1e-14);
  EXPECT_NEAR(FairCoins(1, 0), 0.5, 1e-15);
  EXPECT_EQ(FairCoins(5, -1), 0);
  EXPECT_EQ(FairCoins(5, 5), 1);
  // Symmetry, for n where 2^-n is no double any more.
  EXPECT_NEAR(FairCoins(3001, 1500), 0.5, 1e-9);
}

// Published ranks of the distribution-free interval of a median, as in the tables of textbooks (Conover, Practical Nonparametric
// Statistics; Hahn and Meeker, Statistical Intervals, table A.15): n, confidence asked for, ranks from below and above,
// confidence reached.
TEST(Statistics, IntervalsOfTheMedianAreThePublishedOnes) {
  struct Row {
    int n;
    double asked;
    int low, high;
    double reached;
  };
  for (const Row& row :
       {Row{6, 0.95, 1, 6, 0.96875}, Row{8, 0.95, 1, 8, 0.9921875}, Row{9, 0.95, 2, 8, 0.9609},
        Row{10, 0.95, 2, 9, 0.9785}, Row{12, 0.95, 3, 10, 0.9614}, Row{15, 0.95, 4, 12, 0.9648},
        Row{20, 0.95, 6, 15, 0.9586}, Row{25, 0.95, 8, 18, 0.9567}, Row{30, 0.95, 10, 21, 0.9572},
        Row{10, 0.99, 1, 10, 0.9980}, Row{20, 0.99, 4, 17, 0.9974}, Row{100, 0.95, 40, 61, 0.9648}}) {
    SCOPED_TRACE(row.n);
    std::vector<double> values;
    for (int i = row.n; i >= 1; --i) values.push_back(i);
    const auto interval = IntervalOfMedian(values, row.asked);
    ASSERT_TRUE(interval.has_value());
    EXPECT_EQ(interval->low, row.low);
    EXPECT_EQ(interval->high, row.high);
    EXPECT_NEAR(interval->confidence, row.reached, 6e-5);
    EXPECT_EQ(interval->median, (row.n + 1) / 2.0);
  }
}

TEST(Statistics, TooFewValuesGiveNoInterval) {
  for (const double confidence : {0.5, 0.9, 0.95, 0.975, 0.99, 0.9999}) {
    SCOPED_TRACE(confidence);
    const int fewest = FewestForConfidence(confidence);
    EXPECT_LE(std::pow(2, 1 - fewest), 1 - confidence + 1e-12);
    EXPECT_GT(std::pow(2, 2 - fewest), 1 - confidence);
    const std::vector<double> values(static_cast<size_t>(fewest), 1.0);
    EXPECT_TRUE(IntervalOfMedian(values, confidence).has_value());
    EXPECT_FALSE(IntervalOfMedian(std::span(values).first(values.size() - 1), confidence).has_value());
  }
  EXPECT_FALSE(IntervalOfMedian({}, 0.9).has_value());
  EXPECT_EQ(FewestForConfidence(0.5), 2);
  EXPECT_EQ(FewestForConfidence(0.95), 6);
}

// The interval holds the true median as often as it says, neither less nor more: samples of distributions whose median is known to
// be 0, symmetric, skewed and with tails so heavy that there is no mean.
TEST(Statistics, IntervalsCoverAsOftenAsTheySay) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform;
  const std::vector<std::pair<const char*, std::function<double()>>> distributions{
      {"normal", [&] { return normal(rng); }},
      {"exponential", [&] { return -std::log(1 - uniform(rng)) - std::log(2.0); }},
      {"Cauchy", [&] { return std::tan((uniform(rng) - 0.5) * 3.14159265358979); }}};
  constexpr int kRuns = 20000;
  for (const auto& [name, draw] : distributions) {
    for (const int n : {7, 16, 41}) {
      SCOPED_TRACE(testing::Message() << name << " " << n);
      int held = 0;
      double says = 0;
      std::vector<double> values(static_cast<size_t>(n));
      for (int run = 0; run < kRuns; ++run) {
        for (double& value : values) value = draw();
        const auto interval = IntervalOfMedian(values, 0.95);
        ASSERT_TRUE(interval.has_value());
        says = interval->confidence;
        held += interval->low <= 0 && 0 <= interval->high ? 1 : 0;
      }
      EXPECT_GE(says, 0.95);
      // Six standard deviations: once in 10^9 by chance.
      EXPECT_NEAR(held, kRuns * says, 6 * std::sqrt(kRuns * says * (1 - says)));
    }
  }
}

// A third of the values anywhere at all, on one side: the interval stays where the others are.
TEST(Statistics, OutliersDoNotMoveTheInterval) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::vector<double> values;
  for (int i = 0; i < 80; ++i) values.push_back(uniform(rng));
  for (int i = 0; i < 24; ++i) values.push_back(1e9);
  const auto interval = IntervalOfMedian(values, 0.99);
  ASSERT_TRUE(interval.has_value());
  EXPECT_GE(interval->low, -1);
  EXPECT_LE(interval->high, 1);
}

}  // namespace
}  // namespace glint
