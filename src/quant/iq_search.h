// The searches of the IQ encoders: the best point of a grid for a group of weights at a given scale, and the scales of a block's units.
// A point's cost is the sum of its coordinates' costs, so all points are tried through the sums of their halves; what is
// found is the best that there is, in float arithmetic of one order: the same bytes everywhere.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "quant/fit.h"
#include "quant/iq_grids.h"

namespace glint::quant {

// How a format's grid is numbered: coordinate i of a point is kLevels[k_i].
template <size_t kPoints, size_t kColumns, size_t kLevels>
class PointIndex {
 public:
  static constexpr size_t kN = kColumns, kL = kLevels, kHalf = kColumns / 2;
  static constexpr size_t kCombinations =
      kHalf == 2 ? kLevels * kLevels : kLevels * kLevels * kLevels * kLevels;

  // The published grids list their points in ascending order, the first coordinate counting least, so that those with the same
  // upper half lie together. Levels ascend.
  PointIndex(const Grid<kPoints, kColumns>& grid, const std::array<int8_t, kLevels>& levels) {
    std::array<uint16_t, kCombinations + 1> count{};
    for (size_t p = 0; p < kPoints; ++p) {
      size_t low = 0, high = 0;
      for (size_t i = kHalf; i-- > 0;) {
        low = low * kLevels + Level(levels, grid.point[p][i]);
        high = high * kLevels + Level(levels, grid.point[p][i + kHalf]);
      }
      low_[p] = static_cast<uint8_t>(low);
      ++count[high + 1];
    }
    for (size_t c = 0; c < kCombinations; ++c)
      start_[c + 1] = static_cast<uint16_t>(start_[c] + count[c + 1]);
  }

  // What each half of a point costs, by its combination of levels (the first coordinate counts least).
  struct Halves {
    alignas(64) float low[kCombinations];
    alignas(64) float high[kCombinations];
    float least_low, least_high;
    size_t cheapest_high;

    // cost[level][coordinate].
    explicit Halves(const float (&cost)[kLevels][kColumns]) {
      Combine(cost, 0, low, [](float a, float b) { return a + b; });
      Combine(cost, kHalf, high, [](float a, float b) { return a + b; });
      size_t unused = 0;
      least_low = Cheapest(cost, 0, unused);
      least_high = Cheapest(cost, kHalf, cheapest_high);
    }
  };

  struct Found {
    size_t point = 0;
    float cost = std::numeric_limits<float>::infinity();
  };

  // The point that costs least; the first found of equals.
  Found Search(const Halves& h) const {
    Found best;
    Scan(h, h.cheapest_high, best);
    for (size_t c = 0; c < kCombinations; ++c)
      if (h.high[c] + h.least_low < best.cost) Scan(h, c, best);
    return best;
  }

  // The same where one coordinate must be flipped, at flip[level][coordinate] >= 0 more.
  Found SearchFlipped(const Halves& h, const float (&flip)[kLevels][kColumns]) const {
    alignas(64) float low[kCombinations], high[kCombinations];
    Combine(flip, 0, low, [](float a, float b) { return b < a ? b : a; });
    Combine(flip, kHalf, high, [](float a, float b) { return b < a ? b : a; });
    float least_low = std::numeric_limits<float>::infinity();
    for (size_t c = 0; c < kCombinations; ++c) low[c] += h.low[c], high[c] += h.high[c];
    for (size_t c = 0; c < kCombinations; ++c) least_low = low[c] < least_low ? low[c] : least_low;
    Found best;
    ScanFlipped(h, low, high, h.cheapest_high, best);
    for (size_t c = 0; c < kCombinations; ++c) {
      if (high[c] + h.least_low < best.cost || h.high[c] + least_low < best.cost)
        ScanFlipped(h, low, high, c, best);
    }
    return best;
  }

 private:
  static size_t Level(const std::array<int8_t, kLevels>& levels, int8_t coordinate) {
    return static_cast<size_t>(std::lower_bound(levels.begin(), levels.end(), coordinate) - levels.begin());
  }

