// Statistics of repeated measurements: a sample's middle and spread, and where the true middle may lie.
#pragma once
#include <optional>
#include <span>

namespace glint {

// The p-quantile (0 <= p <= 1) by linear interpolation between order statistics, as R's type 7 and NumPy's default.
// NaN for no values. `values` need not be sorted.
double Quantile(std::span<const double> values, double p);
double Median(std::span<const double> values);

struct Spread {
  double least = 0, low = 0, median = 0, high = 0, most = 0;  // low, high: the quartiles
};
Spread SpreadOf(std::span<const double> values);

struct MedianInterval {
  double median = 0;         // of the values
  double low = 0, high = 0;  // two of the values, between which the true median lies
  double confidence = 0;     // with at least this probability: what was asked for, or a little more
};

// The interval of the sign test: the k-th value from below and from above, where k is the largest for which fewer than k of n fair
// coins show heads with a chance of (1 - confidence) / 2 at most (e.g. Hollander, Wolfe, Chicken, Nonparametric Statistical
// Methods, 3.6). It is exact whatever the distribution, symmetric or not, and values far out neither move nor widen it, as
// long as they are few. nullopt if there are too few values for the confidence (FewestForConfidence).
//
// 0 < confidence < 1.
std::optional<MedianInterval> IntervalOfMedian(std::span<const double> values, double confidence);

// The fewest values that give an interval: the smallest n with 2^(1-n) <= 1 - confidence.
int FewestForConfidence(double confidence);

// P(X <= k) of X, the heads of n fair coins.
double FairCoins(int n, int k);

}  // namespace glint
