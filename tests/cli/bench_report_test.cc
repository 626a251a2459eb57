// Reports of given samples: nothing is measured here.
#include "cli/bench_report.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/json.h"

namespace glint::cli {
namespace {

using engine::BenchPhase;

// Two arms, two depths, eight blocks; the second arm takes a quarter longer. Names with everything that a format might trip over.
BenchReport Report(bool complete = true) {
  BenchReport r;
  r.date = "2026-01-02T03:04:05Z";
  r.build = {.version = "1.2.3", .commit = "abcdef123456", .compiler = "g++ 12.2.0", .backends = "cpu"};
  r.machine.processor = "A \"fast\", <good> & cheap CPU";
  r.machine.cores = 8;
  r.machine.memory_bytes = 64000000000;
  r.machine.system = "Some Linux";
  r.machine.kernel = "Linux 6.1 x86_64";
  r.machine.gpus = {"GPU one", "GPU two"};
  r.context = "random ids, seed 1";
  r.arms.resize(2);
  r.arms[0].name = "base", r.arms[0].model = "stories", r.arms[0].source = "/models/a.gguf";
  r.arms[0].fingerprint = "0123456789abcdef0123456789abcdef";
  r.arms[0].decode_levers = {"one", "two"}, r.arms[0].prefill_levers = {"three"};
  r.arms[1] = r.arms[0];
  r.arms[1].name = "a,\"b\"\x1b[2J<", r.arms[1].flags = "--threads 1", r.arms[1].slow = 0.25;
  r.arms[0].threads = 8, r.arms[1].threads = 1;
  r.arms[0].weight_bytes_per_token = r.arms[1].weight_bytes_per_token = 11700000;
  r.settings = {.depths = {512, 65536}, .prefill = 100, .decode = 10, .blocks = 8, .most_blocks = 8};
  r.confidence = 0.975;
  for (int depth = 0; depth < 2; ++depth) {
    for (int block = -1; block < 8; ++block) {
      for (const BenchPhase phase : {BenchPhase::kPrefill, BenchPhase::kDecode}) {
        const auto order = block < 0 ? std::vector<int>{0, 1} : engine::BlockOrder(2, block);
        for (size_t at = 0; at < order.size(); ++at) {
          const double seconds = (phase == BenchPhase::kPrefill ? 0.25 : 0.1) * (order[at] == 1 ? 1.25 : 1);
          r.run.samples.push_back(
              {order[at], depth, phase, block, block < 0 ? 0 : static_cast<int>(at), seconds});
        }
      }
    }
  }
  if (!complete) r.run.samples.resize(20);
  r.run.complete = complete;
  r.analysis = engine::Analyse(r.run, r.settings, 2, r.confidence);
  return r;
}

TEST(BenchReport, TheTableSaysWhatWasMeasured) {
  EXPECT_EQ(
      BenchTable(Report()),
      "A \"fast\", <good> & cheap CPU, 8 cores, 64.0 GB, GPU one, GPU two\n"
      "glint 1.2.3 (abcdef123456, g++ 12.2.0), 2026-01-02T03:04:05Z\n"
      "base: stories, 11.7 MB a token, 8 threads\n"
      "a,\"b\"\\x1b[2J<: stories, 11.7 MB a token, 1 thread, --threads 1\n"
      "prefill of 100 tokens, decode of 10; 1 of warm-up apart; context: random ids, seed 1\n"
      "\n"
      "  phase     depth  arm            samples  tokens/s    quartiles        range  GB/s  against base\n"
      "  prefill     512  base                16       400    400 - 400    400 - 400\n"
      "                   a,\"b\"\\x1b[2J<       16       320    320 - 320    320 - 320        20.0 % slower "
      "(20.0 "
      "% to 20.0 %)\n"
      "  prefill  65,536  base                16       400    400 - 400    400 - 400\n"
      "                   a,\"b\"\\x1b[2J<       16       320    320 - 320    320 - 320        20.0 % slower "
      "(20.0 "
      "% to 20.0 %)\n"
      "  decode      512  base                16       100    100 - 100    100 - 100\n"
      "                   a,\"b\"\\x1b[2J<       16      80.0  80.0 - 80.0  80.0 - 80.0        20.0 % slower "
      "(20.0 "
      "% to 20.0 %)\n"
      "  decode   65,536  base                16       100    100 - 100    100 - 100\n"
      "                   a,\"b\"\\x1b[2J<       16      80.0  80.0 - 80.0  80.0 - 80.0        20.0 % slower "
      "(20.0 "
      "% to 20.0 %)\n"
      "\n"
      "Ratios of tokens/s, paired. With 97.5 % confidence all 4 intervals hold the true ratios at once.\n");
}

TEST(BenchReport, AGpusLaunchesBarriersAndCopiesAreShown) {
  BenchReport r = Report();
  plan::Limits limits;
  limits.instructions = "mma", limits.read.best = 4.5e12;
  limits.host = plan::HostLimits{.launch = {0.84e-6, 0.9e-6},
                                 .early_launch = {0.57e-6, 0.6e-6},
                                 .barrier = {0.97e-6, 1e-6},
                                 .launches = 1000,
                                 .barriers = 500,
                                 .to_device = {55e9, 50e9},
                                 .from_device = {54e9, 49e9},
                                 .copy_bytes = 64};
  for (BenchArmFacts& arm : r.arms) arm.limits = limits, arm.device = "cuda:0";
  EXPECT_NE(BenchTable(r).find(
                "; a launch in a graph 0.84 us (0.57 us dependent), a barrier of all blocks 0.97 us; "
                "copies: 55.0 GB/s to the GPU, 54.0 GB/s from it\n"),
            std::string::npos)
      << BenchTable(r);
  const auto json = ParseJson(BenchJson(r), "report");
  ASSERT_TRUE(json.ok()) << json.status().message();
  const Json& arm = json->Find("arms")->items()[0];
  EXPECT_EQ(*arm.Get<double>("limits.launch_seconds.best"), 0.84e-6);
  EXPECT_EQ(*arm.Get<double>("limits.dependent_launch_seconds.median"), 0.6e-6);
  EXPECT_EQ(*arm.Get<double>("limits.barrier_seconds.best"), 0.97e-6);
  EXPECT_EQ(*arm.Get<int64_t>("limits.barriers"), 500);
  EXPECT_EQ(*arm.Get<double>("limits.copy_to_device_bytes_per_second.best"), 55e9);
  EXPECT_EQ(*arm.Get<double>("limits.copy_from_device_bytes_per_second.median"), 49e9);
  // A device that can't: no figure rather than 0.
  for (BenchArmFacts& a : r.arms) a.limits->host->early_launch = {};
  EXPECT_EQ(BenchTable(r).find("dependent"), std::string::npos);
  EXPECT_EQ(BenchJson(r).find("dependent"), std::string::npos);
}

TEST(BenchReport, LoadsAreShownWithTheSpeedOfTheBest) {
  BenchReport r = Report();
  r.arms[0].device = "cuda:1", r.arms[0].load_seconds = {2, 0.5, 0.625}, r.arms[0].load_bytes = 10000000000;
  r.arms[1].load_seconds = {0.25};  // nothing goes anywhere
  EXPECT_NE(BenchTable(r).find("\nbase: opened in 2, 0.5, 0.625 s: 10.0 GB to cuda:1, at best 20.0 GB/s\n"),
            std::string::npos)
      << BenchTable(r);
  EXPECT_NE(BenchTable(r).find(": opened in 0.25 s\n"), std::string::npos) << BenchTable(r);
  const auto json = ParseJson(BenchJson(r), "report");
  ASSERT_TRUE(json.ok()) << json.status().message();
  const Json& load = *json->Find("arms")->items()[0].Find("load");
  EXPECT_EQ(*load.Get<uint64_t>("bytes"), 10000000000u);
  EXPECT_EQ(load.Find("seconds")->items().size(), 3u);
}

TEST(BenchReport, ManyLoadsDoNotMakeALongLine) {
  BenchReport r = Report();
  r.arms[0].load_seconds = {2};
  for (int i = 0; i < 2001; ++i) r.arms[0].load_seconds.push_back(0.001 * ((i * 7) % 2001 + 100));
  EXPECT_NE(BenchTable(r).find("\nbase: opened in 2, then 2,001 times in 1.1 (median; 0.1 to 2.1) s\n"),
            std::string::npos)
      << BenchTable(r);
  const auto json = ParseJson(BenchJson(r), "report");
  ASSERT_TRUE(json.ok()) << json.status().message();
  EXPECT_EQ(json->Find("arms")->items()[0].Find("load")->Find("seconds")->items().size(), 2002u);
}

// 100 tokens/s of 100 MB each, then 200 MB each, where a plain read reaches 25 GB/s.
TEST(BenchReport, DecodeIsComparedWithTheRead) {
  BenchReport r = Report();
  plan::Limits limits;
  limits.threads = 8, limits.instructions = "avx512";
  limits.read.best = 25e9, limits.integer_products.best = 130e9, limits.float_products.best = 90e9;
  for (BenchArmFacts& arm : r.arms) arm.limits = limits, arm.decode_bytes = {1e8, 2e8};
  const std::string table = BenchTable(r);
  EXPECT_NE(
      table.find(
          "\nlimits with 8 threads (avx512): read 25.0 GB/s, multiply-adds/s: 130 G integer, 90.0 G float\n"),
      std::string::npos)
      << table;
  const std::vector<std::string> rows{"  GB/s  of read  against base\n", "100 - 100  10.0     40 %\n",
                                      "80.0 - 80.0  8.00     32 %  20.0 % slower",
                                      "100 - 100  20.0     80 %\n",
                                      "80.0 - 80.0  16.0     64 %  20.0 % slower"};
  size_t at = 0;
  for (const std::string& row : rows) {
    at = table.find(row, at);
    EXPECT_NE(at, std::string::npos) << row << "\n" << table;
  }
  const auto json = ParseJson(BenchJson(r), "report");
  ASSERT_TRUE(json.ok()) << json.status().message();
  EXPECT_EQ(json->Find("arms")->items()[0].Find("limits.launches"), nullptr);
  EXPECT_EQ(json->Find("arms")->items()[0].Find("load"), nullptr);
  EXPECT_EQ(*json->Find("arms")->items()[0].Get<double>("limits.read_bytes_per_second.best"), 25e9);
  int shares = 0;
  for (const Json& result : json->Find("results")->items()) {
    if (*result.Get<std::string>("phase") == "prefill") {
      EXPECT_EQ(result.Find("share_of_read"), nullptr);
      continue;
    }
    ++shares;
    const double share = (*result.Get<int64_t>("depth") == 512 ? 0.4 : 0.8) *
                         (*result.Get<std::string>("arm") == "base" ? 1 : 0.8);
    EXPECT_NEAR(*result.Get<double>("share_of_read"), share, 1e-9);
  }
  EXPECT_EQ(shares, 4);
}

// 2 and 4 tokens a pass: 1.5 and 2.5 times the time of one token, 1.25 and 2 times its bytes, at both depths.
TEST(BenchReport, PassesOfSeveralRowsAreComparedWithTheirBytes) {
  BenchReport r = Report();
  r.arms.resize(1);
  r.settings.prefill = 0, r.settings.rows = {1, 2, 4};
  r.arms[0].decode_bytes = {1e8, 2e8, 1.25e8, 2.5e8, 2e8, 4e8};
  r.arms[0].experts = {2, 3.5, 5.47}, r.arms[0].all_experts = 8;
  r.run.samples.clear();
  for (int depth = 0; depth < 2; ++depth) {
    for (const int rows : r.settings.rows) {
      for (int at = 0; at < 2; ++at) {
        const double seconds = (depth + 1) * (rows == 1 ? 0.1 : rows == 2 ? 0.15 : 0.25);
        r.run.samples.push_back({0, depth, BenchPhase::kDecode, 0, at, seconds, rows});
      }
    }
  }
  r.analysis = engine::Analyse(r.run, r.settings, 1, r.confidence);
  const std::string table = BenchTable(r);
  EXPECT_NE(table.find(
                "\n10 passes of each number of rows; 1 of warm-up apart; context: random ids, seed 1\n"
                "\n"
                "  phase    depth  rows  samples  tokens/s    quartiles        range  GB/s  ms a pass  x one "
                "row  by "
                "bytes  over\n"
                "  decode     512     1        2       100    100 - 100    100 - 100  10.0       10.0\n"
                "  decode     512     2        2       133    133 - 133    133 - 133  8.33       15.0       "
                "1.50      "
                "1.25  1.20\n"
                "  decode     512     4        2       160    160 - 160    160 - 160  8.00       25.0       "
                "2.50      "
                "2.00  1.25\n"
                "  decode  65,536     1        2      50.0  50.0 - 50.0  50.0 - 50.0  10.0       20.0\n"
                "  decode  65,536     2        2      66.7  66.7 - 66.7  66.7 - 66.7  8.33       30.0       "
                "1.50      "
                "1.25  1.20\n"
                "  decode  65,536     4        2      80.0  80.0 - 80.0  80.0 - 80.0  8.00       50.0       "
                "2.50      "
                "2.00  1.25\n"
                "\n"
                "By bytes: tokens that choose evenly, 1, 2 and 4 of which use 2, 3.5 and 5.47 of a layer's 8 "
                "experts.\n"),
            std::string::npos)
      << table;
  const auto json = ParseJson(BenchJson(r), "report");
  ASSERT_TRUE(json.ok()) << json.status().message();
  EXPECT_EQ(*json->Get<std::vector<int64_t>>("settings.rows"), (std::vector<int64_t>{1, 2, 4}));
  const auto& results = json->Find("results")->items();
  ASSERT_EQ(results.size(), 6u);
  EXPECT_EQ(results[0].Find("times_one_row"), nullptr);
  EXPECT_EQ(*results[5].Get<int64_t>("rows"), 4);
  EXPECT_DOUBLE_EQ(*results[5].Get<double>("seconds_per_pass"), 0.05);
  EXPECT_EQ(*results[5].Get<double>("bytes_per_pass"), 4e8);
  EXPECT_EQ(*results[5].Get<double>("bytes_per_token"), 1e8);
  EXPECT_EQ(*results[5].Get<double>("expected_experts"), 5.47);
  EXPECT_DOUBLE_EQ(*results[5].Get<double>("times_one_row.seconds"), 2.5);
  EXPECT_DOUBLE_EQ(*results[5].Get<double>("times_one_row.bytes"), 2);
  EXPECT_DOUBLE_EQ(*results[5].Get<double>("times_one_row.over"), 1.25);
  EXPECT_EQ(*json->Find("samples")->items()[10].Get<int64_t>("tokens"), 40);
  EXPECT_NE(BenchCsv(r).find("\r\nbase,decode,65536,0,0,0,40,4,0.500000000,80,"), std::string::npos)
      << BenchCsv(r);
  EXPECT_NE(BenchPlot(r).find("Passes of 4 rows, 40 tokens"), std::string::npos);
  // Without passes of one row there is nothing to compare with, but their bytes a second.
  r.settings.rows = {2, 4}, r.arms[0].decode_bytes = {1.25e8, 2.5e8, 2e8, 4e8};
  r.analysis = engine::Analyse(r.run, r.settings, 1, r.confidence);
  EXPECT_NE(BenchTable(r).find("133 - 133  8.33       15.0\n"), std::string::npos) << BenchTable(r);
}

TEST(BenchReport, PartialResultsAreCalledPartial) {
  const BenchReport r = Report(false);
  EXPECT_NE(BenchTable(r).find("\nInterrupted: these are partial results.\n"), std::string::npos);
  EXPECT_NE(BenchPlot(r).find("PARTIAL"), std::string::npos);
  EXPECT_NE(BenchJson(r).find("\"complete\": false"), std::string::npos);
  EXPECT_TRUE(BenchCsv(r).ends_with(",0\r\n"));
}

TEST(BenchReport, TheJsonHoldsEverySample) {
  const BenchReport r = Report();
  const auto json = ParseJson(BenchJson(r), "report");
  ASSERT_TRUE(json.ok()) << json.status().message();
  EXPECT_EQ(*json->Get<std::string>("format"), "glint-bench");
  EXPECT_EQ(*json->Get<std::string>("machine.processor"), r.machine.processor);
  EXPECT_EQ(json->At("machine.gpus")->items().size(), 2u);
  EXPECT_EQ(*json->Get<std::string>("build.commit"), "abcdef123456");
  EXPECT_EQ(json->Find("arms")->items().size(), 2u);
  EXPECT_EQ(json->Find("arms")->items()[1].Get<std::string>("name").status().message(), "");
  EXPECT_EQ(*json->Find("arms")->items()[1].Get<double>("slow"), 0.25);
  EXPECT_EQ(json->Find("arms")->items()[0].Find("decode_levers")->items().size(), 2u);
  const auto& results = json->Find("results")->items();
  ASSERT_EQ(results.size(), 8u);
  EXPECT_EQ(*results[0].Get<std::string>("verdict"), "base");
  EXPECT_EQ(results[0].Find("ratio"), nullptr);
  EXPECT_EQ(*results[1].Get<std::string>("verdict"), "slower");
  EXPECT_DOUBLE_EQ(*results[1].Get<double>("ratio.median"), 0.8);
  const auto& samples = json->Find("samples")->items();
  ASSERT_EQ(samples.size(), r.run.samples.size());
  for (size_t i = 0; i < samples.size(); ++i) {
    const auto& s = r.run.samples[i];
    EXPECT_EQ(*samples[i].Get<std::string>("arm"), r.arms[static_cast<size_t>(s.arm)].name);
    EXPECT_EQ(*samples[i].Get<int64_t>("depth"), r.settings.depths[static_cast<size_t>(s.depth)]);
    EXPECT_EQ(*samples[i].Get<bool>("warmup"), s.block < 0);
    EXPECT_EQ(*samples[i].Get<double>("seconds"), s.seconds);
  }
}

// A reader of RFC 4180, written here.
std::vector<std::vector<std::string>> ReadCsv(const std::string& text) {
  std::vector<std::vector<std::string>> lines{{""}};
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '"' && i + 1 < text.size() && text[i + 1] == '"') {
      lines.back().back() += text[++i];
    } else if (c == '"') {
      quoted = !quoted;
    } else if (!quoted && c == ',') {
      lines.back().emplace_back();
    } else if (!quoted && c == '\r') {
      ++i;
      lines.push_back({""});
    } else {
      lines.back().back() += c;
    }
  }
  lines.pop_back();
  return lines;
}

