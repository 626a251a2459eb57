#include "cli/bench_report.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/printable.h"
#include "cli/json_writer.h"
#include "cli/limits_report.h"
#include "cli/plot.h"
#include "cli/units.h"

namespace glint::cli {
namespace {

using engine::BenchCell;
using engine::BenchPhase;
using engine::BenchWork;

const BenchArmFacts& ArmOf(const BenchReport& r, int arm) { return r.arms[static_cast<size_t>(arm)]; }
int64_t DepthOf(const BenchReport& r, int depth) { return r.settings.depths[static_cast<size_t>(depth)]; }

std::string Joined(const std::vector<std::string>& parts, const char* between = ",") {
  std::string out;
  for (const std::string& part : parts) out += (out.empty() ? "" : between) + part;
  return out;
}

// Columns as wide as their widest cell; the last one is not padded. align: 'l' or 'r' for each.
std::string Aligned(const std::vector<std::vector<std::string>>& rows, const std::string& align) {
  std::vector<size_t> widths(align.size());
  for (const auto& row : rows)
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string pad(widths[c] - row[c].size(), ' ');
      line += "  " + (align[c] == 'r' ? pad + row[c] : row[c] + pad);
    }
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return out;
}

std::string MachineLine(const Machine& m) {
  std::string line = fmt::format("{}, {} {}, {}", m.processor, m.cores, m.cores == 1 ? "core" : "cores",
                                 Bytes(m.memory_bytes));
  for (const std::string& gpu : m.gpus) line += ", " + gpu;
  return Printable(line);
}

std::string BuildLine(const BenchReport& r) {
  return fmt::format("glint {} ({}, {}), {}", r.build.version, r.build.commit, r.build.compiler, r.date);
}

// Decoding as ever: no passes of more tokens.
bool OneRowOnly(const engine::BenchSettings& s) { return s.rows == std::vector<int>{1}; }

std::string MethodLine(const BenchReport& r) {
  const engine::BenchSettings& s = r.settings;
  std::vector<std::string> samples;
  if (s.prefill > 0)
    samples.push_back(fmt::format("prefill of {} tokens", Grouped(static_cast<uint64_t>(s.prefill))));
  if (s.decode > 0 && OneRowOnly(s)) {
    samples.push_back(fmt::format("decode of {}", Grouped(static_cast<uint64_t>(s.decode))));
  } else if (s.decode > 0) {
    samples.push_back(
        fmt::format("{} passes of each number of rows", Grouped(static_cast<uint64_t>(s.decode))));
  }
  return fmt::format("{}; {} of warm-up apart; context: {}", Joined(samples, ", "), s.warmup,
                     Printable(r.context));
}

// "4 threads", "cuda:0".
std::string Where(const std::string& device, int threads) {
  return device != "cpu" ? device : fmt::format("{} {}", threads, threads == 1 ? "thread" : "threads");
}

std::string ArmLine(const BenchArmFacts& arm, bool named) {
  std::string line = named ? Printable(arm.name) + ": " : "";
  line += fmt::format("{}, {} a token, {}", Printable(arm.model), Bytes(arm.weight_bytes_per_token),
                      Where(arm.device, arm.threads));
  if (!arm.flags.empty()) line += ", " + Printable(arm.flags);
  return line;
}

std::string LimitsLine(const BenchArmFacts& arm) {
  const plan::Limits& l = *arm.limits;
  std::string line = fmt::format("limits with {} ({}): read {} GB/s, multiply-adds/s: {} G integer",
                                 Where(arm.device, l.threads), l.instructions, Rate(l.read.best / 1e9),
                                 Rate(l.integer_products.best / 1e9));
  if (l.byte_products.best > 0) line += fmt::format(", {} G byte", Rate(l.byte_products.best / 1e9));
  line += fmt::format(", {} G float", Rate(l.float_products.best / 1e9));
  if (const std::string host = HostLimitsText(l); !host.empty()) line += "; " + host;
  return line;
}

// Every time, since the first reads the file and starts the device; the best one's speed. Of many the first, and how the others lie:
// each is in the JSON.
std::string LoadLine(const BenchArmFacts& arm, bool named) {
  constexpr size_t kMostShown = 8;
  std::string times;
  if (arm.load_seconds.size() <= kMostShown) {
    for (const double seconds : arm.load_seconds)
      times += fmt::format("{}{:.3g}", times.empty() ? "" : ", ", seconds);
  } else {
    std::vector<double> later(arm.load_seconds.begin() + 1, arm.load_seconds.end());
    std::sort(later.begin(), later.end());
    times = fmt::format("{:.3g}, then {} times in {:.3g} (median; {:.3g} to {:.3g})", arm.load_seconds[0],
                        Grouped(later.size()), later[later.size() / 2], later.front(), later.back());
  }
  const double best = *std::min_element(arm.load_seconds.begin(), arm.load_seconds.end());
  std::string line = fmt::format("{}opened in {} s", named ? Printable(arm.name) + ": " : "", times);
  if (arm.load_bytes > 0) {
    line += fmt::format(": {} to {}, at best {} GB/s", Bytes(arm.load_bytes), arm.device,
                        Rate(static_cast<double>(arm.load_bytes) / std::max(best, 1e-9) / 1e9));
  }
  return line;
}

size_t IndexOf(const BenchReport& r, int rows) {
  const auto& all = r.settings.rows;
  return static_cast<size_t>(std::find(all.begin(), all.end(), rows) - all.begin());
}

// Bytes that a decode pass had to move; 0 for prefill, whose weights serve many tokens.
double PassBytes(const BenchReport& r, const BenchCell& cell, int rows) {
  const auto& bytes = ArmOf(r, cell.arm).decode_bytes;
  if (cell.phase != BenchPhase::kDecode || bytes.empty()) return 0;
  return bytes[IndexOf(r, rows) * r.settings.depths.size() + static_cast<size_t>(cell.depth)];
}

double DecodeBandwidth(const BenchReport& r, const BenchCell& cell) {
  const double bytes = PassBytes(r, cell, cell.rows);
  return bytes > 0 ? bytes / cell.SecondsAPass() : 0;
}

// A pass of several rows beside one of one row, of the same arm at the same depth: how many times as long it took, and how many times
// the bytes it moves.
struct TimesOneRow {
  double time = 0, bytes = 0;
};
std::optional<TimesOneRow> BesideOneRow(const BenchReport& r, const BenchCell& cell) {
  if (cell.phase != BenchPhase::kDecode || cell.rows == 1 || PassBytes(r, cell, cell.rows) <= 0)
    return std::nullopt;
  for (const BenchCell& one : r.analysis.cells) {
    if (one.arm != cell.arm || one.depth != cell.depth || one.Work() != BenchWork{cell.phase, 1}) continue;
    return TimesOneRow{cell.SecondsAPass() / one.SecondsAPass(),
                       PassBytes(r, cell, cell.rows) / PassBytes(r, cell, 1)};
  }
  return std::nullopt;
}

// What the byte counts of several rows take for given.
std::string ExpertsLine(const BenchArmFacts& arm, const std::vector<int>& rows) {
  std::string counts, experts;
  for (size_t i = 0; i < rows.size(); ++i) {
    const char* const between = i == 0 ? "" : i + 1 == rows.size() ? " and " : ", ";
    counts += fmt::format("{}{}", between, rows[i]);
    experts += fmt::format("{}{:.3g}", between, arm.experts[i]);
  }
  return fmt::format("By bytes: tokens that choose evenly, {} of which use {} of a layer's {} experts.\n",
                     counts, experts, arm.all_experts);
}

// Of the bandwidth that a plain read reaches; nothing without limits.
std::optional<double> ShareOfRead(const BenchReport& r, const BenchCell& cell) {
  const auto& limits = ArmOf(r, cell.arm).limits;
  const double bandwidth = DecodeBandwidth(r, cell);
  if (!limits || bandwidth <= 0 || limits->read.best <= 0) return std::nullopt;
  return bandwidth / limits->read.best;
}

}  // namespace