  template <class Operation>
  static void Combine(const float (&cost)[kLevels][kColumns], size_t at, float* out, Operation op) {
    if constexpr (kHalf == 2) {
      for (size_t b = 0; b < kLevels; ++b)
        for (size_t a = 0; a < kLevels; ++a) out[b * kLevels + a] = op(cost[a][at], cost[b][at + 1]);
    } else {
      constexpr size_t kPairs = kLevels * kLevels;
      float lower[kPairs], upper[kPairs];
      for (size_t b = 0; b < kLevels; ++b) {
        for (size_t a = 0; a < kLevels; ++a) {
          lower[b * kLevels + a] = op(cost[a][at], cost[b][at + 1]);
          upper[b * kLevels + a] = op(cost[a][at + 2], cost[b][at + 3]);
        }
      }
      for (size_t b = 0; b < kPairs; ++b)
        for (size_t a = 0; a < kPairs; ++a) out[b * kPairs + a] = op(lower[a], upper[b]);
    }
  }

  // The least of Combine's sums and where it is: the least of every coordinate, added in the same order.
  static float Cheapest(const float (&cost)[kLevels][kColumns], size_t at, size_t& where) {
    float least[kHalf];
    where = 0;
    for (size_t i = kHalf; i-- > 0;) {
      size_t level = 0;
      for (size_t l = 1; l < kLevels; ++l)
        if (cost[l][at + i] < cost[level][at + i]) level = l;
      least[i] = cost[level][at + i];
      where = where * kLevels + level;
    }
    if constexpr (kHalf == 2)
      return least[0] + least[1];
    else
      return (least[0] + least[1]) + (least[2] + least[3]);
  }

  void Scan(const Halves& h, size_t c, Found& best) const {
    for (size_t p = start_[c]; p < start_[c + 1]; ++p) {
      const float cost = h.low[low_[p]] + h.high[c];
      if (cost < best.cost) best = {p, cost};
    }
  }

  void ScanFlipped(const Halves& h, const float* low, const float* high, size_t c, Found& best) const {
    for (size_t p = start_[c]; p < start_[c + 1]; ++p) {
      const float a = h.low[low_[p]] + high[c], b = low[low_[p]] + h.high[c], cost = b < a ? b : a;
      if (cost < best.cost) best = {p, cost};
    }
  }

  std::array<uint8_t, kPoints> low_{};               // the lower half's combination
  std::array<uint16_t, kCombinations + 1> start_{};  // of the points with an upper half
};

// What a unit's weights were rounded to at some scale: sum w (x - scale code)^2 is `cost`.
struct UnitSums {
  float cost = 0, xc = 0, cc = 0;  // sum w x code, sum w code^2
};

// The first guesses of a unit's scale, as multiples of the root of its weighted mean square: first, first * ratio, ... and `flat`
// where all weights are of nearly one size: then a point of equal coordinates may fit.
struct ScaleLadder {
  float first, ratio;
  int steps;
  float flat;
};

// Units of kUnit weights: weight = super * factor * (2 number + 1) * code. Unit has `sums`; search(u, scale) returns the
// best Unit for x at that scale.
template <class Unit, size_t kUnits, size_t kUnit, int kNumbers>
struct OddScaleUnits {
  static constexpr int kRefits = 1, kRounds = 2;
  static constexpr float kNear = 0.6f;  // of the distance 2 between numbers: the next is not worth a search
  using Scaled = ScaledBlock<kUnits * kUnit, kUnit>;

  uint16_t super = 0;
  std::array<int, kUnits> number{};
  std::array<Unit, kUnits> unit{};

