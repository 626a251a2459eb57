// The encoders of the IQ formats against every point of their grids with every sign, in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "quant/format.h"
#include "quant/iq4_fit.h"
#include "quant/iq_grids.h"
#include "quant/iq_search.h"
#include "quant/iq_signs.h"

namespace glint::quant {
namespace {

using Floats = std::vector<float>;

struct Group {
  float x[32], w[32], scale;

  // Scales around those that fit, and some far away; some weights and importances of 0.
  explicit Group(std::mt19937_64& rng, float level) {
    std::student_t_distribution<float> student(4);
    std::lognormal_distribution<float> log_normal(0, 2);
    for (size_t i = 0; i < 32; ++i) {
      x[i] = rng() % 16 ? student(rng) : 0;
      w[i] = rng() % 16 ? log_normal(rng) : 0;
    }
    scale = std::ldexp(log_normal(rng), rng() % 8 ? -2 : static_cast<int>(rng() % 16) - 8) / level;
  }
};

// What 8 weights lose at least: all points of each of their parts, all signs allowed.
template <size_t kPoints, size_t kColumns>
double Least(const Grid<kPoints, kColumns>& grid, const float* x, const float* w, double scale, bool even) {
  constexpr size_t kParts = 8 / kColumns, kSigns = size_t{1} << kColumns;
  // By part and parity.
  double least[2][2];
  for (auto& part : least)
    for (auto& v : part) v = std::numeric_limits<double>::infinity();
  for (size_t p = 0; p < kParts; ++p) {
    for (size_t point = 0; point < kPoints; ++point) {
      for (size_t signs = 0; signs < kSigns; ++signs) {
        double cost = 0;
        for (size_t i = 0; i < kColumns; ++i) {
          const double c = grid.point[point][i] * (signs >> i & 1 ? -1.0 : 1.0);
          const double off = x[p * kColumns + i] - scale * c;
          cost += w[p * kColumns + i] * off * off;
        }
        double& best = least[p][std::popcount(signs) % 2];
        best = std::min(best, cost);
      }
    }
  }
  if (kParts == 1) return even ? least[0][0] : std::min(least[0][0], least[0][1]);
  const double same = std::min(least[0][0] + least[1][0], least[0][1] + least[1][1]);
  const double other = std::min(least[0][0] + least[1][1], least[0][1] + least[1][0]);
  return even ? same : std::min(same, other);
}

// The choice is the best of all, but for the roundings of about 20 sums in float.
template <class Search, size_t kPoints, size_t kColumns, size_t kLevels>
void ChoosesTheBest(const Grid<kPoints, kColumns>& grid, const std::array<int8_t, kLevels>& levels,
                    bool even) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  const typename Search::Index index(grid, levels);
  for (int repeat = 0; repeat < 12; ++repeat) {
    const Group group(rng, levels.back() / 2.0f);
    const auto unit = Search::Search(index, group.x, group.w, group.scale);
    double least = 0, ours = 0, scale = static_cast<double>(group.scale), xc = 0, cc = 0;
    for (size_t g = 0; g < unit.signs.size(); ++g) {
      least += Least(grid, group.x + g * 8, group.w + g * 8, scale, even);
      if (even) {
        ASSERT_EQ(std::popcount(unit.signs[g]) % 2, 0) << repeat;
      }
      for (size_t i = 0; i < 8; ++i) {
        const size_t k = g * 8 + i;
        const double c =
            grid.point[unit.point[k / kColumns]][k % kColumns] * (unit.signs[g] >> i & 1 ? -1.0 : 1.0);
        const double off = group.x[k] - scale * c;
        ours += group.w[k] * off * off;
        xc += group.w[k] * group.x[k] * c, cc += group.w[k] * c * c;
      }
    }
    ASSERT_LE(ours, least * (1 + 1e-5)) << repeat;
    ASSERT_GE(ours, least * (1 - 1e-9)) << repeat << ": the test does not try all";
    ASSERT_NEAR(unit.sums.cost, ours, 1e-5 * ours) << repeat;
    ASSERT_NEAR(unit.sums.xc, xc, 1e-5 * (std::fabs(xc) + cc)) << repeat;
    ASSERT_NEAR(unit.sums.cc, cc, 1e-5 * cc) << repeat;
  }
}

TEST(IqSearch, Iq2XxsChoosesTheBest) {
  ChoosesTheBest<SignedSearch<kIq2XxsGrid, 256, 8, 3, kIq2Levels, 8, 32, true>>(kIq2XxsGrid, kIq2Levels,
                                                                                true);
}
TEST(IqSearch, Iq2XsChoosesTheBest) {
  ChoosesTheBest<SignedSearch<kIq2XsGrid, 512, 8, 3, kIq2Levels, 16, 16, true>>(kIq2XsGrid, kIq2Levels, true);
}
TEST(IqSearch, Iq2SChoosesTheBest) {
  ChoosesTheBest<SignedSearch<kIq2SGrid, 1024, 8, 3, kIq2Levels, 16, 16, false>>(kIq2SGrid, kIq2Levels,
                                                                                 false);
}
TEST(IqSearch, Iq3XxsChoosesTheBest) {
  ChoosesTheBest<SignedSearch<kIq3XxsGrid, 256, 4, 8, kIq3XxsLevels, 8, 32, true>>(kIq3XxsGrid, kIq3XxsLevels,
                                                                                   true);
}
TEST(IqSearch, Iq3SChoosesTheBest) {
  ChoosesTheBest<SignedSearch<kIq3SGrid, 512, 4, 8, kIq3SLevels, 8, 32, false>>(kIq3SGrid, kIq3SLevels,
                                                                                false);
}

template <class Search, size_t kShift>
void ChoosesTheBestTernary() {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  const typename Search::Index index(kIq1Grid, {-1, 0, 1});
  for (int repeat = 0; repeat < 64; ++repeat) {
    const Group group(rng, 5);
    const auto unit = Search::Search(index, group.x, group.w, group.scale);
    const auto cost = [&](size_t g, const int8_t(&point)[8], bool down) {
      double sum = 0;
      for (size_t i = 0; i < 8; ++i) {
        const double off =
            group.x[g * 8 + i] - static_cast<double>(group.scale) * (8 * point[i] + (down ? -1 : 1));
        sum += group.w[g * 8 + i] * off * off;
      }
      return sum;
    };
    double ours = 0, least = 0;
    for (size_t first = 0; first < unit.point.size(); first += kShift / 8) {
      double best[2] = {};
      for (size_t g = first; g < first + kShift / 8; ++g) {
        ASSERT_EQ(unit.down[g], unit.down[first]);
        ours += cost(g, kIq1Grid.point[unit.point[g]], unit.down[g]);
        for (const bool down : {false, true}) {
          double group_best = std::numeric_limits<double>::infinity();
          for (const auto& point : kIq1Grid.point) group_best = std::min(group_best, cost(g, point, down));
          best[down] += group_best;
        }
      }
      least += std::min(best[0], best[1]);
    }
    ASSERT_LE(ours, least * (1 + 1e-5)) << repeat;
    ASSERT_GE(ours, least * (1 - 1e-9)) << repeat << ": the test does not try all";
  }
}

TEST(IqSearch, Iq1SChoosesTheBest) { ChoosesTheBestTernary<TernarySearch<8, 32, 32>, 32>(); }
TEST(IqSearch, Iq1MChoosesTheBest) { ChoosesTheBestTernary<TernarySearch<16, 16, 8>, 8>(); }

// Every quarter between the values and beyond; in the middle of two either will do.
TEST(Iq4Nearest, IsTheNearest) {
  for (int quarter = -4 * 200; quarter <= 4 * 200; ++quarter) {
    const float v = 0.25f * static_cast<float>(quarter);
    float least = INFINITY;
    for (const int8_t value : kIq4Values) least = std::min(least, std::fabs(v - static_cast<float>(value)));
    EXPECT_EQ(std::fabs(v - static_cast<float>(kIq4Values[kIq4Nearest(v)])), least) << v;
  }
  EXPECT_EQ(kIq4Nearest(NAN), 0);
  EXPECT_EQ(kIq4Nearest(INFINITY), 15);
  EXPECT_EQ(kIq4Nearest(-INFINITY), 0);
}

}  // namespace
}  // namespace glint::quant
