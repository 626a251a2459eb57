#include "engine/divergence.h"

#include <algorithm>
#include <cmath>

#include "base/statistics.h"

namespace glint::engine {

TokenDivergence Compare(std::span<const double> base, double base_error, std::span<const float> logits,
                        int32_t id) {
  const double partition = LogPartition(logits);
  TokenDivergence out;
  for (size_t i = 0; i < base.size(); ++i) {
    const double p = std::exp(base[i]);
    if (p > 0) out.kl += p * (base[i] - (static_cast<double>(logits[i]) - partition));
  }
  // Rounding can make a divergence of nothing a little less than nothing.
  out.kl = std::max(out.kl, 0.0);
  const auto top = static_cast<size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  out.same_top = base[top] >= *std::max_element(base.begin(), base.end()) - base_error;
  const auto at = static_cast<size_t>(id);
  out.base_loss = -base[at];
  out.loss = partition - static_cast<double>(logits[at]);
  out.probability_change = std::exp(-out.loss) - std::exp(-out.base_loss);
  return out;
}

void DivergenceBins::Add(int64_t position, const TokenDivergence& token) {
  Row& row = rows_[bins_.BinOf(position)];
  row.kl.push_back(static_cast<float>(token.kl));
  row.same_top += token.same_top;
  row.change += token.probability_change;
  if (std::fabs(token.probability_change) > std::fabs(row.largest)) row.largest = token.probability_change;
  row.base_loss += token.base_loss;
  row.loss += token.loss;
}

DivergenceSummary DivergenceBins::SummaryOf(std::span<const Row> rows) {
  DivergenceSummary out;
  std::vector<double> kl;
  double sum = 0, squares = 0;
  for (const Row& row : rows) {
    kl.insert(kl.end(), row.kl.begin(), row.kl.end());
    out.same_top += static_cast<double>(row.same_top);
    out.mean_change += row.change;
    if (std::fabs(row.largest) > std::fabs(out.largest_change)) out.largest_change = row.largest;
    out.base_loss += row.base_loss;
    out.loss += row.loss;
  }
  if (kl.empty()) return out;
  for (const double x : kl) sum += x, squares += x * x;
  const auto n = static_cast<double>(kl.size());
  out.tokens = static_cast<int64_t>(kl.size());
  out.mean = sum / n;
  out.mean_error = n > 1 ? std::sqrt(std::max(squares / n - out.mean * out.mean, 0.0) / (n - 1)) : 0;
  out.median = Median(kl);
  out.high = Quantile(kl, 0.99);
  out.most = *std::max_element(kl.begin(), kl.end());
  out.same_top /= n;
  out.mean_change /= n;
  out.base_loss /= n;
  out.loss /= n;
  return out;
}

}  // namespace glint::engine