  // b.largest is not 0.
  template <class Search>
  OddScaleUnits(const Scaled& b, float factor, ScaleLadder ladder, const Search& search) {
    Fitted fitted[kUnits], counted[kUnits];  // units that cost next to nothing have no say in the super scale
    for (size_t u = 0; u < kUnits; ++u) {
      fitted[u] = Fit(b, u, ladder, search);
      if (b.Counts(u * kUnit)) counted[u] = fitted[u];
    }
    float d = Super(counted) / factor, least = std::numeric_limits<float>::infinity();
    for (int round = 0; round < kRounds; ++round) {
      OddScaleUnits tried;
      tried.super = round == 0 ? b.ReachingHalf(d) : b.Half(d);
      if (round > 0 && tried.super == super) break;
      const float total = tried.Choose(b, factor, fitted, search, d);
      if (!(total < least)) break;
      least = total, *this = tried;
    }
    float all = 0;
    for (size_t i = 0; i < kUnits * kUnit; ++i) all += b.w[i] * b.x[i] * b.x[i];
    if (!(least < all)) super = 0;  // even the smallest half is too large for these weights
  }

 private:
  struct Fitted {
    float scale = 0, cc = 0;
  };

  OddScaleUnits() = default;

  template <class Search>
  static Fitted Fit(const Scaled& b, size_t u, ScaleLadder ladder, const Search& search) {
    const float *x = b.x + u * kUnit, *w = b.w + u * kUnit;
    float square = 0, size = 0, sum = 0;
    for (size_t i = 0; i < kUnit; ++i)
      square += w[i] * x[i] * x[i], size += w[i] * std::fabs(x[i]), sum += w[i];
    const float rms = std::sqrt(square / sum);
    if (!(rms > 0x1p-40f)) return {};
    Fitted best;
    float gain = 0, scale = rms * ladder.first;
    const auto attempt = [&](float s) {
      const UnitSums sums = search(u, s).sums;
      if (!(sums.xc > 0 && sums.cc > 0)) return false;
      const float fitted = sums.xc / sums.cc;
      if (!(fitted * sums.xc > gain)) return false;
      gain = fitted * sums.xc, best = {fitted, sums.cc};
      return true;
    };
    for (int i = 0; i < ladder.steps; ++i, scale *= ladder.ratio) attempt(scale);
    if (size > 0.95f * rms * sum) attempt(rms * ladder.flat);
    for (int i = 0; i < kRefits; ++i)
      if (best.scale == 0 || !attempt(best.scale)) break;
    return best;
  }

  // The super scale times its factor, for which the nearest numbers lose least beside the fitted scales.
  static float Super(const Fitted (&fitted)[kUnits]) {
    float largest = 0;
    for (const Fitted& f : fitted) largest = std::max(largest, f.scale);
    constexpr int kTop = kNumbers - 1, kTried = 48;
    float best = 0, least = std::numeric_limits<float>::infinity();
    for (int n = 0; n < kTried; ++n) {
      const float step = largest / static_cast<float>(2 * kTop + 1) * (0.8f + 0.02f * static_cast<float>(n));
      const float inverse = SafeInverse(step);
      float loss = 0;
      for (const Fitted& f : fitted) {
        const float off = f.scale - step * static_cast<float>(2 * Number(f.scale * inverse) + 1);
        loss += f.cc * off * off;
      }
      if (loss < least) least = loss, best = step;
    }
    return best;
  }

  // The odd number nearest to a multiple, as stored.
  static int Number(float multiple) { return RoundClamped(0.5f * (multiple - 1.0f), 0, kNumbers - 1); }

