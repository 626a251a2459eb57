#include "serve/metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>

namespace glint::serve {
namespace {

constexpr MetricType kCounter = MetricType::kCounter, kGauge = MetricType::kGauge;

// 1, 2.5 and 5 of each power of ten: from a token of a small model on a GPU to a prompt of a million tokens on a CPU.
std::vector<double> Decades(double first, double last) {
  std::vector<double> bounds;
  for (double power = first; power <= last * 1.0001; power *= 10) {
    for (const double step : {1.0, 2.5, 5.0}) bounds.push_back(power * step);
  }
  return bounds;
}

double Started() {
  static const double at =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  return at;
}

}  // namespace

std::string_view Name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kStopString:
      return "stop_string";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
  }
  return "other";
}

RequestMetrics::RequestMetrics()
    : first_token_(Decades(1e-3, 100)),
      next_token_(Decades(1e-4, 1)),
      queued_(Decades(1e-3, 100)),
      prefill_(Decades(1e-3, 100)),
      duration_(Decades(1e-2, 1000)) {
  Started();
  for (const FinishReason reason :
       {FinishReason::kStop, FinishReason::kStopString, FinishReason::kLength, FinishReason::kCancelled})
    finished_[Name(reason)] =
        0;  // a counter that is there from the beginning has a rate from its first event
}

void RequestMetrics::Began() {
  const std::lock_guard lock(mutex_);
  ++began_;
}

void RequestMetrics::ChoiceEnded(const Outcome& outcome) {
  queued_.Observe(outcome.timings.queue_ms / 1e3);
  prefill_.Observe(outcome.timings.prefill_ms / 1e3);
  const std::lock_guard lock(mutex_);
  prompt_ += outcome.usage.prompt;
  cached_ += outcome.usage.cached;
  completion_ += outcome.usage.completion;
  reasoning_ += outcome.usage.reasoning;
  ++finished_[Name(outcome.reason)];
}

void RequestMetrics::Ended(std::string_view endpoint, int status, double seconds, bool began) {
  duration_.Observe(seconds);
  const std::lock_guard lock(mutex_);
  over_ += began ? 1 : 0;
  Count(endpoint, status, ended_);
}

void RequestMetrics::Answered(std::string_view route, int status) {
  const std::lock_guard lock(mutex_);
  Count(route.empty() ? "none" : route, status, answered_);
}

void RequestMetrics::Count(std::string_view name, int status, Counts& counts) {
  auto found = counts.find(name);
  if (found == counts.end())
    found = counts.try_emplace(counts.size() < kEndpoints ? std::string(name) : "other").first;
  ++found->second[status];
}

void RequestMetrics::Write(PrometheusText& page) const {
  const std::lock_guard lock(mutex_);
  page.Family("glint_requests_total", kCounter,
              "Requests for answers that have ended, by endpoint and HTTP status.");
  for (const auto& [endpoint, statuses] : ended_) {
    for (const auto& [status, count] : statuses)
      page.Sample(count, {{"endpoint", endpoint}, {"status", std::to_string(status)}});
  }
  page.Family("glint_http_answers_total", kCounter,
              "Answers to requests that came in whole, of all paths, by route and HTTP status.");
  for (const auto& [route, statuses] : answered_) {
    for (const auto& [status, count] : statuses)
      page.Sample(count, {{"route", route}, {"status", std::to_string(status)}});
  }
  page.One("glint_requests_in_progress", kGauge, "Requests for answers that wait or run.", began_ - over_);
  page.Family("glint_choices_total", kCounter, "Answers that have ended, by what ended them.");
  for (const auto& [reason, count] : finished_) page.Sample(count, {{"reason", reason}});
  page.One("glint_usage_prompt_tokens_total", kCounter,
           "Prompt tokens of ended answers, as their usage says.", prompt_);
  page.One("glint_usage_cached_tokens_total", kCounter, "Of them, tokens taken from kept prefixes.", cached_);
  page.One("glint_usage_completion_tokens_total", kCounter, "Tokens of ended answers, as their usage says.",
           completion_);
  page.One("glint_usage_reasoning_tokens_total", kCounter, "Of them, tokens of reasoning.", reasoning_);
  const MetricType histogram = MetricType::kHistogram;
  page.One("glint_time_to_first_token_seconds", histogram,
           "From the request to the first token of an answer.", first_token_.Now());
  page.One("glint_time_per_output_token_seconds", histogram, "From a token of an answer to the next.",
           next_token_.Now());
  page.One("glint_queue_time_seconds", histogram, "Time that answers waited for their turn.", queued_.Now());
  page.One("glint_prefill_time_seconds", histogram, "Time that prompts took, beside what else ran.",
           prefill_.Now());
  page.One("glint_request_duration_seconds", histogram, "From the request to its end.", duration_.Now());
}