TEST(BenchReport, TheCsvHoldsEverySample) {
  BenchReport r = Report();
  r.arms[1].device = "cuda:0";
  const auto lines = ReadCsv(BenchCsv(r));
  ASSERT_EQ(lines.size(), r.run.samples.size() + 1);
  const auto column = [&](const std::string& name) {
    return static_cast<size_t>(std::find(lines[0].begin(), lines[0].end(), name) - lines[0].begin());
  };
  for (size_t i = 1; i < lines.size(); ++i) {
    ASSERT_EQ(lines[i].size(), lines[0].size());
    const auto& s = r.run.samples[i - 1];
    EXPECT_EQ(lines[i][column("arm")], r.arms[static_cast<size_t>(s.arm)].name);
    EXPECT_EQ(lines[i][column("phase")], Name(s.phase));
    EXPECT_EQ(lines[i][column("warmup")], s.block < 0 ? "1" : "0");
    EXPECT_EQ(lines[i][column("block")], s.block < 0 ? "" : std::to_string(s.block));
    EXPECT_EQ(std::stod(lines[i][column("seconds")]), s.seconds);
    EXPECT_EQ(lines[i][column("processor")], r.machine.processor);
    EXPECT_EQ(lines[i][column("fingerprint")], r.arms[0].fingerprint);
    ASSERT_LT(column("device"), lines[0].size());
    EXPECT_EQ(lines[i][column("device")], r.arms[static_cast<size_t>(s.arm)].device);
    EXPECT_EQ(lines[i][column("gpus")], "GPU one; GPU two");
    EXPECT_EQ(lines[i][column("levers")], s.phase == BenchPhase::kPrefill ? "three" : "one two");
    EXPECT_EQ(lines[i][column("commit")], "abcdef123456");
  }
}

TEST(BenchReport, ThePlotHasALineForEachArmInEachPhase) {
  const std::string svg = BenchPlot(Report());
  size_t lines = 0;
  for (size_t at = svg.find("<path d=\"M"); at != std::string::npos; at = svg.find("<path d=\"M", at + 1))
    lines += svg.find("class=\"line", at) < svg.find("/>", at) ? 1 : 0;
  EXPECT_EQ(lines, 4u);
  EXPECT_NE(svg.find("A &quot;fast&quot;, &lt;good&gt; &amp; cheap CPU"), std::string::npos);
  for (const char c : svg) EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 || c == '\n');
}

}  // namespace
}  // namespace glint::cli
