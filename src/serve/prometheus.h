// Prometheus' text format, version 0.0.4: what https://prometheus.io/docs/instrumenting/exposition_formats/ lays down.
#pragma once
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace glint::serve {

// A distribution by ranges. Threads: any.
class Histogram {
 public:
  // Upper ends of the ranges, ascending and finite; above the last one more range is open.
  explicit Histogram(std::vector<double> bounds);
  // `times` values that are alike. What is no number or below zero counts as zero: the sum never falls.
  void Observe(double value, uint64_t times = 1);

  // Of one moment: the counts are those that the sum is of.
  struct Snapshot {
    std::vector<double> bounds;
    std::vector<uint64_t> counts;  // of each range, the open one last; not accumulated
    double sum = 0;
  };
  Snapshot Now() const;

 private:
  const std::vector<double> bounds_;
  mutable std::mutex mutex_;
  std::vector<uint64_t> counts_;
  double sum_ = 0;
};

enum class MetricType : uint8_t { kCounter, kGauge, kHistogram };
using MetricLabels = std::vector<std::pair<std::string_view, std::string_view>>;

// A page built by calls in order. Names are the caller's constants, [a-z_:][a-z0-9_:]*; help and the values of labels may hold anything:
// bytes that are no UTF-8 become U+FFFD.
class PrometheusText {
 public:
  // Begins a family; the samples that follow are its. A family's name comes once.
  PrometheusText& Family(std::string_view name, MetricType type, std::string_view help);
  PrometheusText& Sample(double value, const MetricLabels& labels = {});
  PrometheusText& Sample(uint64_t value, const MetricLabels& labels = {});
  PrometheusText& Sample(const Histogram::Snapshot& value, const MetricLabels& labels = {});
  // A family of one sample.
  template <class Value>
  PrometheusText& One(std::string_view name, MetricType type, std::string_view help, const Value& value) {
    return Family(name, type, help).Sample(value);
  }
  std::string Take() { return std::move(out_); }

 private:
  void Line(std::string_view suffix, const MetricLabels& labels, std::string_view bound,
            std::string_view value);
  std::string out_, name_;
};

}  // namespace glint::serve
