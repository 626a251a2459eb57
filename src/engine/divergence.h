// How far one model's predictions are from another's, by position.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/scoring.h"

namespace glint::engine {

// What one token adds: p is the base's distribution, q the model's.
struct TokenDivergence {
  double kl = 0;                   // sum p log(p / q), in nats
  bool same_top = false;           // both find the same token likeliest
  double probability_change = 0;   // q - p of the token that came
  double base_loss = 0, loss = 0;  // -log p, -log q of it
};

// `base`: log-probabilities [vocab] that sum to one, each known to within `base_error`; `logits`: the model's row. The model's likeliest
// token is the base's too if none of the base's is more likely by more than that.
TokenDivergence Compare(std::span<const double> base, double base_error, std::span<const float> logits,
                        int32_t id);

struct DivergenceSummary {
  int64_t tokens = 0;
  double mean = 0, mean_error = 0, median = 0, high = 0, most = 0;  // of KL; high: the 99 % quantile
  double same_top = 0;                                              // share
  double mean_change = 0,
         largest_change = 0;       // of the probability of the token that came; largest by magnitude
  double base_loss = 0, loss = 0;  // means
};

// One bin a range of positions, and all of them together.
class DivergenceBins {
 public:
  explicit DivergenceBins(PositionBins bins) : bins_(std::move(bins)), rows_(bins_.edges.size()) {}
  void Add(int64_t position, const TokenDivergence& token);
  const PositionBins& bins() const { return bins_; }
  DivergenceSummary Bin(size_t bin) const { return SummaryOf(std::span(&rows_[bin], 1)); }
  DivergenceSummary All() const { return SummaryOf(rows_); }

 private:
  struct Row {
    std::vector<float> kl;
    int64_t same_top = 0;
    double change = 0, largest = 0, base_loss = 0, loss = 0;
  };
  static DivergenceSummary SummaryOf(std::span<const Row> rows);
  PositionBins bins_;
  std::vector<Row> rows_;
};

}  // namespace glint::engine
