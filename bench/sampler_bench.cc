// What choosing a token costs, beside one plain pass over the logits in the same run.
//
//   sampler_bench [ids, 32768]
//
// Rows of logits of two kinds: flat (normal, deviation 1: thousands of likely ids) and peaked (deviation 4, as trained models give). Medians of
// 201 draws, each beside a pass that looks for the largest logit; microseconds of the thread's own time.
#include "glint/sampler.h"

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

namespace glint {
namespace {

double Now() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) * 1e-3;
}

double Median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

void Measure(const char* kind, float deviation, const char* name, const SamplerOptions& options, size_t ids) {
  std::mt19937_64 rng(1);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<std::vector<float>> rows(8, std::vector<float>(ids));
  for (auto& row : rows)
    for (float& logit : row) logit = normal(rng);
  auto sampler = Sampler::Create(options, static_cast<int64_t>(ids));
  if (!sampler.ok()) return;
  [[maybe_unused]] static volatile float sink;  // so that the pass is not left out
  std::vector<double> draws, passes;
  for (size_t i = 0; i < 201; ++i) {
    const auto& row = rows[i % rows.size()];
    const double start = Now();
    sink = *std::max_element(row.begin(), row.end());
    const double between = Now();
    if (!sampler->Sample(row).ok()) return;
    draws.push_back(Now() - between), passes.push_back(between - start);
  }
  printf("%-7s %-32s %8.1f us   (a pass %5.1f us)\n", kind, name, Median(draws), Median(passes));
}

void All(size_t ids) {
  const struct {
    const char* name;
    SamplerOptions options;
  } cases[] = {{"greedy", {.temperature = 0}},
               {"temperature 1", {}},
               {"top-p 0.95", {.top_p = 0.95f}},
               {"top-k 40", {.top_k = 40}},
               {"min-p 0.05", {.min_p = 0.05f}},
               {"top-k 40, top-p 0.95, penalties", {.top_k = 40, .top_p = 0.95f, .repetition_penalty = 1.1f}},
               {"temperature 100", {.temperature = 100}}};
  printf("%zu ids\n", ids);
  for (const auto& c : cases) {
    Measure("flat", 1, c.name, c.options, ids);
    Measure("peaked", 4, c.name, c.options, ids);
  }
}

}  // namespace
}  // namespace glint

int main(int argc, char** argv) {
  glint::All(argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 32768);
  return 0;
}
