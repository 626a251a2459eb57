#include "engine/bench_analysis.h"

#include <fmt/core.h>

#include <cmath>
#include <map>

namespace glint::engine {
namespace {

// Of each half of a block, in which every arm has one sample: the logarithm of the arm's rate over the first arm's. Halves and not
// whole blocks, because a disturbance that spoils one sample should spoil as little else as possible; the drift within a half
// has the other sign in the block's other half, and so moves no median.
std::vector<double> LogRatios(const BenchRun& run, const BenchCell& cell, int arms) {
  struct Pair {
    double base = 0, other = 0;  // seconds
  };
  std::map<int, Pair> halves;  // by their place in the order of measuring
  for (const BenchSample& s : run.samples) {
    if (s.depth != cell.depth || s.Work() != cell.Work() || s.block < 0) continue;
    Pair& pair = halves[2 * s.block + (s.position < arms ? 0 : 1)];
    if (s.arm == 0) pair.base = s.seconds;
    if (s.arm == cell.arm) pair.other = s.seconds;
  }
  std::vector<double> ratios;
  for (const auto& [half, pair] : halves) {
    if (pair.base > 0 && pair.other > 0) ratios.push_back(std::log(pair.base / pair.other));
  }
  return ratios;
}

void Compare(const BenchRun& run, int arms, double confidence, BenchCell& cell) {
  const std::vector<double> ratios = LogRatios(run, cell, arms);
  cell.pairs = static_cast<int>(ratios.size());
  const auto found = IntervalOfMedian(ratios, confidence);
  if (!found) {
    cell.verdict = BenchVerdict::kTooFew;
    return;
  }
  cell.ratio =
      MedianInterval{std::exp(found->median), std::exp(found->low), std::exp(found->high), found->confidence};
  cell.verdict = found->low > 0    ? BenchVerdict::kFaster
                 : found->high < 0 ? BenchVerdict::kSlower
                                   : BenchVerdict::kUnresolved;
}

}  // namespace

std::string_view Name(BenchVerdict verdict) {
  switch (verdict) {
    case BenchVerdict::kNone:
      return "base";
    case BenchVerdict::kTooFew:
      return "too_few_pairs";
    case BenchVerdict::kUnresolved:
      return "no_difference_resolved";
    case BenchVerdict::kFaster:
      return "faster";
    case BenchVerdict::kSlower:
      return "slower";
  }
  return "?";
}

int Comparisons(const BenchSettings& settings, int arms) {
  return (arms - 1) * static_cast<int>(settings.Works().size() * settings.depths.size());
}

namespace {

// Bonferroni: the chances of a wrong interval add up to at most the one allowed.
double Each(int comparisons, double confidence) { return 1 - (1 - confidence) / std::max(comparisons, 1); }

}  // namespace

int FewestPairs(int comparisons, double confidence) {
  return FewestForConfidence(Each(comparisons, confidence));
}

BenchAnalysis Analyse(const BenchRun& run, const BenchSettings& settings, int arms, double confidence) {
  BenchAnalysis out;
  out.comparisons = Comparisons(settings, arms);
  out.each = Each(out.comparisons, confidence);
  for (int depth = 0; depth < static_cast<int>(settings.depths.size()); ++depth) {
    for (const BenchWork& work : settings.Works()) {
      for (int arm = 0; arm < arms; ++arm) {
        BenchCell cell;
        cell.arm = arm, cell.depth = depth, cell.phase = work.phase, cell.rows = work.rows;
        std::vector<double> rates;
        for (const BenchSample& s : run.samples) {
          if (s.arm != arm || s.depth != depth || s.Work() != work) continue;
          if (s.block < 0)
            cell.warmup.push_back(s.seconds);
          else
            rates.push_back(static_cast<double>(settings.Tokens(work)) / s.seconds);
        }
        if (rates.empty()) continue;
        cell.samples = static_cast<int>(rates.size());
        cell.rate = SpreadOf(rates);
        if (arm > 0) Compare(run, arms, out.each, cell);
        out.cells.push_back(std::move(cell));
      }
    }
  }
  return out;
}

std::string Describe(const BenchCell& cell, int fewest_pairs) {
  const auto percent = [](double ratio) { return 100 * (ratio - 1); };
  switch (cell.verdict) {
    case BenchVerdict::kNone:
      return "";
    case BenchVerdict::kTooFew:
      return fmt::format("too few samples to tell: {} pairs, and it takes {}", cell.pairs, fewest_pairs);
    case BenchVerdict::kUnresolved:
      return fmt::format("no difference resolved ({:+.1f} % to {:+.1f} %)", percent(cell.ratio->low),
                         percent(cell.ratio->high));
    case BenchVerdict::kFaster:
      return fmt::format("{:.1f} % faster ({:.1f} % to {:.1f} %)", percent(cell.ratio->median),
                         percent(cell.ratio->low), percent(cell.ratio->high));
    case BenchVerdict::kSlower:
      return fmt::format("{:.1f} % slower ({:.1f} % to {:.1f} %)", -percent(cell.ratio->median),
                         -percent(cell.ratio->high), -percent(cell.ratio->low));
  }
  return "";
}

}  // namespace glint::engine
