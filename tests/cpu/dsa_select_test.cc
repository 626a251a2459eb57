// dsa.select against a plain sort, where the choice is hard: ties, NaN, equal rows, negative scores.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "tests/cpu/bench.h"

namespace glint::test {
namespace {

using plan::Slot;

enum class Keys { kRandom, kTied, kEqual, kWithNan, kAllNan, kSilent };

std::string NameOf(Keys keys) {
  constexpr std::string_view kNames[] = {"Random", "Tied", "Equal", "WithNan", "AllNan", "Silent"};
  return std::string(kNames[static_cast<int>(keys)]);
}

class DsaSelect : public testing::TestWithParam<Keys> {};

INSTANTIATE_TEST_SUITE_P(Keys, DsaSelect,
                         testing::Values(Keys::kRandom, Keys::kTied, Keys::kEqual, Keys::kWithNan,
                                         Keys::kAllNan, Keys::kSilent),
                         [](const auto& p) { return NameOf(p.param); });

TEST_P(DsaSelect, TakesWhatASortTakes) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  SmallModel model;
  MakeSmall(model, seed, false, 8);  // pools of 8, top 24: 3 pools
  const auto& hp = model.hp;
  const int64_t dim = hp.index_head_dim, heads = hp.index_heads, pool = hp.index_kpool;
  const int rows = 37;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const int64_t position : {0, 5, 20, 23, 24, 300, 2000}) {
    const int64_t pools = (position + rows) / pool;
    std::vector<float> pooled(pools * dim), q(rows * heads * dim), w(rows * heads);
    for (float& x : q) x = model.Normal();
    for (float& x : w) x = model.Normal();
    for (int64_t p = 0; p < pools; ++p) {
      for (int64_t c = 0; c < dim; ++c) {
        float& x = pooled[p * dim + c];
        switch (GetParam()) {
          case Keys::kRandom:
            x = model.Normal();
            break;
          case Keys::kTied:
            x = p >= 4 && model.rng() % 2 == 0 ? pooled[(p - 4) / 2 * dim + c] : model.Normal();
            break;
          case Keys::kEqual:
            x = static_cast<float>(c) - 7;
            break;
          case Keys::kWithNan:
            x = p % 3 == 1 ? nan : model.Normal();
            break;
          case Keys::kAllNan:
            x = nan;
            break;
          case Keys::kSilent:
            x = -100 * q[c] + 0.01f * model.Normal();
            break;  // ReLU stops most heads of row 0
        }
      }
    }
    if (GetParam() == Keys::kTied) {  // whole rows, not single entries, are what ties
      for (int64_t p = 4; p < pools; p += 2)
        std::copy_n(pooled.begin() + p / 3 * dim, dim, pooled.begin() + p * dim);
    }

    // The referee: float scores in the order of docs/design.md, then a stable sort.
    const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(heads * dim)));
    std::vector<std::vector<int32_t>> want;
    for (int r = 0; r < rows; ++r) {
      const int64_t visible = position + r + 1, complete = visible / pool;
      std::vector<float> score(complete);
      for (int64_t p = 0; p < complete; ++p) {
        float sum = 0;
        for (int64_t h = 0; h < heads; ++h) {
          const float dot = cpu::ScalarKernels().dot16(&q[(r * heads + h) * dim], &pooled[p * dim], dim);
          sum = std::fma(w[r * heads + h], dot < 0 ? 0.0f : dot, sum);
        }
        score[p] = sum * scale;
      }
      std::vector<int32_t> order(complete);
      for (int64_t p = 0; p < complete; ++p) order[p] = static_cast<int32_t>(p);
      std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
        if (std::isnan(score[a]) || std::isnan(score[b]))
          return !std::isnan(score[a]) && std::isnan(score[b]);
        return score[a] > score[b];
      });
      order.resize(std::min<size_t>(order.size(), 3));
      std::sort(order.begin(), order.end());
      auto& list = want.emplace_back();
      for (const int32_t p : order) {
        for (int s = 0; s < pool; ++s) list.push_back(static_cast<int32_t>(p * pool + s));
      }
      for (int64_t p = complete * pool; p < visible; ++p) list.push_back(static_cast<int32_t>(p));
    }

    for (const cpu::Kernels* kernels : AllKernels()) {
      for (const int threads : {1, 3}) {
        for (const int piece : {1, 2, rows}) {
          Bench bench(model, rows, 4096, threads);
          std::copy(pooled.begin(), pooled.end(), bench.state->Dsa(1).pooled);
          for (int at = 0; at < rows; at += piece) {
            const int count = std::min(piece, rows - at);
            std::copy_n(q.begin() + at * heads * dim, count * heads * dim, bench.Floats(Slot::kIndexQ));
            std::copy_n(w.begin() + at * heads, count * heads, bench.Floats(Slot::kIndexW));
            bench.Run(cpu::DsaSelect, 1, position + at, count, *kernels, true);
            for (int r = 0; r < count; ++r) {
              const int32_t* list = bench.Ints(Slot::kSelected) + r * hp.max_selected();
              ASSERT_EQ(bench.Ints(Slot::kSelectedCount)[r], static_cast<int32_t>(want[at + r].size()));
              ASSERT_EQ(std::vector<int32_t>(list, list + want[at + r].size()), want[at + r])
                  << "position " << position + at + r << ", " << kernels->name;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace glint::test
