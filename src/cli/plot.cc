#include "cli/plot.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/printable.h"
#include "cli/units.h"

namespace glint::cli {
namespace {

constexpr double kWidth = 760, kPanelHeight = 300;
constexpr double kLeft = 78, kRight = 24, kTop = 34, kBottom = 52;  // margins of a panel
constexpr double kHeader = 62, kLegendLine = 20;
constexpr double kLogarithmicFrom = 12;  // largest x over smallest
constexpr double kLabelRoom = 56;        // between the middles of neighbouring x labels
constexpr int kMarkers = 4;

// Okabe and Ito 2008, without yellow and black, which one of the two pages would swallow. For the dark page the same hues, lighter.
constexpr std::array<const char*, 6> kOnLight{"#0072b2", "#d55e00", "#009e73",
                                              "#cc79a7", "#56b4e9", "#e69f00"};
constexpr std::array<const char*, 6> kOnDark{"#4aa8e0", "#f0843a", "#2fc79c",
                                             "#e39bc4", "#8fd0f5", "#f2b84b"};

// Text of a file or a person inside an element or an attribute.
std::string Escaped(const std::string& text) {
  std::string out;
  for (const char c : Printable(text)) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

std::string Style() {
  std::string light, dark;
  for (size_t i = 0; i < kOnLight.size(); ++i) {
    light += fmt::format(".s{0}{{stroke:{1}}}.f{0}{{fill:{1};stroke:{1}}}", i, kOnLight[i]);
    dark += fmt::format(".s{0}{{stroke:{1}}}.f{0}{{fill:{1};stroke:{1}}}", i, kOnDark[i]);
  }
  return fmt::format(
      "<style>text{{font-family:system-ui,'Helvetica Neue',Arial,'DejaVu "
      "Sans',sans-serif;font-size:12px;fill:#222}}"
      ".title{{font-size:15px;font-weight:600}}.small{{fill:#666}}.page{{fill:#fff}}"
      ".grid{{stroke:#e4e4e4}}.axis{{stroke:#888}}.line{{fill:none;stroke-width:2}}.bar{{fill:none;stroke-"
      "width:1.5}}{}"
      "@media(prefers-color-scheme:dark){{text{{fill:#ddd}}.small{{fill:#9a9a9a}}.page{{fill:#161616}}"
      ".grid{{stroke:#333}}.axis{{stroke:#777}}{}}}</style>\n",
      light, dark);
}

std::string Text(double x, double y, const char* anchor, const std::string& text, const char* style = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}{}{}>{}</text>\n", x, y, anchor,
                     *style ? " class=\"" : "", style, *style ? "\"" : "", Escaped(text));
}

std::string Line(double x1, double y1, double x2, double y2, const std::string& style) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"{}\"/>\n", x1, y1,
                     x2, y2, style);
}

std::string Marker(double x, double y, size_t series) {
  const std::string fill = fmt::format("f{}", series % kOnLight.size());
  switch (series % kMarkers) {
    case 0:
      return fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" class=\"{}\"/>\n", x, y, fill);
    case 1:
      return fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"7.6\" height=\"7.6\" class=\"{}\"/>\n",
                         x - 3.8, y - 3.8, fill);
    case 2:
      return fmt::format("<path d=\"M{:.1f} {:.1f}l4.8 8.4h-9.6z\" class=\"{}\"/>\n", x, y - 5.2, fill);
    default:
      return fmt::format("<path d=\"M{:.1f} {:.1f}l5 5-5 5-5-5z\" class=\"{}\"/>\n", x, y - 5, fill);
  }
}

std::string Number(double value) {
  if (value == std::floor(value) && value >= 0 && value < 1e15) return Grouped(static_cast<uint64_t>(value));
  return fmt::format("{:g}", value);
}

// From values to the page.
class Scale {
 public:
  Scale(double least, double most, double from, double to, bool logarithmic)
      : logarithmic_(logarithmic), least_(Of(least)), most_(Of(most)), from_(from), to_(to) {}
  double At(double value) const {
    if (most_ == least_) return (from_ + to_) / 2;
    return from_ + (Of(value) - least_) / (most_ - least_) * (to_ - from_);
  }

 private:
  double Of(double value) const { return logarithmic_ ? std::log(value) : value; }
  bool logarithmic_;
  double least_, most_, from_, to_;
};

std::vector<double> Distinct(const PlotPanel& panel) {
  std::vector<double> xs;
  for (const PlotSeries& s : panel.series)
    for (const PlotPoint& p : s.points) xs.push_back(p.x);
  std::sort(xs.begin(), xs.end());
  xs.erase(std::unique(xs.begin(), xs.end()), xs.end());
  return xs;
}

