#include "base/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace glint {
namespace {

double QuantileOfSorted(std::span<const double> sorted, double p) {
  if (sorted.empty()) return std::numeric_limits<double>::quiet_NaN();
  const double at = std::clamp(p, 0.0, 1.0) * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

std::vector<double> Sorted(std::span<const double> values) {
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

}  // namespace

double Quantile(std::span<const double> values, double p) { return QuantileOfSorted(Sorted(values), p); }

double Median(std::span<const double> values) { return Quantile(values, 0.5); }

Spread SpreadOf(std::span<const double> values) {
  const std::vector<double> sorted = Sorted(values);
  return {.least = QuantileOfSorted(sorted, 0),
          .low = QuantileOfSorted(sorted, 0.25),
          .median = QuantileOfSorted(sorted, 0.5),
          .high = QuantileOfSorted(sorted, 0.75),
          .most = QuantileOfSorted(sorted, 1)};
}

double FairCoins(int n, int k) {
  if (k < 0) return 0;
  if (k >= n) return 1;
  double sum = 0;
  for (int heads = 0; heads <= k; ++heads) {
    // By logarithms: 2^-n alone is 0 from n = 1075 on.
    const double ways = std::lgamma(n + 1.0) - std::lgamma(heads + 1.0) - std::lgamma(n - heads + 1.0);
    sum += std::exp(ways - n * std::log(2.0));
  }
  return std::min(sum, 1.0);
}

int FewestForConfidence(double confidence) {
  int n = 1;
  // Below the last bit of 1 no confidence can be told from certainty.
  for (double tails = 1; tails > 1 - confidence && n < 60; tails /= 2) ++n;
  return n;
}

std::optional<MedianInterval> IntervalOfMedian(std::span<const double> values, double confidence) {
  const int n = static_cast<int>(values.size());
  if (n < FewestForConfidence(confidence)) return std::nullopt;
  const std::vector<double> sorted = Sorted(values);
  // The median is below the k-th value where fewer than k values lie below it, and so on from above.
  const double tail = (1 - confidence) / 2;
  int k = 1;
  double outside = FairCoins(n, 0);
  while (2 * (k + 1) <= n) {
    const double further = FairCoins(n, k);
    if (further > tail) break;
    outside = further;
    ++k;
  }
  const auto at = static_cast<size_t>(k);
  return MedianInterval{.median = QuantileOfSorted(sorted, 0.5),
                        .low = sorted[at - 1],
                        .high = sorted[sorted.size() - at],
                        .confidence = 1 - 2 * outside};
}

}  // namespace glint
