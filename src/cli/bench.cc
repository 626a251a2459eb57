// glint bench: tokens/s at depths of the context, of one or several arms, and whether they differ.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <memory>

#include "base/file.h"
#include "cli/bench_arms.h"
#include "cli/bench_report.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/progress_bar.h"
#include "cli/subcommand.h"
#include "engine/model_impl.h"
#include "engine/session_impl.h"
#include "engine/synthetic_depth.h"
#include "plan/step_bytes.h"

namespace glint::cli {
namespace {

constexpr int64_t kDefaultDepths[] = {512, 2048};
constexpr int64_t kDefaultPrefill = 128, kDefaultDecode = 32;
// At a depth: enough to compare on a machine that has other things to do too, or to see the spread of a single arm.
constexpr int64_t kBlocksOfSeveral = 8, kBlocksOfOne = 3, kMostBlocksByTime = 100, kMostBlocks = 10000;
constexpr double kSecondsOfOne = 2, kSecondsAnArm = 4;
constexpr int64_t kMostTokens = int64_t{1} << 24;  // of a sample, or a depth
constexpr int64_t kMostRows = 512;                 // of a pass that counts as decode
constexpr double kDefaultConfidence = 97.5;        // per cent

struct BenchOptions {
  ArmChoice common;
  std::vector<std::string> arm_texts;
  std::vector<ArmChoice> arms;  // of arm_texts, while parsing
  std::optional<std::string> depths, rows, file, csv, plot;
  std::optional<int64_t> real, prefill, decode, blocks, warmup, loads;
  std::optional<uint64_t> seed;
  std::optional<double> confidence, seconds;
  bool json = false, limits = false, force = false;
};

// ---- what to measure

// "512,2048" as ascending numbers, each once.
Result<std::vector<int64_t>> ParseNumbers(const char* option, const std::string& text, int64_t least,
                                          int64_t most) {
  std::vector<int64_t> numbers;
  for (const std::string& entry : SplitNames({text})) {
    const auto number = ParseInteger(entry);
    if (!number || *number < least || *number > most) {
      return Status(Code::kBadInput,
                    fmt::format("{}: '{}' is not a whole number from {} to {}", option, entry, least, most));
    }
    numbers.push_back(*number);
  }
  if (numbers.empty()) return Status(Code::kBadInput, fmt::format("{}: the list is empty", option));
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

Result<std::vector<int64_t>> ParseDepths(const std::string& text) {
  return ParseNumbers("--ctx", text, 0, kMostTokens);
}

Result<std::vector<int64_t>> ParseRows(const std::string& text) {
  return ParseNumbers("--rows", text, 1, kMostRows);
}

// The depths asked for; else those of the defaults that all models have room for.
Result<std::vector<int64_t>> Depths(const BenchOptions& o, const std::vector<Model>& models, int64_t sample) {
  if (o.depths) return ParseDepths(*o.depths);
  std::vector<int64_t> depths;
  for (const int64_t depth : kDefaultDepths) {
    const bool fits = std::all_of(models.begin(), models.end(), [&](const Model& m) {
      return m.context_length() <= 0 || depth + sample <= m.context_length();
    });
    if (fits) depths.push_back(depth);
  }
  if (depths.empty()) depths.push_back(0);
  return depths;
}

Result<engine::BenchSettings> Settings(const BenchOptions& o, const std::vector<Model>& models) {
  engine::BenchSettings s;
  s.prefill = o.prefill.value_or(kDefaultPrefill);
  s.decode = o.decode.value_or(kDefaultDecode);
  if (o.rows) {
    const auto rows = ParseRows(*o.rows);
    if (!rows.ok()) return rows.status();
    s.rows.assign(rows->begin(), rows->end());
  }
  auto depths = Depths(o, models, s.Sample());
  if (!depths.ok()) return depths.status();
  s.depths = std::move(*depths);
  s.real_tokens = o.real.value_or(0);
  s.warmup = static_cast<int>(o.warmup.value_or(1));
  const int arms = static_cast<int>(models.size());
  const double confidence = o.confidence.value_or(kDefaultConfidence) / 100;
  const int fewest = arms > 1 ? (engine::FewestPairs(engine::Comparisons(s, arms), confidence) + 1) / 2 : 1;
  s.seconds = o.blocks ? 0 : o.seconds.value_or(arms > 1 ? kSecondsAnArm * arms : kSecondsOfOne);
  s.blocks = static_cast<int>(
      o.blocks.value_or(std::max<int64_t>(arms > 1 ? kBlocksOfSeveral : kBlocksOfOne, fewest)));
  s.most_blocks = static_cast<int>(std::max<int64_t>(o.seconds ? kMostBlocks : kMostBlocksByTime, s.blocks));
  if (s.blocks < fewest) {
    PrintError(fmt::format("note: {} {} too few to tell whether arms differ; it takes {}\n", s.blocks,
                           s.blocks == 1 ? "block is" : "blocks are", fewest));
  }
  return s;
}

// ---- models

bool SameSource(const ArmChoice& a, const ArmChoice& b) {
  return a.model.path == b.model.path && a.model.synthetic == b.model.synthetic;
}

bool SameModel(const ArmChoice& a, const ArmChoice& b) {
  return SameSource(a, b) && a.model.device == b.model.device && a.model.threads == b.model.threads &&
         SplitNames(a.model.with) == SplitNames(b.model.with) &&
         SplitNames(a.model.without) == SplitNames(b.model.without);
}

using LoadSeconds = std::vector<double>;

// Opens and closes the model as often as it says; the last one stays open.
Result<Model> OpenTimed(const ModelChoice& choice, int64_t times, LoadSeconds& seconds) {
  ProgressBar bar("opening", Unit::kPart);
  for (;;) {
    const auto start = std::chrono::steady_clock::now();
    auto model = choice.Open(false, seconds.empty());
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    if (!model.ok() || static_cast<int64_t>(seconds.size()) >= times) return model;
    if (Interrupted()) return Status(Code::kBadInput, "interrupted");
    bar.Update(seconds.size(), static_cast<uint64_t>(times));
  }
}

// One model for arms that want the same; one copy of the weights for arms of the same source. `loads`: of each arm that is the first
// to want its model's weights on its device.
Result<std::vector<Model>> OpenModels(const std::vector<ArmChoice>& arms, int64_t times,
                                      std::vector<LoadSeconds>& loads) {
  std::vector<Model> models;
  loads.resize(arms.size());
  for (size_t i = 0; i < arms.size(); ++i) {
    const auto named = [&](const Status& status) {
      return arms.size() == 1
                 ? status
                 : Status(status.code(), fmt::format("arm '{}': {}", arms[i].name, status.message()));
    };
    std::optional<size_t> same, source;
    for (size_t j = i; j-- > 0;) {
      if (SameSource(arms[i], arms[j])) source = j;
      if (SameModel(arms[i], arms[j])) same = j;
    }
    if (same) {
      models.push_back(models[*same]);
      continue;
    }
    auto model = source ? engine::WithOptions(models[*source], arms[i].model.Settings())
                        : OpenTimed(arms[i].model, times, loads[i]);
    if (!model.ok()) return named(model.status());
    models.push_back(std::move(*model));
  }
  return models;
}

// ---- tokens

// Text enough for `count` tokens, again from its beginning where it ends.
Result<std::vector<int32_t>> TextTokens(const Model& model, const std::string& text, const std::string& file,
                                        int64_t count) {
  if (!model.has_tokenizer()) {
    return Status(Code::kBadInput,
                  fmt::format("{} has no tokenizer to read {} with; leave -f out", model.name(), file));
  }
  const std::vector<int32_t> ids = model.tokenizer().Encode(text);
  if (ids.empty()) return Status(Code::kBadInput, fmt::format("{}: the text is empty", file));
  std::vector<int32_t> tokens;
  tokens.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) tokens.push_back(ids[static_cast<size_t>(i) % ids.size()]);
  return tokens;
}

Result<std::vector<engine::BenchArm>> MakeArms(const BenchOptions& o, const std::vector<Model>& models,
                                               const engine::BenchSettings& settings) {
  std::string text;
  if (o.file) {
    auto read = ReadText({}, o.file, "text");
    if (!read.ok()) return read.status();
    text = std::move(*read);
  }
  std::vector<engine::BenchArm> arms;
  for (size_t i = 0; i < models.size(); ++i) {
    const ArmChoice& choice = o.arms[i];
    auto tokens = o.file ? TextTokens(models[i], text, *o.file, settings.Context())
                         : Result<std::vector<int32_t>>(engine::RandomTokens(
                               settings.Context(), models[i].usable_vocab(), o.seed.value_or(1)));
    if (!tokens.ok()) return tokens.status();
    arms.push_back({.name = choice.name,
                    .model = models[i],
                    .tokens = std::move(*tokens),
                    .chunk = choice.chunk.value_or(0),
                    .slow = choice.slow.value_or(0) / 100,
                    .check = choice.check});
  }
  return arms;
}

// ---- the report

std::string Now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  const size_t length = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return std::string(text, length);
}

// Names of the levers in the plan of a pass over that many rows.
Result<std::vector<std::string>> LeversOf(const Model& model, int64_t rows) {
  engine::ModelImpl& impl = *model.impl();
  const std::lock_guard lock(impl.mutex);
  const auto plan = impl.PlanFor(plan::Pass::kTrunk, static_cast<int>(rows), false);
  if (!plan.ok()) return plan.status();
  std::vector<std::string> names;
  for (const plan::Lever* lever : (*plan)->levers) names.emplace_back(lever->name);
  return names;
}

Result<BenchArmFacts> FactsOf(const ArmChoice& choice, const engine::BenchArm& arm,
                              const engine::BenchSettings& settings) {
  BenchArmFacts facts;
  facts.name = arm.name;
  facts.flags = choice.flags;
  facts.source = choice.model.Source();
  facts.model = arm.model.name();
  facts.fingerprint = arm.model.fingerprint();
  facts.device = arm.model.device();
  facts.threads = arm.model.threads();
  facts.chunk = arm.chunk;
  facts.slow = arm.slow;
  facts.check = arm.check;
  facts.weight_bytes_per_token = arm.model.weight_bytes_per_token();
  const int64_t piece = arm.chunk > 0 ? std::min(arm.chunk, settings.prefill) : settings.prefill;
  if (settings.prefill > 0) {
    auto levers = LeversOf(arm.model, std::min(piece, arm.model.impl()->backend->prompt_rows()));
    if (!levers.ok()) return levers.status();
    facts.prefill_levers = std::move(*levers);
  }
  auto levers = LeversOf(arm.model, settings.rows[0]);
  if (!levers.ok()) return levers.status();
  facts.decode_levers = std::move(*levers);
  const model::HParams& hp = arm.model.impl()->data.hparams;
  facts.all_experts = hp.experts;
  for (const int rows : settings.rows) {
    if (hp.experts > 0) facts.experts.push_back(plan::ExpectedExperts(hp, rows));
    for (const int64_t depth : settings.depths) {
      const auto bytes = engine::DecodeBytes(arm.model, depth, rows);
      if (!bytes.ok()) return bytes.status();
      facts.decode_bytes.push_back(*bytes);
    }
  }
  return facts;
}

// Once for each device and number of threads.
Status MeasureLimits(const std::vector<engine::BenchArm>& arms, std::vector<BenchArmFacts>& facts) {
  for (size_t i = 0; i < arms.size(); ++i) {
    for (size_t j = 0; j < i && !facts[i].limits; ++j) {
      if (facts[j].device == facts[i].device && facts[j].threads == facts[i].threads)
        facts[i].limits = facts[j].limits;
    }
    if (facts[i].limits) continue;
    ProgressBar bar("measuring the machine", Unit::kPart);
    engine::ModelImpl& impl = *arms[i].model.impl();
    const std::lock_guard lock(impl.mutex);
    auto limits = impl.backend->MeasureLimits(bar.Callback());
    if (!limits.ok()) return limits.status();
    facts[i].limits = std::move(*limits);
  }
  return {};
}

// ---- files

// Opened before the work, so that a place that can't be written to shows before an hour has gone by.
struct Output {
  std::optional<AtomicFile> file;

