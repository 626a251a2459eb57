// What `glint bench` tells: a table for people, JSON and CSV for machines, a plot. Pure functions of the report.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/machine.h"
#include "cli/version.h"
#include "engine/bench.h"
#include "engine/bench_analysis.h"
#include "plan/limits.h"

namespace glint::cli {

struct BenchArmFacts {
  std::string name, flags;     // flags: as given
  std::string source;          // path, or spec of a synthetic model
  std::string model;           // its name
  std::string fingerprint;     // of its weights
  std::string device = "cpu";  // Model::device()
  int threads = 0;
  int64_t chunk = 0;                                       // 0: a prefill sample at once
  double slow = 0;                                         // share: 0.03
  std::vector<std::string> prefill_levers, decode_levers;  // in the plans that ran
  bool check = false;                                      // verified before it was timed
  uint64_t weight_bytes_per_token = 0;
  // That a decode pass has to move: [rows][depth], of settings.rows and .depths.
  std::vector<double> decode_bytes;
  std::vector<double>
      experts;  // [rows]: distinct ones of a layer that so many tokens choose on average; empty: no mixture
  int64_t all_experts = 0;
  std::optional<plan::Limits> limits;  // of the machine, with this arm's threads
  std::vector<double> load_seconds;    // of opening its model, each time anew (--load)
  uint64_t load_bytes = 0;             // that went to the device's own memory then; 0: none did
};

struct BenchReport {
  std::string date;  // ISO 8601, UTC
  Build build;
  Machine machine;
  std::string context;  // what it was filled with: "random ids, seed 1", or a file's name
  std::vector<BenchArmFacts> arms;
  engine::BenchSettings settings;
  double confidence = 0;
  engine::BenchRun run;
  engine::BenchAnalysis analysis;
};

std::string BenchTable(const BenchReport& report);
std::string BenchJson(const BenchReport& report);
// A line for each sample, warm-up too, after a line of names (RFC 4180); what holds for all lines is repeated in each, so that files can
// be joined.
std::string BenchCsv(const BenchReport& report);
std::string BenchPlot(const BenchReport& report);

}  // namespace glint::cli