// The panel's part of the page from `top` down.
std::string Draw(const PlotPanel& panel, double top) {
  const double left = kLeft, right = kWidth - kRight, upper = top + kTop,
               lower = top + kPanelHeight - kBottom;
  std::string out = Text(left, top + 20, "start", panel.title, "title");
  const std::vector<double> xs = Distinct(panel);
  double most = 0;
  for (const PlotSeries& s : panel.series)
    for (const PlotPoint& p : s.points) most = std::max({most, p.y, p.high});
  const std::vector<double> ticks = RoundTicks(most);
  const Scale y(0, ticks.back(), lower, upper, false);
  for (const double tick : ticks) {
    out += Line(left, y.At(tick), right, y.At(tick), tick == 0 ? "axis" : "grid");
    out += Text(left - 8, y.At(tick) + 4, "end", Number(tick));
  }
  out += fmt::format(
      "<text transform=\"translate({:.1f} {:.1f}) rotate(-90)\" text-anchor=\"middle\" "
      "class=\"small\">{}</text>\n",
      left - 60, (upper + lower) / 2, Escaped(panel.y_label));
  out += Text((left + right) / 2, lower + 40, "middle", panel.x_label, "small");
  if (xs.empty()) return out;

  // Half a column of air on both sides, so that bars and labels do not stand on the frame.
  const double air = 36;
  const bool logarithmic = xs.front() > 0 && xs.back() / xs.front() > kLogarithmicFrom;
  const Scale x(xs.front(), xs.back(), left + air, right - air, logarithmic);
  double last = -kWidth;
  for (const double value : xs) {
    const double at = x.At(value);
    out += Line(at, lower, at, lower + 5, "axis");
    if (at - last < kLabelRoom) continue;
    out += Text(at, lower + 20, "middle", Number(value));
    last = at;
  }
  for (size_t i = 0; i < panel.series.size(); ++i) {
    const auto& points = panel.series[i].points;
    const std::string stroke = fmt::format("s{}", i % kOnLight.size());
    // Arms side by side, so that equal ones do not hide each other's bars.
    const double aside = 8 * (static_cast<double>(i) - (static_cast<double>(panel.series.size()) - 1) / 2);
    std::string path;
    for (const PlotPoint& p : points) {
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x.At(p.x) + aside, y.At(p.y));
    }
    if (points.size() > 1) out += fmt::format("<path d=\"{}\" class=\"line {}\"/>\n", path, stroke);
    for (const PlotPoint& p : points) {
      const double at = x.At(p.x) + aside;
      out += Line(at, y.At(p.low), at, y.At(p.high), "bar " + stroke);
      for (const double end : {p.low, p.high})
        out += Line(at - 4, y.At(end), at + 4, y.At(end), "bar " + stroke);
      out += Marker(at, y.At(p.y), i);
    }
  }
  return out;
}

}  // namespace

std::vector<double> RoundTicks(double most) {
  if (!(most > 0) || !std::isfinite(most)) most = 1;
  double step = std::pow(10, std::floor(std::log10(most / 4)));
  for (const double times : {1.0, 2.0, 5.0, 10.0}) {
    if (most / (step * times) > 6) continue;
    step *= times;
    break;
  }
  std::vector<double> ticks{0};
  for (int i = 1; ticks.back() < most * (1 - 1e-9); ++i) ticks.push_back(step * i);
  return ticks;
}

std::string PlotSvg(const std::string& title, const std::string& subtitle,
                    const std::vector<PlotPanel>& panels) {
  // One entry of the legend a line: names may be long.
  std::string legend;
  double top = kHeader;
  const size_t entries = panels.empty() || panels[0].series.size() < 2 ? 0 : panels[0].series.size();
  for (size_t i = 0; i < entries; ++i, top += kLegendLine) {
    legend += Line(kLeft, top, kLeft + 26, top, fmt::format("line s{}", i % kOnLight.size())) +
              Marker(kLeft + 13, top, i) + Text(kLeft + 34, top + 4, "start", panels[0].series[i].name);
  }
  std::string body;
  for (const PlotPanel& panel : panels) {
    body += Draw(panel, top);
    top += kPanelHeight;
  }
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:g}\" height=\"{1:g}\" viewBox=\"0 0 {0:g} "
             "{1:g}\">\n",
             kWidth, top) +
         fmt::format("<title>{}</title>\n", Escaped(title)) + Style() +
         fmt::format("<rect width=\"{:g}\" height=\"{:g}\" class=\"page\"/>\n", kWidth, top) +
         Text(kLeft, 24, "start", title, "title") + Text(kLeft, 43, "start", subtitle, "small") + legend +
         body + "</svg>\n";
}

}  // namespace glint::cli
