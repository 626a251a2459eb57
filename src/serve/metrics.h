// What a server counts for `/metrics`, and how each part of it is written there (docs/operating.md has the table).
//
// Counters grow from the server's start and are never set back, by a scrape or by anything else; gauges are read where they live when the
// page is written. So there is nothing that a reset could leave wrong, and two scrapers do not disturb each other.
#pragma once
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "serve/generation.h"
#include "serve/http.h"
#include "serve/prometheus.h"
#include "serve/scheduler.h"

namespace glint::serve {

// Requests, as they come and end. Threads: any.
class RequestMetrics {
 public:
  RequestMetrics();
  void Began();  // it waits or runs from now on, until Ended
  // The first token of a choice, since the request came; and a later one, since the one before.
  void FirstToken(double seconds) { first_token_.Observe(seconds); }
  void NextToken(double seconds) { next_token_.Observe(seconds); }
  void ChoiceEnded(const Outcome& outcome);
  // `began`: whether it was told to have begun. `endpoint` is a path that the server has; of more than kEndpoints of them the rest count as
  // "other", so that no client can make the page long.
  void Ended(std::string_view endpoint, int status, double seconds, bool began);
  // Any answer of a handler. `route` is of the server's own table, or empty.
  void Answered(std::string_view route, int status);
  void Write(PrometheusText& page) const;

 private:
  using Counts = std::map<std::string, std::map<int, uint64_t>, std::less<>>;
  static void Count(std::string_view name, int status, Counts& counts);
  static constexpr size_t kEndpoints = 32;
  Histogram first_token_, next_token_, queued_, prefill_, duration_;
  mutable std::mutex mutex_;  // of what follows
  Counts ended_, answered_;   // by endpoint or route, and status
  uint64_t began_ = 0, over_ = 0;
  uint64_t prompt_ = 0, cached_ = 0, completion_ = 0, reasoning_ = 0;  // tokens
  std::map<std::string_view, uint64_t> finished_;                      // choices by reason
};

// "stop", "stop_string", "length", "cancelled".
std::string_view Name(FinishReason reason);

void WriteBuild(std::string_view version, std::string_view model, PrometheusText& page);
// The process, under the names that all programs use: start, CPU time, resident memory, open files. What /proc does not say is left out.
void WriteProcess(PrometheusText& page);
void WriteHttp(const HttpCounters& http, PrometheusText& page);
void WriteScheduler(const SchedulerStats& scheduler, PrometheusText& page);

inline constexpr std::string_view kPrometheusContentType = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace glint::serve
