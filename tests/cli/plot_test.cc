#include "cli/plot.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <regex>

namespace glint::cli {
namespace {

TEST(Plot, TicksAreRoundAndReachTheTop) {
  EXPECT_EQ(RoundTicks(4), (std::vector<double>{0, 1, 2, 3, 4}));
  EXPECT_EQ(RoundTicks(100), (std::vector<double>{0, 20, 40, 60, 80, 100}));
  EXPECT_EQ(RoundTicks(1480), (std::vector<double>{0, 500, 1000, 1500}));
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  for (int i = 0; i < 20000; ++i) {
    const double most = std::pow(10, std::uniform_real_distribution<double>(-9, 9)(rng));
    const auto ticks = RoundTicks(most);
    ASSERT_GE(ticks.size(), 4u) << most;
    ASSERT_LE(ticks.size(), 8u) << most;
    EXPECT_EQ(ticks[0], 0);
    EXPECT_GE(ticks.back(), most * (1 - 1e-9));
    EXPECT_LT(ticks[ticks.size() - 2], most);
    const double digits = ticks[1] / std::pow(10, std::floor(std::log10(ticks[1]) + 1e-9));
    EXPECT_TRUE(std::abs(digits - 1) < 1e-6 || std::abs(digits - 2) < 1e-6 || std::abs(digits - 5) < 1e-6)
        << most;
  }
  for (const double odd : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()})
    EXPECT_GE(RoundTicks(odd).size(), 4u);
}

// All elements are closed in order, and attributes are quoted: enough for any XML reader, since text is escaped.
void ExpectWellFormed(const std::string& svg) {
  std::vector<std::string> open;
  static const std::regex kTag("<(/?)([a-z]+)((?: [a-zA-Z0-9-]+=\"[^\"<]*\")*)(/?)>");
  size_t end = 0;
  for (std::sregex_iterator it(svg.begin(), svg.end(), kTag), none; it != none; ++it) {
    const std::string between = svg.substr(end, static_cast<size_t>(it->position()) - end);
    EXPECT_EQ(between.find('<'), std::string::npos) << between;
    end = static_cast<size_t>(it->position() + it->length());
    if ((*it)[1].length() > 0) {
      ASSERT_FALSE(open.empty());
      EXPECT_EQ(open.back(), (*it)[2].str());
      open.pop_back();
    } else if ((*it)[4].length() == 0) {
      open.push_back((*it)[2]);
    }
  }
  EXPECT_TRUE(open.empty());
  EXPECT_EQ(svg.substr(end), "\n");
}

std::vector<double> MarkerHeights(const std::string& svg) {
  std::vector<double> heights;
  static const std::regex kCircle("<circle cx=\"[0-9.]+\" cy=\"([0-9.]+)\" r=\"4\"");
  for (std::sregex_iterator it(svg.begin(), svg.end(), kCircle), none; it != none; ++it)
    heights.push_back(std::stod((*it)[1]));
  return heights;
}

TEST(Plot, PointsLieWhereTheirValuesAre) {
  PlotPanel panel{.title = "T", .x_label = "x", .y_label = "y"};
  panel.series.push_back({.name = "only", .points = {{0, 0, 0, 0}, {10, 50, 40, 60}, {20, 100, 90, 100}}});
  const std::string svg = PlotSvg("title", "below", {panel});
  ExpectWellFormed(svg);
  const auto heights = MarkerHeights(svg);
  ASSERT_EQ(heights.size(), 3u) << "one series needs no legend";
  EXPECT_NEAR((heights[0] + heights[2]) / 2, heights[1], 0.11);
  EXPECT_GT(heights[0], heights[2]);
  EXPECT_NE(svg.find("prefers-color-scheme:dark"), std::string::npos);
  for (const char* label : {">0<", ">10<", ">20<", ">100<", ">title<", ">below<", ">T<", ">x<", ">y<"})
    EXPECT_NE(svg.find(label), std::string::npos) << label;
}

TEST(Plot, HoldsNothingAndAnything) {
  ExpectWellFormed(PlotSvg("", "", {}));
  ExpectWellFormed(PlotSvg("a", "b", {PlotPanel{.title = "", .x_label = "", .y_label = ""}}));
  PlotPanel panel{.title = "<&\">", .x_label = "\x1b[2J", .y_label = "\xff"};
  for (int i = 0; i < 9; ++i) {
    panel.series.push_back({.name = "]]><script>", .points = {{512, 1.0 + i, 1.0, 2.0 + i}}});
    panel.series.push_back({.name = "", .points = {}});
  }
  const std::string svg = PlotSvg("a\nb", "\"", {panel, panel});
  ExpectWellFormed(svg);
  EXPECT_EQ(svg.find("script>"), svg.find("script&gt;") == std::string::npos ? 0 : std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

}  // namespace
}  // namespace glint::cli