  Status Open(const std::optional<std::string>& path, bool replace) {
    if (!path) return {};
    auto made = AtomicFile::Create(*path, {}, 0666, replace);
    if (!made.ok()) return made.status();
    file = std::move(*made);
    file->SetAside();
    return {};
  }
  Status Write(const std::string& text) {
    Status status = file->Write(std::as_bytes(std::span(text.data(), text.size())));
    return status.ok() ? file->Commit() : status;
  }
};

Result<int> Bench(const BenchOptions& o) {
  std::vector<LoadSeconds> loads;
  const auto models = OpenModels(o.arms, o.loads.value_or(1), loads);
  if (!models.ok()) return models.status();
  const auto settings = Settings(o, *models);
  if (!settings.ok()) return settings.status();
  const auto arms = MakeArms(o, *models, *settings);
  if (!arms.ok()) return arms.status();

  BenchReport report;
  report.date = Now();
  report.build = ThisBuild();
  report.machine = ThisMachine();
  report.context = o.file ? *o.file : fmt::format("random ids, seed {}", o.seed.value_or(1));
  if (o.real) report.context += engine::DescribeSynthetic(*o.real);
  report.settings = *settings;
  report.confidence = o.confidence.value_or(kDefaultConfidence) / 100;
  for (size_t i = 0; i < arms->size(); ++i) {
    auto facts = FactsOf(o.arms[i], (*arms)[i], *settings);
    if (!facts.ok()) return facts.status();
    if (o.loads && !loads[i].empty()) {
      facts->load_seconds = std::move(loads[i]);
      facts->load_bytes = (*models)[i].impl()->backend->weight_bytes();
    }
    report.arms.push_back(std::move(*facts));
  }
  Output csv, plot;
  if (Status status = csv.Open(o.csv, o.force); !status.ok()) return status;
  if (Status status = plot.Open(o.plot, o.force); !status.ok()) return status;

  if (o.limits) {
    if (Status status = MeasureLimits(*arms, report.arms); !status.ok()) return status;
  }
  ProgressBar bar("measuring", Unit::kPart);
  auto run = engine::RunBench(*arms, *settings, {.progress = bar.Callback(), .interrupted = Interrupted});
  bar.Finish();
  if (!run.ok()) return run.status();
  report.run = std::move(*run);
  report.analysis = engine::Analyse(report.run, *settings, static_cast<int>(arms->size()), report.confidence);

  // The files first: what was measured is not lost with a pipe that closed.
  Status status;
  if (o.csv) status = csv.Write(BenchCsv(report));
  if (status.ok() && o.plot) status = plot.Write(BenchPlot(report));
  const Status printed = Print(o.json ? BenchJson(report) : BenchTable(report));
  if (status.ok()) status = printed;
  if (!status.ok()) return status;
  return report.run.complete ? 0 : InterruptExitCode();
}

}  // namespace

