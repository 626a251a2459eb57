#include "plan/profile.h"

#include <algorithm>
#include <cmath>

namespace glint::plan {
namespace {

// Which row each step belongs to.
std::vector<size_t> MakeRows(const ProfileInput& input, std::vector<ProfileRow>& rows) {
  std::vector<size_t> row_of;
  for (const Step& step : input.plan.steps) {
    const int layer = input.per_layer ? step.layer : -1;
    const auto found = std::find_if(rows.begin(), rows.end(), [&](const ProfileRow& row) {
      return row.covers == step.covers && row.lever == step.lever && row.modifiers == step.modifiers &&
             row.layer == layer;
    });
    row_of.push_back(static_cast<size_t>(found - rows.begin()));
    if (found == rows.end()) {
      ProfileRow row;
      row.covers = step.covers;
      row.lever = step.lever;
      row.modifiers = step.modifiers;
      row.layer = layer;
      rows.push_back(std::move(row));
    }
    ++rows[row_of.back()].calls;
  }
  return row_of;
}

template <class Value>
Quartiles Typical(size_t repetitions, size_t passes, Value value) {
  std::vector<std::vector<double>> runs(repetitions);
  for (size_t r = 0; r < repetitions; ++r)
    for (size_t p = 0; p < passes; ++p) runs[r].push_back(value(r, p));
  return TypicalOf(runs);
}

}  // namespace

Quartiles QuartilesOf(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    const double position = share * static_cast<double>(values.size() - 1);
    const auto below = static_cast<size_t>(std::floor(position));
    const size_t above = std::min(below + 1, values.size() - 1);
    const double part = position - static_cast<double>(below);
    return values[below] + part * (values[above] - values[below]);
  };
  return {at(0.25), at(0.5), at(0.75)};
}

Quartiles TypicalOf(std::span<const std::vector<double>> runs) {
  Quartiles sum;
  const size_t passes = runs.empty() ? 0 : runs.front().size();
  for (size_t p = 0; p < passes; ++p) {
    std::vector<double> values;
    for (const auto& run : runs) values.push_back(run[p]);
    const Quartiles q = QuartilesOf(std::move(values));
    sum.low += q.low, sum.median += q.median, sum.high += q.high;
  }
  const double n = static_cast<double>(std::max<size_t>(passes, 1));
  return {sum.low / n, sum.median / n, sum.high / n};
}

Profile MakeProfile(const ProfileInput& input) {
  Profile profile;
  const auto row_of = MakeRows(input, profile.rows);
  const size_t repetitions = input.timed.size(), passes = input.shapes.size();

  // seconds[repetition][pass][row]
  std::vector<std::vector<std::vector<double>>> seconds(repetitions);
  for (size_t r = 0; r < repetitions; ++r) {
    for (size_t p = 0; p < passes; ++p) {
      auto& sums = seconds[r].emplace_back(profile.rows.size());
      for (size_t s = 0; s < row_of.size(); ++s) sums[row_of[s]] += input.timed[r][p].steps[s].seconds;
    }
  }
  double in_steps = 0;
  for (size_t i = 0; i < profile.rows.size(); ++i) {
    profile.rows[i].seconds =
        Typical(repetitions, passes, [&](size_t r, size_t p) { return seconds[r][p][i]; });
    in_steps += profile.rows[i].seconds.median;
  }
  for (const PassShape& shape : input.shapes) {
    for (size_t s = 0; s < row_of.size(); ++s) {
      profile.rows[row_of[s]].bytes += BytesOf(input.plan.steps[s], input.hparams, input.weights, shape);
    }
  }
  for (ProfileRow& row : profile.rows) {
    row.bytes *= 1 / static_cast<double>(std::max<size_t>(passes, 1));
    profile.bytes += row.bytes;
  }

  const auto whole =
      Typical(repetitions, passes, [&](size_t r, size_t p) { return input.timed[r][p].whole; });
  profile.outside =
      Typical(repetitions, passes, [&](size_t r, size_t p) { return input.timed[r][p].outside; }).median;
  profile.clock = Typical(repetitions, passes, [&](size_t r, size_t p) {
                    double sum = 0;
                    for (const StepTime& step : input.timed[r][p].steps) sum += step.clock;
                    return sum;
                  }).median;
  profile.rest = whole.median - in_steps - profile.clock;
  profile.total = Typical(repetitions, passes, [&](size_t r, size_t p) {
    return input.timed[r][p].whole + input.timed[r][p].outside;
  });
  // Medians of parts need not add up to the median of the whole: the difference, if any, is nobody's.
  profile.rest += profile.total.median - whole.median - profile.outside;
  profile.untimed = TypicalOf(input.untimed);

  std::stable_sort(profile.rows.begin(), profile.rows.end(), [](const ProfileRow& a, const ProfileRow& b) {
    // Outside the layers: what comes before them, then the layers, then the head.
    const auto place = [](const ProfileRow& row) {
      const bool head = row.covers.front() == Stage::kHeadNorm || row.covers.front() == Stage::kHeadLogits;
      return std::pair(row.layer < 0 && head ? 1 : 0, row.layer);
    };
    if (place(a) != place(b)) return place(a) < place(b);
    return a.layer < 0 && a.covers.front() < b.covers.front();  // a layer's steps are in order already
  });
  return profile;
}

}  // namespace glint::plan