std::string BenchTable(const BenchReport& r) {
  const bool several = r.arms.size() > 1;
  std::string out = MachineLine(r.machine) + "\n" + BuildLine(r) + "\n";
  for (const BenchArmFacts& arm : r.arms) {
    out += ArmLine(arm, several) + "\n";
    if (!arm.load_seconds.empty()) out += LoadLine(arm, several) + "\n";
  }
  std::vector<std::string> seen;  // by device and threads
  for (const BenchArmFacts& arm : r.arms) {
    if (!arm.limits || std::find(seen.begin(), seen.end(), Where(arm.device, arm.threads)) != seen.end())
      continue;
    seen.push_back(Where(arm.device, arm.threads));
    out += LimitsLine(arm) + "\n";
  }
  out += MethodLine(r) + "\n\n";

  const bool decodes = r.settings.decode > 0, limits = decodes && !seen.empty();
  const bool passes = decodes && !OneRowOnly(r.settings);
  std::vector<std::vector<std::string>> rows{
      {"phase", "depth", "rows", "arm", "samples", "tokens/s", "quartiles", "range"}};
  std::string align = "lrrlrrrr";
  if (decodes) rows[0].push_back("GB/s"), align += 'r';
  if (limits) rows[0].push_back("of read"), align += 'r';
  if (passes) {
    for (const char* name : {"ms a pass", "x one row", "by bytes", "over"})
      rows[0].emplace_back(name), align += 'r';
  }
  rows[0].push_back(several ? "against " + Printable(r.arms[0].name) : ""), align += 'l';
  const int fewest = engine::FewestPairs(r.analysis.comparisons, r.confidence);
  for (const BenchPhase phase : {BenchPhase::kPrefill, BenchPhase::kDecode}) {
    for (const BenchCell& cell : r.analysis.cells) {
      if (cell.phase != phase) continue;
      std::vector<std::string> row{
          cell.arm == 0 ? std::string(Name(phase)) : "",
          cell.arm == 0 ? Grouped(static_cast<uint64_t>(DepthOf(r, cell.depth))) : "",
          cell.arm == 0 && phase == BenchPhase::kDecode ? fmt::format("{}", cell.rows) : "",
          Printable(ArmOf(r, cell.arm).name),
          fmt::format("{}", cell.samples),
          Rate(cell.rate.median),
          Rate(cell.rate.low) + " - " + Rate(cell.rate.high),
          Rate(cell.rate.least) + " - " + Rate(cell.rate.most)};
      const double bandwidth = DecodeBandwidth(r, cell);
      const auto share = ShareOfRead(r, cell);
      if (decodes) row.push_back(bandwidth > 0 ? Rate(bandwidth / 1e9) : "");
      if (limits) row.push_back(share ? fmt::format("{:.0f} %", 100 * *share) : "");
      if (passes && phase == BenchPhase::kDecode) {
        const auto times = BesideOneRow(r, cell);
        row.push_back(Rate(1e3 * cell.SecondsAPass()));
        row.push_back(times ? Rate(times->time) : "");
        row.push_back(times ? Rate(times->bytes) : "");
        row.push_back(times ? Rate(times->time / times->bytes) : "");
      } else if (passes) {
        row.resize(row.size() + 4);
      }
      row.push_back(Describe(cell, fewest));
      rows.push_back(std::move(row));
    }
  }
  const auto leave_out = [&](size_t column) {
    for (auto& row : rows) row.erase(row.begin() + static_cast<std::ptrdiff_t>(column));
    align.erase(column, 1);
  };
  if (!several) leave_out(3);
  if (!passes) leave_out(2);
  out += Aligned(rows, align);
  std::vector<std::string> experts;  // each line once
  for (const BenchArmFacts& arm : r.arms) {
    if (!passes || arm.experts.empty()) continue;
    std::string line = ExpertsLine(arm, r.settings.rows);
    if (std::find(experts.begin(), experts.end(), line) == experts.end()) experts.push_back(std::move(line));
  }
  if (!experts.empty()) out += "\n" + Joined(experts, "");
  const auto& cells = r.analysis.cells;
  const bool any =
      std::any_of(cells.begin(), cells.end(), [](const auto& cell) { return cell.ratio.has_value(); });
  if (several && any) {
    out += fmt::format(
        "\nRatios of tokens/s, paired. With {:g} % confidence {}.\n", 100 * r.confidence,
        r.analysis.comparisons == 1
            ? "the interval holds the true ratio"
            : fmt::format("all {} intervals hold the true ratios at once", r.analysis.comparisons));
  }
  if (!r.run.complete) out += "\nInterrupted: these are partial results.\n";
  return out;
}