Work DeclareBench(Options& options) {
  auto o = std::make_shared<BenchOptions>();
  options.Value("--ctx", "N,...", &o->depths,
                "Depths: tokens in the context when a measurement begins; without it 512,2048, as far as the "
                "model goes");
  options.Value(
      "--fill-from", "N", &o->real, 1, kMostTokens,
      "Read only about N tokens of the context and repeat what is kept of them: a deep one in seconds");
  options.Value("--prefill", "N", &o->prefill, 0, kMostTokens,
                "Prompt tokens of a sample, read at that depth; 0: none; without it 128");
  options.Value("--decode", "N", &o->decode, 0, kMostTokens,
                "Tokens of a sample decoded one by one at that depth; 0: none; without it 32");
  options.Value(
      "--rows", "N,...", &o->rows,
      "Tokens of a decode pass, as many passes as --decode says: 1 is decoding, 2,3,4 what verifying "
      "drafts takes, beside what it should take by its bytes; without it 1");
  options.Value("-b,--blocks", "N", &o->blocks, 1, kMostBlocks,
                "Blocks at each depth; in a block an arm is measured twice (A B B A); without it by time");
  options.Value(
      "--seconds", "S", &o->seconds, 0, 86400,
      "Time for the blocks of a depth; without it 4 for each arm, or 2 in all if there is one; there are "
      "at least 8 blocks (3)");
  options.Value("--warmup", "N", &o->warmup, 0, kMostBlocks,
                "Samples of each arm before the first block of a depth, kept apart; without it 1");
  options.Value("-f,--file", "FILE", &o->file,
                "A text to fill the context with and to read ('-' is stdin), from its beginning again where "
                "it ends; without it random token ids");
  options.Value("--seed", "N", &o->seed, "Of the random token ids; without it 1");
  options.Group("Comparing");
  options.List("--arm", "\"NAME: FLAGS\"", &o->arm_texts,
               "Something to compare, once for each: the flags are those of Model and Execution; what they "
               "leave open is as outside. The first arm is what the others are compared with");
  options.Value("--confidence", "PERCENT", &o->confidence, 50, 99.99,
                "That all intervals of the run hold together; without it 97.5");
  options.Group("Output");
  options.Flag(
      "--limits", &o->limits,
      "Measure the machine's read bandwidth and multiply-adds first (of a GPU also launches, barriers and "
      "copies), and say what share decoding gets");
  options.Value("--load", "N", &o->loads, 1, kMostBlocks,
                "Open each model N times, one after the other, and say how long each took and how fast its "
                "weights went to the GPU; the first may read the disk, later ones what the system has kept");
  options.Flag("--json", &o->json, "One JSON object on stdout instead of the table, with every sample");
  options.Value("--csv", "FILE", &o->csv, "Also write every sample to a CSV file");
  options.Value("--plot", "FILE", &o->plot, "Also draw tokens/s by depth as an SVG file");
  options.Flag("--force", &o->force, "Replace these two files if they exist (never an input)");
  options.files().Reads(&o->file);
  options.files().ReadsAll([o] {
    std::vector<std::string> paths;
    for (const ArmChoice& arm : o->arms) {
      const auto where = arm.model.Path();
      if (!arm.model.synthetic && where.ok()) paths.push_back(*where);
    }
    return paths;
  });
  options.files().Writes(&o->csv, &o->force);
  options.files().Writes(&o->plot, &o->force);
  o->common.Declare(options);
  options.Notes(
      "Depths are reached once; samples start from a checkpoint. Ctrl-C prints what was measured until then, "
      "as "
      "partial (exit code 130). docs/bench.md has the method and how to read the numbers.");
  options.Examples(
      {"glint bench", "glint bench --ctx 0,1024 --blocks 3 --csv samples.csv --plot depth.svg",
       "glint bench --ctx 256 --arm \"one: --threads 1\" --arm \"two: --threads 2\" --decode 8 --prefill 0",
       "glint bench --ctx 256 --prefill 0 --decode 4 --rows 1,2,3,4 --blocks 2",
       "glint bench --synthetic tiny --ctx 64 --prefill 16 --decode 4 -b 8 --arm base: --arm \"plain: "
       "--without all\" --json"});
  options.Check([o]() -> Status {
    if (o->depths) {
      const auto depths = ParseDepths(*o->depths);
      if (!depths.ok()) return depths.status();
    }
    if (o->rows) {
      const auto rows = ParseRows(*o->rows);
      if (!rows.ok()) return rows.status();
      if (o->decode == 0) return {Code::kBadInput, "--rows is of decode passes, and --decode is 0"};
    }
    if (o->prefill == 0 && o->decode == 0) {
      return {Code::kBadInput, "nothing to measure: --prefill and --decode are both 0"};
    }
    if (o->blocks && o->seconds) return {Code::kBadInput, "give --blocks or --seconds, not both"};
    if (o->file && o->seed) return {Code::kBadInput, "--seed is of random ids, and -f gives a text"};
    if (o->csv && o->plot && SamePlace(*o->csv, *o->plot))
      return {Code::kBadInput, "--csv and --plot name one file"};
    auto arms = ParseArms(o->arm_texts, o->common);
    if (!arms.ok()) return arms.status();
    o->arms = std::move(*arms);
    return {};
  });
  return [o] { return Bench(*o); };
}

}  // namespace glint::cli
