// The metrics page: its text against the format's own parser, and its numbers against what was counted.
#include "serve/metrics.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>
#include <thread>

#include "serve/json_out.h"
#include "tests/base/temp_dir.h"

namespace glint::serve {
namespace {

constexpr MetricType kCounter = MetricType::kCounter, kGauge = MetricType::kGauge;

// 0: agreed. Skips the test if there is no referee.
void Judge(const std::string& page, const std::string& expected = {}) {
  if (std::string_view(GLINT_PYTHON).empty()) GTEST_SKIP() << "GLINT_PYTHON is not set: no referee";
  const test::TempDir folder;
  const std::string log = folder.Path("log");
  std::string command = "'" GLINT_PYTHON "' '" GLINT_SOURCE_DIR "/tests/serve/referee_metrics.py' '" +
                        folder.Write("page", page) + "'";
  if (!expected.empty()) command += " '" + folder.Write("expected", expected) + "'";
  const int status = std::system((command + " >'" + log + "' 2>&1").c_str());
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << folder.Read("log");
  EXPECT_EQ(status, 0) << folder.Read("log");
}

TEST(PrometheusText, IsTheFormat) {
  PrometheusText page;
  page.Family("test_things_total", kCounter, "Things\\ of\nall kinds \"here\".");
  page.Sample(uint64_t{18446744073709551615u}, {{"kind", "a\\b\"c\nd\xff"}})
      .Sample(uint64_t{0}, {{"kind", ""}});
  page.Family("test_share", kGauge, "Shares.").Sample(0.1).Sample(std::nan(""), {{"a", "x"}, {"b", "y"}});
  page.Sample(std::numeric_limits<double>::infinity(), {{"a", "z"}}).Sample(-1e300, {{"a", "w"}});
  Histogram histogram({0.5, 1});
  for (const double v : {0.1, 0.5, 0.6, 7.0, -1.0, std::nan("")}) histogram.Observe(v);
  histogram.Observe(0.75, 3);
  page.One("test_time_seconds", MetricType::kHistogram, "Times.", histogram.Now());
  EXPECT_EQ(page.Take(),
            "# HELP test_things_total Things\\\\ of\\nall kinds \"here\".\n"
            "# TYPE test_things_total counter\n"
            "test_things_total{kind=\"a\\\\b\\\"c\\nd\xef\xbf\xbd\"} 18446744073709551615\n"
            "test_things_total{kind=\"\"} 0\n"
            "# HELP test_share Shares.\n"
            "# TYPE test_share gauge\n"
            "test_share 0.1\n"
            "test_share{a=\"x\",b=\"y\"} NaN\n"
            "test_share{a=\"z\"} +Inf\n"
            "test_share{a=\"w\"} -1e+300\n"
            "# HELP test_time_seconds Times.\n"
            "# TYPE test_time_seconds histogram\n"
            "test_time_seconds_bucket{le=\"0.5\"} 4\n"
            "test_time_seconds_bucket{le=\"1\"} 8\n"
            "test_time_seconds_bucket{le=\"+Inf\"} 9\n"
            "test_time_seconds_sum 10.45\n"
            "test_time_seconds_count 9\n");
}

// Whatever labels, help texts and values hold, the parser reads back what was put in.
TEST(PrometheusText, ItsParserReadsBackWhatWasWritten) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  const std::vector<std::string> pieces{"a", "\\", "\"", "\n",  "{",        "}",  ",",
                                        "=", " ",  "#",  "\\n", "\xc3\xa9", "le", "1"};
  const auto text = [&] {
    std::string all;
    for (size_t n = rng() % 8; n > 0; --n) all += pieces[rng() % pieces.size()];
    return all;
  };
  PrometheusText page;
  JsonOut wanted;
  wanted.Begin('[');
  for (int i = 0; i < 60; ++i) {
    const bool counter = rng() % 2 == 0;
    const std::string name = "test_" + std::to_string(i) + (counter ? "_total" : "_bytes"),
                      help = "h" + text() + "h";
    page.Family(name, counter ? kCounter : kGauge, help);
    wanted.Begin('{').String("name", name).String("type", counter ? "counter" : "gauge").String("help", help);
    wanted.Key("samples").Begin('[');
    for (int j = 0; j < 4; ++j) {
      const std::string label = text(), number = std::to_string(j);
      const double value = std::ldexp(static_cast<double>(rng() >> 11), static_cast<int>(rng() % 200) - 150);
      page.Sample(value, {{"number", number}, {"text", label}});
      wanted.Begin('[').String(name).Begin('{').String("number", number).String("text", label).End('}');
      wanted.Number(value).End(']');
    }
    wanted.End(']').End('}');
  }
  Judge(page.Take(), wanted.End(']').Take());
}

TEST(Histogram, CountsFromManyThreads) {
  Histogram histogram({1, 2, 3});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&histogram, t] {
      for (int i = 0; i < 5000; ++i) {
        histogram.Observe(t + 0.5);
        // The counts are never of another moment than the sum: value v lies in range floor(v).
        if (i % 500 != 0) continue;
        const auto now = histogram.Now();
        double sum = 0;
        for (size_t k = 0; k < now.counts.size(); ++k)
          sum += static_cast<double>(now.counts[k]) * (static_cast<double>(k) + 0.5);
        EXPECT_EQ(now.sum, sum);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(histogram.Now().counts, (std::vector<uint64_t>{5000, 5000, 5000, 5000}));
}

std::string Page(const RequestMetrics& requests) {
  PrometheusText page;
  WriteBuild("1.2", "a \"model\"\nof two lines", page);
  WriteProcess(page);
  WriteHttp({.connections = 1, .accepted = 2, .requests = 3, .refused = 4, .bodies_bytes = 5}, page);
  SchedulerStats scheduler;
  scheduler.waiting = 6, scheduler.running = 7, scheduler.taken = 8, scheduler.refused = 9,
  scheduler.ended = 10;
  scheduler.prefilled = 11, scheduler.reused = 12, scheduler.decoded = 13, scheduler.longest_stall_s = 0.25;
  WriteScheduler(scheduler, page);
  requests.Write(page);
  return page.Take();
}

bool Has(const std::string& page, const std::string& line) {
  return page.find("\n" + line + "\n") != std::string::npos;
}

TEST(Metrics, PageIsWholeBeforeTheFirstRequest) {
  const std::string page = Page(RequestMetrics());
  EXPECT_TRUE(Has(page, "glint_requests_in_progress 0"));
  EXPECT_TRUE(Has(page, "glint_choices_total{reason=\"cancelled\"} 0"));
  EXPECT_TRUE(Has(page, "glint_time_to_first_token_seconds_count 0"));
  EXPECT_TRUE(Has(page, "glint_http_refused_total 4"));
  EXPECT_TRUE(Has(page, "glint_reused_tokens_total 12"));
  EXPECT_TRUE(Has(page, "glint_build_info{version=\"1.2\",model=\"a \\\"model\\\"\\nof two lines\"} 1"));
  EXPECT_NE(page.find("process_resident_memory_bytes "), std::string::npos);
  Judge(page);
}

TEST(Metrics, CountWhatHappens) {
  RequestMetrics requests;
  requests.Began();
  requests.Began();
  requests.FirstToken(0.2);
  requests.NextToken(0.01);
  requests.NextToken(0.02);
  requests.ChoiceEnded({FinishReason::kLength, "", {10, 4, 7, 2}, {100, 20, 30}});
  requests.ChoiceEnded({FinishReason::kStop, "", {5, 0, 3, 0}, {100, 20, 30}});
  requests.Ended("/v1/messages", 200, 0.5, true);
  requests.Ended("/v1/messages", 400, 0, false);
  for (int scrape = 0; scrape < 2; ++scrape) {  // looking changes nothing
    const std::string page = Page(requests);
    EXPECT_TRUE(Has(page, "glint_requests_in_progress 1")) << page;
    EXPECT_TRUE(Has(page, "glint_requests_total{endpoint=\"/v1/messages\",status=\"200\"} 1"));
    EXPECT_TRUE(Has(page, "glint_requests_total{endpoint=\"/v1/messages\",status=\"400\"} 1"));
    EXPECT_TRUE(Has(page, "glint_choices_total{reason=\"length\"} 1"));
    EXPECT_TRUE(Has(page, "glint_usage_prompt_tokens_total 15"));
    EXPECT_TRUE(Has(page, "glint_usage_cached_tokens_total 4"));
    EXPECT_TRUE(Has(page, "glint_usage_completion_tokens_total 10"));
    EXPECT_TRUE(Has(page, "glint_time_to_first_token_seconds_bucket{le=\"0.1\"} 0"));
    EXPECT_TRUE(Has(page, "glint_time_to_first_token_seconds_bucket{le=\"0.25\"} 1"));
    EXPECT_TRUE(Has(page, "glint_time_per_output_token_seconds_sum 0.03"));
    EXPECT_TRUE(Has(page, "glint_queue_time_seconds_count 2"));
  }
  for (int i = 0; i < 1000; ++i) requests.Ended("/made/up/" + std::to_string(i), 404, 0, false);
  const std::string page = Page(requests);
  EXPECT_TRUE(Has(page, "glint_requests_total{endpoint=\"other\",status=\"404\"} 969")) << page;
  EXPECT_LT(page.size(), 20000u);
  Judge(page);
}

}  // namespace
}  // namespace glint::serve