  // Returns the error, and in `better` the super scale that would be best for these codes.
  template <class Search>
  float Choose(const Scaled& b, float factor, const Fitted (&fitted)[kUnits], const Search& search,
               float& better) {
    const float step = b.Step(super) * factor, inverse = SafeInverse(step);
    float total = 0, xc = 0, cc = 0;
    for (size_t u = 0; u < kUnits; ++u) {
      const float multiple = fitted[u].scale * inverse;
      const int nearest = Number(multiple);
      const int other = nearest + (multiple > static_cast<float>(2 * nearest + 1) ? 1 : -1);
      for (const int n : {nearest, other}) {
        if (n < 0 || n >= kNumbers) continue;
        if (n == other && std::fabs(multiple - static_cast<float>(2 * nearest + 1)) < kNear) continue;
        const Unit tried = search(u, step * static_cast<float>(2 * n + 1));
        if (n == nearest || tried.sums.cost < unit[u].sums.cost) unit[u] = tried, number[u] = n;
      }
      const auto s = static_cast<float>(2 * number[u] + 1);
      total += unit[u].sums.cost;
      xc += s * unit[u].sums.xc;
      cc += s * s * unit[u].sums.cc;
    }
    better = cc > 0 && xc > 0 ? xc / cc / factor : b.Step(super);
    return total;
  }
};

// Grids of magnitudes, with signs (the IQ2 and IQ3 formats). kEven: of every 8 signs an even number is minus.
template <auto& kGrid, size_t kPoints, size_t kColumns, size_t kLevels,
          const std::array<int8_t, kLevels>& kValues, size_t kUnits, size_t kUnit, bool kEven>
struct SignedSearch {
  using Index = PointIndex<kPoints, kColumns, kLevels>;
  static constexpr size_t kGroups = kUnit / 8, kParts = 8 / kColumns;

  struct Unit {
    UnitSums sums;
    std::array<uint16_t, kUnit / kColumns> point{};
    std::array<uint8_t, kGroups> signs{};  // bit i: weight i of a group of 8 is minus
  };
  using Units = OddScaleUnits<Unit, kUnits, kUnit, 16>;
  using Scaled = typename Units::Scaled;

  static Units Encode(const Scaled& b, float factor, ScaleLadder ladder) {
    static const Index index(kGrid, kValues);
    return Units(b, factor, ladder, [&](size_t u, float scale) {
      return Search(index, b.x + u * kUnit, b.w + u * kUnit, scale);
    });
  }

  static Unit Search(const Index& index, const float* x, const float* w, float scale) {
    Unit out;
    for (size_t g = 0; g < kGroups; ++g)
      Group(index, x + g * 8, w + g * 8, scale, out.point.data() + g * kParts, out.signs[g], out.sums);
    return out;
  }

 private:
  static void Group(const Index& index, const float* x, const float* w, float scale, uint16_t* point,
                    uint8_t& signs, UnitSums& sums) {
    float a[8], cost[kParts][kLevels][kColumns];
    unsigned minus = 0, odd = 0;
    for (size_t i = 0; i < 8; ++i) {
      a[i] = std::fabs(x[i]);
      minus |= static_cast<unsigned>(x[i] < 0) << i;
      odd ^= static_cast<unsigned>(x[i] < 0);
    }
    for (size_t p = 0; p < kParts; ++p) {
      for (size_t l = 0; l < kLevels; ++l) {
        const float value = scale * static_cast<float>(kValues[l]);
        for (size_t i = 0; i < kColumns; ++i) {
          const float off = a[p * kColumns + i] - value;
          cost[p][l][i] = w[p * kColumns + i] * off * off;
        }
      }
    }
    typename Index::Found found[kParts];
    size_t flipped = kParts;
    if (!kEven || odd == 0) {
      for (size_t p = 0; p < kParts; ++p) found[p] = index.Search(typename Index::Halves(cost[p]));
    } else {
      float least = std::numeric_limits<float>::infinity();
      typename Index::Found plain[kParts], with[kParts];
      for (size_t p = 0; p < kParts; ++p) {
        float flip[kLevels][kColumns];
        for (size_t l = 0; l < kLevels; ++l) {
          const float four = 4.0f * scale * static_cast<float>(kValues[l]);
          for (size_t i = 0; i < kColumns; ++i)
            flip[l][i] = four * (w[p * kColumns + i] * a[p * kColumns + i]);
        }
        const typename Index::Halves halves(cost[p]);
        if constexpr (kParts > 1) plain[p] = index.Search(halves);
        with[p] = index.SearchFlipped(halves, flip);
      }
      for (size_t p = 0; p < kParts; ++p) {
        float sum = with[p].cost;
        for (size_t q = 0; kParts > 1 && q < kParts; ++q)
          if (q != p) sum += plain[q].cost;
        if (p == 0 || sum < least) least = sum, flipped = p;
      }
      for (size_t p = 0; p < kParts; ++p) found[p] = p == flipped ? with[p] : plain[p];
    }
    for (size_t p = 0; p < kParts; ++p) {
      point[p] = static_cast<uint16_t>(found[p].point);
      sums.cost += found[p].cost;
      const int8_t* const code = kGrid.point[found[p].point];
      if (p == flipped) {
        size_t at = 0;
        float least = std::numeric_limits<float>::infinity();
        for (size_t i = 0; i < kColumns; ++i) {
          const size_t k = p * kColumns + i;
          const float loss = w[k] * a[k] * static_cast<float>(code[i]);
          if (loss < least) least = loss, at = k;
        }
        a[at] = -a[at];
        minus ^= 1u << at;
      }
      for (size_t i = 0; i < kColumns; ++i) {
        const size_t k = p * kColumns + i;
        const auto c = static_cast<float>(code[i]);
        sums.xc += w[k] * a[k] * c;
        sums.cc += w[k] * c * c;
      }
    }
    signs = static_cast<uint8_t>(minus);
  }
};

inline constexpr std::array<int8_t, 3> kIq2Levels{8, 25, 43};
inline constexpr std::array<int8_t, 8> kIq3XxsLevels{4, 12, 20, 28, 36, 44, 52, 62};
inline constexpr std::array<int8_t, 8> kIq3SLevels{1, 3, 5, 7, 9, 11, 13, 15};

// The ternary grid with its shifts (the IQ1 formats); codes in eighths. kShift: weights that share a shift.
template <size_t kUnits, size_t kUnit, size_t kShift>
struct TernarySearch {
  using Index = PointIndex<2048, 8, 3>;

