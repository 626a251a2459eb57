#include "serve/prometheus.h"

#include <algorithm>
#include <cassert>
#include <charconv>
#include <cmath>

#include "serve/json_out.h"

namespace glint::serve {
namespace {

std::string Number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  char digits[32];
  const auto end =
      std::to_chars(std::begin(digits), std::end(digits), value);  // the shortest that reads back
  return {digits, end.ptr};
}

// A line end would end the sample, a quote the label's value.
std::string Escaped(std::string_view text, bool quoted) {
  std::string out;
  for (const char c : ToUtf8(text)) {
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\\' || (quoted && c == '"')) {
      out += '\\';
      out += c;
    } else {
      out += c;
    }
  }
  return out;
}

std::string_view Word(MetricType type) {
  switch (type) {
    case MetricType::kCounter:
      return "counter";
    case MetricType::kGauge:
      return "gauge";
    case MetricType::kHistogram:
      return "histogram";
  }
  return "untyped";
}

}  // namespace

Histogram::Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {
  assert(std::is_sorted(bounds_.begin(), bounds_.end()));
}

void Histogram::Observe(double value, uint64_t times) {
  if (!(value > 0)) value = 0;
  const std::lock_guard lock(mutex_);
  counts_[static_cast<size_t>(std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin())] +=
      times;
  sum_ += value * static_cast<double>(times);
}

Histogram::Snapshot Histogram::Now() const {
  const std::lock_guard lock(mutex_);
  return {bounds_, counts_, sum_};
}

PrometheusText& PrometheusText::Family(std::string_view name, MetricType type, std::string_view help) {
  name_ = name;
  out_.append("# HELP ").append(name).append(" ").append(Escaped(help, false)).append("\n");
  out_.append("# TYPE ").append(name).append(" ").append(Word(type)).append("\n");
  return *this;
}

void PrometheusText::Line(std::string_view suffix, const MetricLabels& labels, std::string_view bound,
                          std::string_view value) {
  out_.append(name_).append(suffix);
  char separator = '{';
  const auto add = [&](std::string_view name, std::string_view text) {
    out_ += separator;
    out_.append(name).append("=\"").append(Escaped(text, true)).append("\"");
    separator = ',';
  };
  for (const auto& [name, text] : labels) add(name, text);
  if (!bound.empty()) add("le", bound);
  if (separator == ',') out_ += '}';
  out_.append(" ").append(value).append("\n");
}

PrometheusText& PrometheusText::Sample(double value, const MetricLabels& labels) {
  Line("", labels, "", Number(value));
  return *this;
}

PrometheusText& PrometheusText::Sample(uint64_t value, const MetricLabels& labels) {
  Line("", labels, "", std::to_string(value));
  return *this;
}

PrometheusText& PrometheusText::Sample(const Histogram::Snapshot& value, const MetricLabels& labels) {
  uint64_t below = 0;
  for (size_t i = 0; i < value.counts.size(); ++i) {
    below += value.counts[i];
    Line("_bucket", labels, i < value.bounds.size() ? Number(value.bounds[i]) : "+Inf",
         std::to_string(below));
  }
  Line("_sum", labels, "", Number(value.sum));
  Line("_count", labels, "", std::to_string(below));
  return *this;
}

}  // namespace glint::serve