std::string BenchJson(const BenchReport& r) {
  JsonWriter json;
  const auto list = [&](const char* key, const std::vector<std::string>& values) {
    json.Key(key).BeginArray(true);
    for (const std::string& value : values) json.Value(value);
    json.EndArray();
  };
  json.BeginObject().Member("format", "glint-bench").Member("version", 1).Member("complete", r.run.complete);
  json.Member("date", r.date);
  json.Key("build").BeginObject().Member("version", r.build.version).Member("commit", r.build.commit);
  json.Member("compiler", r.build.compiler).Member("backends", r.build.backends).EndObject();
  const Machine& m = r.machine;
  json.Key("machine").BeginObject().Member("processor", m.processor).Member("cores", m.cores);
  json.Member("memory_bytes", m.memory_bytes).Member("system", m.system).Member("kernel", m.kernel);
  list("gpus", m.gpus);
  json.EndObject();
  const engine::BenchSettings& s = r.settings;
  json.Key("settings").BeginObject().Member("context", r.context);
  json.Key("depths").BeginArray(true);
  for (const int64_t depth : s.depths) json.Value(depth);
  json.EndArray();
  if (s.real_tokens > 0) json.Member("fill_from", s.real_tokens);
  json.Member("prefill_tokens", s.prefill).Member("decode_tokens", s.decode);
  json.Key("rows").BeginArray(true);
  for (const int rows : s.rows) json.Value(rows);
  json.EndArray().Member("least_blocks", s.blocks);
  json.Member("most_blocks", s.most_blocks).Member("seconds_a_depth", s.seconds);
  json.Member("warmup", s.warmup).Member("confidence", r.confidence);
  json.Member("confidence_each", r.analysis.each).Member("comparisons", r.analysis.comparisons).EndObject();

  json.Key("arms").BeginArray();
  for (const BenchArmFacts& arm : r.arms) {
    json.BeginObject().Member("name", arm.name).Member("flags", arm.flags).Member("source", arm.source);
    json.Member("model", arm.model).Member("fingerprint", arm.fingerprint);
    json.Member("device", arm.device).Member("threads", arm.threads).Member("chunk", arm.chunk);
    json.Member("slow", arm.slow).Member("checked", arm.check);
    list("prefill_levers", arm.prefill_levers);
    list("decode_levers", arm.decode_levers);
    json.Member("weight_bytes_per_token", arm.weight_bytes_per_token);
    if (!arm.load_seconds.empty()) {
      json.Key("load").BeginObject().Member("bytes", arm.load_bytes).Key("seconds").BeginArray(true);
      for (const double seconds : arm.load_seconds) json.Value(seconds);
      json.EndArray().EndObject();
    }
    if (arm.limits) {
      json.Key("limits");
      WriteLimits(json, *arm.limits);
    }
    json.EndObject();
  }
  json.EndArray();

  json.Key("results").BeginArray();
  for (const BenchCell& cell : r.analysis.cells) {
    json.BeginObject().Member("arm", ArmOf(r, cell.arm).name).Member("phase", Name(cell.phase));
    json.Member("depth", DepthOf(r, cell.depth));
    if (cell.phase == BenchPhase::kDecode) json.Member("rows", cell.rows);
    json.Member("samples", cell.samples);
    json.Key("tokens_per_second").BeginObject().Member("median", cell.rate.median);
    json.Member("quartile_low", cell.rate.low).Member("quartile_high", cell.rate.high);
    json.Member("least", cell.rate.least).Member("most", cell.rate.most).EndObject();
    if (const double bandwidth = DecodeBandwidth(r, cell); bandwidth > 0) {
      const double bytes = PassBytes(r, cell, cell.rows);
      json.Member("seconds_per_pass", cell.SecondsAPass()).Member("bytes_per_pass", bytes);
      json.Member("bytes_per_token", bytes / cell.rows).Member("bytes_per_second", bandwidth);
      if (const auto& experts = ArmOf(r, cell.arm).experts; !experts.empty())
        json.Member("expected_experts", experts[IndexOf(r, cell.rows)]);
    }
    if (const auto times = BesideOneRow(r, cell)) {
      json.Key("times_one_row").BeginObject().Member("seconds", times->time).Member("bytes", times->bytes);
      json.Member("over", times->time / times->bytes).EndObject();
    }
    if (const auto share = ShareOfRead(r, cell)) json.Member("share_of_read", *share);
    json.Member("verdict", Name(cell.verdict)).Member("pairs", cell.pairs);
    if (cell.ratio) {
      json.Key("ratio").BeginObject().Member("median", cell.ratio->median);
      json.Member("low", cell.ratio->low).Member("high", cell.ratio->high).EndObject();
    }
    json.EndObject();
  }
  json.EndArray();

  json.Key("samples").BeginArray();
  for (const engine::BenchSample& sample : r.run.samples) {
    json.BeginObject().Member("arm", ArmOf(r, sample.arm).name).Member("phase", Name(sample.phase));
    json.Member("depth", DepthOf(r, sample.depth));
    if (sample.phase == BenchPhase::kDecode) json.Member("rows", sample.rows);
    json.Member("warmup", sample.block < 0).Key("block");
    if (sample.block < 0)
      json.Null();
    else
      json.Value(sample.block);
    json.Member("position", sample.position).Member("tokens", s.Tokens(sample.Work()));
    json.Member("seconds", sample.seconds).EndObject();
  }
  return json.EndArray().EndObject().Take();
}

