// What the samples of a benchmark say: rates, their spread, and whether arms differ. Pure functions of the samples.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/statistics.h"
#include "engine/bench.h"

namespace glint::engine {

enum class BenchVerdict : uint8_t {
  kNone,        // the first arm, which the others are compared with
  kTooFew,      // not enough pairs for the confidence asked for
  kUnresolved,  // the interval holds 1
  kFaster,
  kSlower,
};
std::string_view Name(
    BenchVerdict verdict);  // "base", "too_few_pairs", "no_difference_resolved", "faster", "slower"

// One arm at one depth in one phase.
struct BenchCell {
  int arm = 0, depth = 0;  // indices
  BenchPhase phase = BenchPhase::kPrefill;
  int samples = 0;                      // warm-up not counted
  Spread rate;                          // tokens/s
  std::vector<double> warmup;           // seconds of each
  int pairs = 0;                        // of samples that were compared with the first arm's
  std::optional<MedianInterval> ratio;  // of this arm's tokens/s to the first arm's
  BenchVerdict verdict = BenchVerdict::kNone;
  int rows = 1;  // of a pass of decode

  BenchWork Work() const { return {phase, rows}; }
  double SecondsAPass() const { return rows / rate.median; }  // median; of decode
};

struct BenchAnalysis {
  std::vector<BenchCell> cells;  // depth, then phase and rows, then arm; those without a sample are left out
  int comparisons = 0;           // intervals that are to hold together
  double each = 0;               // confidence of one of them: 1 - (1 - confidence) / comparisons
};

// confidence: that all intervals of the run hold the truth at once.
BenchAnalysis Analyse(const BenchRun& run, const BenchSettings& settings, int arms, double confidence);

// Pairs that give an interval for that many comparisons at that confidence; a block has two.
int FewestPairs(int comparisons, double confidence);
int Comparisons(const BenchSettings& settings, int arms);

// "3.1 % slower (2.8 % to 3.4 %)", "no difference resolved (-0.4 % to +0.6 %)", "too few samples to tell: 4 pairs, and it takes 9".
// Empty for the first arm.
std::string Describe(const BenchCell& cell, int fewest_pairs);

}  // namespace glint::engine
