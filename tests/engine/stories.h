// Evaluations of the trained model by the rules of its eval.json: loss on held-out text and greedy continuations.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "glint/model.h"
#include "glint/session.h"
#include "tests/engine/reference.h"

namespace glint::test {

// Cross entropy of `target` under a row of logits, in nats.
inline double CrossEntropy(std::span<const float> logits, int32_t target) {
  const double highest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float l : logits) sum += std::exp(l - highest);
  return std::log(sum) + highest - double{logits[static_cast<size_t>(target)]};
}

struct LossResult {
  std::vector<double> windows;  // mean loss of each window's scored tokens
  double loss = 0;              // mean over all scored tokens
  int64_t scored = 0;
};

// Windows start at 0, stride, 2 * stride, ...; the first scores its tokens from the second on, each later one its last
// `stride` only, so that every token counts once; a shorter last window ends the text. At most `most` windows (0: all).
inline LossResult Loss(const Model& model, std::span<const int32_t> ids, size_t window, size_t stride,
                       size_t most = 0) {
  const auto vocab = static_cast<size_t>(model.vocab_size());
  LossResult result;
  double total = 0;
  size_t scored_to = 1;  // tokens before it are scored (the first never is)
  for (size_t start = 0; scored_to < ids.size() && (most == 0 || result.windows.size() < most);
       start += stride) {
    const auto part = ids.subspan(start, std::min(window, ids.size() - start));
    auto session = Session::Create(model, {.context = static_cast<int64_t>(window)});
    EXPECT_TRUE(session.ok()) << session.status().message();
    std::vector<float> logits(part.size() * vocab, NAN);
    EXPECT_TRUE(session->Append(part, LogitRows::kAll, logits).ok());
    double sum = 0;
    const size_t first = scored_to - start, count = part.size() - first;
    for (size_t i = first; i < part.size(); ++i) {
      sum += CrossEntropy(std::span(logits).subspan((i - 1) * vocab, vocab), part[i]);
    }
    scored_to = start + part.size();
    result.windows.push_back(sum / static_cast<double>(count));
    result.scored += static_cast<int64_t>(count);
    total += sum;
  }
  result.loss = total / static_cast<double>(result.scored);
  return result;
}

struct GreedyResult {
  std::vector<int32_t> ids;
  std::vector<float> gaps;  // best less second-best logit at each step
};

inline GreedyResult Greedy(const Model& model, std::span<const int32_t> prompt, size_t tokens) {
  auto session = Session::Create(model, {.context = static_cast<int64_t>(prompt.size() + tokens)});
  EXPECT_TRUE(session.ok()) << session.status().message();
  std::vector<float> logits(static_cast<size_t>(model.vocab_size()));
  GreedyResult result;
  std::vector<int32_t> next(prompt.begin(), prompt.end());
  while (result.ids.size() < tokens) {
    EXPECT_TRUE(session->Append(next, LogitRows::kLast, logits).ok());
    const int32_t best = ArgMax(logits);
    float second = -INFINITY;
    for (size_t i = 0; i < logits.size(); ++i) {
      if (static_cast<int32_t>(i) != best) second = std::max(second, logits[i]);
    }
    result.ids.push_back(best);
    result.gaps.push_back(logits[static_cast<size_t>(best)] - second);
    next = {best};
  }
  return result;
}

// Share of positions at which the MTP block's best guess for the token after next is what the trunk then finds likeliest.
inline double DraftAcceptance(const Model& model, std::span<const int32_t> ids) {
  const auto vocab = static_cast<size_t>(model.vocab_size()),
             width = static_cast<size_t>(model.hidden_size());
  auto session = Session::Create(model, {.context = static_cast<int64_t>(ids.size()), .mtp = true});
  EXPECT_TRUE(session.ok()) << session.status().message();
  const size_t n = ids.size();
  std::vector<float> logits(n * vocab), drafts((n - 1) * vocab), hidden(n * width);
  EXPECT_TRUE(session->AppendWithHidden(ids, LogitRows::kAll, logits, hidden).ok());
  EXPECT_TRUE(session->AppendMtp(ids.subspan(1), std::span(hidden).first((n - 1) * width), drafts, {}).ok());
  size_t equal = 0;
  for (size_t p = 0; p + 1 < n; ++p) {
    equal += ArgMax(std::span(drafts).subspan(p * vocab, vocab)) ==
             ArgMax(std::span(logits).subspan((p + 1) * vocab, vocab));
  }
  return static_cast<double>(equal) / static_cast<double>(n - 1);
}

}  // namespace glint::test