namespace {

std::string Quoted(const std::string& field) {
  if (field.find_first_of(",\"\r\n") == std::string::npos) return field;
  std::string out = "\"";
  for (const char c : field) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

std::string CsvLine(const std::vector<std::string>& fields) {
  std::string line;
  for (const std::string& field : fields) line += (line.empty() ? "" : ",") + Quoted(field);
  return line + "\r\n";
}

}  // namespace

std::string BenchCsv(const BenchReport& r) {
  std::string out = CsvLine({"arm",      "phase",        "depth",  "warmup",      "block",
                             "position", "tokens",       "rows",   "seconds",     "tokens_per_second",
                             "flags",    "source",       "model",  "fingerprint", "device",
                             "threads",  "chunk",        "slow",   "levers",      "context",
                             "date",     "glint",        "commit", "compiler",    "processor",
                             "cores",    "memory_bytes", "system", "kernel",      "gpus",
                             "complete"});
  for (const engine::BenchSample& s : r.run.samples) {
    const BenchArmFacts& arm = ArmOf(r, s.arm);
    const int64_t tokens = r.settings.Tokens(s.Work());
    const bool warmup = s.block < 0;
    out += CsvLine({arm.name,
                    std::string(Name(s.phase)),
                    fmt::format("{}", DepthOf(r, s.depth)),
                    warmup ? "1" : "0",
                    warmup ? "" : fmt::format("{}", s.block),
                    fmt::format("{}", s.position),
                    fmt::format("{}", tokens),
                    s.phase == BenchPhase::kDecode ? fmt::format("{}", s.rows) : "",
                    fmt::format("{:.9f}", s.seconds),
                    fmt::format("{:.6g}", static_cast<double>(tokens) / s.seconds),
                    arm.flags,
                    arm.source,
                    arm.model,
                    arm.fingerprint,
                    arm.device,
                    fmt::format("{}", arm.threads),
                    fmt::format("{}", arm.chunk),
                    fmt::format("{}", arm.slow),
                    Joined(s.phase == BenchPhase::kPrefill ? arm.prefill_levers : arm.decode_levers, " "),
                    r.context,
                    r.date,
                    r.build.version,
                    r.build.commit,
                    r.build.compiler,
                    r.machine.processor,
                    fmt::format("{}", r.machine.cores),
                    fmt::format("{}", r.machine.memory_bytes),
                    r.machine.system,
                    r.machine.kernel,
                    Joined(r.machine.gpus, "; "),
                    r.run.complete ? "1" : "0"});
  }
  return out;
}

std::string BenchPlot(const BenchReport& r) {
  std::vector<PlotPanel> panels;
  for (const BenchWork& work : r.settings.Works()) {
    const auto tokens = Grouped(static_cast<uint64_t>(r.settings.Tokens(work)));
    PlotPanel panel{.title = work.phase == BenchPhase::kPrefill ? fmt::format("Prefill, {} tokens", tokens)
                             : work.rows == 1
                                 ? fmt::format("Decode, {} tokens", tokens)
                                 : fmt::format("Passes of {} rows, {} tokens", work.rows, tokens),
                    .x_label = "tokens in the context before",
                    .y_label = "tokens/s"};
    for (const BenchArmFacts& arm : r.arms) panel.series.push_back({.name = arm.name});
    for (const BenchCell& cell : r.analysis.cells) {
      if (cell.Work() != work) continue;
      panel.series[static_cast<size_t>(cell.arm)].points.push_back(
          {.x = static_cast<double>(DepthOf(r, cell.depth)),
           .y = cell.rate.median,
           .low = cell.rate.low,
           .high = cell.rate.high});
    }
    panels.push_back(std::move(panel));
  }
  const std::string title = r.arms.size() == 1 ? r.arms[0].model : "Tokens per second by depth";
  return PlotSvg(title,
                 fmt::format("{}, {} cores; glint {} ({}), {}; medians and quartiles{}", r.machine.processor,
                             r.machine.cores, r.build.version, r.build.commit, r.date.substr(0, 10),
                             r.run.complete ? "" : "; PARTIAL"),
                 panels);
}

}  // namespace glint::cli
