// Line plots as SVG, for benchmarks.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace glint::cli {

struct PlotPoint {
  double x = 0, y = 0;
  double low = 0, high = 0;  // of the bar through the point
};

struct PlotSeries {
  std::string name;
  std::vector<PlotPoint> points = {};  // x ascending
};

struct PlotPanel {
  std::string title, x_label, y_label;
  std::vector<PlotSeries> series =
      {};  // the same names in the same order in all panels: one legend serves them
};

// Panels one below the other. Each y axis begins at zero, so that a length is an amount. An x axis whose values span more than a factor
// of 12 is logarithmic. Colours are those of Okabe and Ito, which people who confuse colours can tell apart; markers differ too. In a
// viewer that prefers dark, the page is dark.
std::string PlotSvg(const std::string& title, const std::string& subtitle,
                    const std::vector<PlotPanel>& panels);

// Round numbers (1, 2 or 5 times a power of ten apart) from 0 to the first that is not below `most`; 4 to 8 of them.
std::vector<double> RoundTicks(double most);

}  // namespace glint::cli
