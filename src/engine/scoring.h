// A text read in windows: how probable a model found each of its tokens.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/progress.h"
#include "glint/model.h"
#include "glint/status.h"

namespace glint::engine {

// Windows of `context` tokens begin at 0, stride, 2 stride, ... Each is read from an empty state. In it the tokens from `first` on
// are scored that no window before scored, so with first <= context - stride every token from `first` on is scored once. The last
// window may be shorter.
struct Windows {
  int64_t context = 0, stride = 0, first = 1;
  friend bool operator==(const Windows&, const Windows&) = default;
};

// Context min(2048, what the model was made for), stride half of it.
Windows DefaultWindows(const Model& model);
// kBadInput for numbers that make no windows, of any model and text.
Status CheckWindows(const Windows& windows);
// The same for more than the model was made for, or a text that is too short.
Status CheckWindows(const Windows& windows, const Model& model, size_t tokens);
int64_t ScoredTokens(const Windows& windows, size_t tokens);
// Tokens that all windows read together: what progress counts.
int64_t TokensToRead(const Windows& windows, size_t tokens);

// One scored token.
struct ScoredToken {
  int64_t position = 0;           // in its window: tokens that were read before it
  int64_t index = 0;              // in the text
  int32_t id = 0;                 // the token that came
  std::span<const float> logits;  // [vocab], of the row before it
};

// Calls `each` for every scored token, in order. Its failure ends the work.
Status ScoreText(const Model& model, std::span<const int32_t> ids, const Windows& windows,
                 const std::function<Status(const ScoredToken&)>& each, const Progress& progress = {});

// The same for two models side by side, a piece of a window at a time, the one that reads first changing: what else the machine
// does falls on both alike. `each` gets what both make of the same token. kBadInput for vocabularies of two sizes. seconds: what
// each spent reading the tokens; may be null.
Status ScoreTogether(const Model& a, const Model& b, std::span<const int32_t> ids, const Windows& windows,
                     const std::function<Status(const ScoredToken&, const ScoredToken&)>& each,
                     std::array<double, 2>* seconds, const Progress& progress = {});

// log sum exp of a row, in double precision: log-probability = logit - this.
double LogPartition(std::span<const float> logits);
// The same to within 1e-6, for where it is wanted for every token that is generated: exponentials in float, their sum in double. NaN
// counts as -infinity. -infinity if nothing else is there.
double QuickLogPartition(std::span<const float> logits);

// Where in its window a token lies: [edges[i], edges[i + 1]); the last has no end.
struct PositionBins {
  std::vector<int64_t> edges{0, 512, 4096, 16384};
  size_t BinOf(int64_t position) const;
  std::string Name(size_t bin) const;  // "0-512", "16384+"
};

// Sums of a perplexity.
struct LossSums {
  double nats = 0, squares = 0;
  int64_t tokens = 0;
  void Add(double loss) { nats += loss, squares += loss * loss, ++tokens; }
  double Mean() const { return tokens > 0 ? nats / static_cast<double>(tokens) : 0; }
  double MeanError() const;  // standard error of the mean, as if tokens were independent
};

}  // namespace glint::engine