void WriteBuild(std::string_view version, std::string_view model, PrometheusText& page) {
  page.Family("glint_build_info", kGauge, "Version of glint and the model that it serves; always 1.");
  page.Sample(uint64_t{1}, {{"version", version}, {"model", model}});
}

void WriteProcess(PrometheusText& page) {
  page.One("process_start_time_seconds", kGauge, "When the server began, in seconds since 1970.", Started());
  rusage used{};
  if (getrusage(RUSAGE_SELF, &used) == 0) {
    const auto seconds = [](const timeval& t) {
      return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
    };
    page.One("process_cpu_seconds_total", kCounter, "CPU time of all threads.",
             seconds(used.ru_utime) + seconds(used.ru_stime));
  }
  uint64_t pages = 0, resident = 0;
  if (std::ifstream("/proc/self/statm") >> pages >> resident) {
    page.One("process_resident_memory_bytes", kGauge, "Memory that is in RAM.",
             resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)));
  }
  std::error_code error;
  uint64_t files = 0;
  for (std::filesystem::directory_iterator at("/proc/self/fd", error), end; !error && at != end;
       at.increment(error))
    ++files;
  if (!error) page.One("process_open_fds", kGauge, "Open files and connections.", files);
}

void WriteHttp(const HttpCounters& http, PrometheusText& page) {
  page.One("glint_http_connections", kGauge, "Open connections.", uint64_t{http.connections});
  page.One("glint_http_connections_total", kCounter, "Connections that were accepted.", http.accepted);
  page.One("glint_http_requests_total", kCounter, "Requests that came in whole, of all paths.",
           http.requests);
  page.One("glint_http_refused_total", kCounter,
           "Requests that were refused before they were looked at: no HTTP, no key, too large, too many.",
           http.refused);
  page.One("glint_http_body_bytes", kGauge, "Bodies of requests that are being received or handled.",
           uint64_t{http.bodies_bytes});
}

void WriteScheduler(const SchedulerStats& s, PrometheusText& page) {
  page.One("glint_queue_waiting", kGauge, "Answers that wait for their turn.", s.waiting);
  page.One("glint_queue_running", kGauge, "Answers that are being made.", s.running);
  page.Family(
      "glint_jobs_total", kCounter,
      "Answers by what became of them: taken into the queue, refused because it was full, ended, failed.");
  page.Sample(s.taken, {{"event", "taken"}}).Sample(s.refused, {{"event", "refused"}});
  page.Sample(s.ended, {{"event", "ended"}}).Sample(s.failed, {{"event", "failed"}});
  page.One("glint_prefilled_tokens_total", kCounter, "Prompt tokens that were computed.", s.prefilled);
  page.One("glint_reused_tokens_total", kCounter, "Prompt tokens that kept prefixes saved.", s.reused);
  page.One("glint_decoded_tokens_total", kCounter,
           "Tokens of answers that went through the model; the last of an answer does not.", s.decoded);
  page.One("glint_passes_total", kCounter, "Passes through the model.", s.passes);
  page.One("glint_shared_passes_total", kCounter, "Of them, passes with more than one answer.",
           s.shared_passes);
  page.One("glint_prompt_rows_beside_decodes_max", kGauge,
           "The most prompt tokens that a pass had beside decodes.", s.prompt_rows_beside_decodes);
  page.One("glint_longest_stall_seconds", kGauge, "The longest pass that had decodes and prompts.",
           s.longest_stall_s);
}

}  // namespace glint::serve