  struct Unit {
    UnitSums sums;
    std::array<uint16_t, kUnit / 8> point{};
    std::array<bool, kUnit / 8> down{};
  };
  using Units = OddScaleUnits<Unit, kUnits, kUnit, 8>;
  using Scaled = typename Units::Scaled;

  static Units Encode(const Scaled& b, float factor, ScaleLadder ladder) {
    static const Index index(kIq1Grid, {-1, 0, 1});
    return Units(b, factor, ladder, [&](size_t u, float scale) {
      return Search(index, b.x + u * kUnit, b.w + u * kUnit, scale);
    });
  }

  static Unit Search(const Index& index, const float* x, const float* w, float scale) {
    Unit out;
    for (size_t s = 0; s < kUnit; s += kShift) {
      float least = std::numeric_limits<float>::infinity();
      std::array<uint16_t, kShift / 8> best{};
      bool best_down = false;
      for (const bool down : {false, true}) {
        float total = 0;
        std::array<uint16_t, kShift / 8> point{};
        for (size_t g = 0; g < kShift / 8; ++g) {
          float cost[3][8];
          for (size_t l = 0; l < 3; ++l) {
            const float value = scale * Code(static_cast<int>(l) - 1, down);
            for (size_t i = 0; i < 8; ++i) {
              const float off = x[s + g * 8 + i] - value;
              cost[l][i] = w[s + g * 8 + i] * off * off;
            }
          }
          const auto found = index.Search(typename Index::Halves(cost));
          total += found.cost;
          point[g] = static_cast<uint16_t>(found.point);
        }
        if (!down || total < least) least = total, best = point, best_down = down;
      }
      out.sums.cost += least;
      for (size_t g = 0; g < kShift / 8; ++g) {
        out.point[s / 8 + g] = best[g];
        out.down[s / 8 + g] = best_down;
        for (size_t i = 0; i < 8; ++i) {
          const size_t k = s + g * 8 + i;
          const float c = Code(kIq1Grid.point[best[g]][i], best_down);
          out.sums.xc += w[k] * x[k] * c;
          out.sums.cc += w[k] * c * c;
        }
      }
    }
    return out;
  }

 private:
  static float Code(int coordinate, bool down) {
    return static_cast<float>(8 * coordinate + (down ? -1 : 1));
  }
};

}  // namespace glint::quant
