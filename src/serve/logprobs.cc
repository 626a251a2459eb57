#include "serve/logprobs.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/scoring.h"

namespace glint::serve {

RowLogprobs LogprobsOf(std::span<const float> logits, int32_t id, uint32_t top) {
  using Entry = std::pair<int32_t, float>;
  const auto better = [](const Entry& a, const Entry& b) {
    return a.second > b.second || (a.second == b.second && a.first < b.first);
  };
  const double partition = engine::QuickLogPartition(logits);
  const auto logprob = [partition](float logit) {
    return logit > -std::numeric_limits<float>::infinity() ? double{logit} - partition
                                                           : -std::numeric_limits<double>::infinity();
  };
  RowLogprobs out;
  out.logprob = logprob(logits[static_cast<size_t>(id)]);
  if (top == 0) return out;
  // A heap of the best so far, the worst of them in front: nearly all entries lose against it at once.
  std::vector<Entry> best;
  float bar = -std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] > bar)) continue;
    if (best.size() == top) {
      std::pop_heap(best.begin(), best.end(), better);
      best.pop_back();
    }
    best.emplace_back(static_cast<int32_t>(i), logits[i]);
    std::push_heap(best.begin(), best.end(), better);
    if (best.size() == top) bar = best.front().second;
  }
  std::sort(best.begin(), best.end(), better);
  for (const Entry& entry : best) out.top.emplace_back(entry.first, logprob(entry.second));
  return out;
}

}  // namespace glint::serve
