// glint compare: what choosing one of two files of a model changes: weights, predictions and speed.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/printable.h"
#include "cli/divergence_report.h"
#include "cli/interrupt.h"
#include "cli/json_writer.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/progress_bar.h"
#include "cli/subcommand.h"
#include "cli/terminal.h"
#include "cli/units.h"
#include "engine/bench.h"
#include "engine/bench_analysis.h"
#include "engine/divergence.h"
#include "engine/scoring.h"
#include "model/compare.h"

namespace glint::cli {
namespace {

constexpr int64_t kPrefill = 64, kDecode = 64;  // tokens of a sample of speed
constexpr int kBlocks = 5;                      // each has two samples of both models
constexpr double kConfidence = 0.95;

struct CompareChoice {
  std::string a, b;
  ScoringChoice scoring;
  std::optional<int64_t> threads;
  bool json = false;
  bool with_text() const { return scoring.file || scoring.ids; }
};

struct Behaviour {
  engine::DivergenceBins divergence;
  engine::Windows windows;
  std::array<double, 2> reading{};  // seconds of the text
  int64_t tokens = 0;               // that each read in them
  engine::BenchSettings settings{};
  engine::BenchAnalysis speed{};
};

// Both models and the text, looked at before the weights, whose comparison takes long.
struct Prepared {
  Model a, b;
  std::vector<int32_t> ids;
};

Result<Prepared> Prepare(const CompareChoice& o) {
  ModelOptions settings;
  settings.threads = static_cast<int>(o.threads.value_or(0));
  auto a = Model::Open(o.a, settings);
  if (!a.ok()) return a.status();
  auto b = Model::Open(o.b, settings);
  if (!b.ok()) return b.status();
  auto ids = o.scoring.Ids(*a);
  if (!ids.ok()) return ids.status();
  const engine::Windows windows = o.scoring.Choose(engine::DefaultWindows(*a));
  for (const Model* model : {&*a, &*b})
    if (Status s = engine::CheckWindows(windows, *model, ids->size()); !s.ok()) return s;
  return Prepared{std::move(*a), std::move(*b), std::move(*ids)};
}

Result<Behaviour> Behave(const CompareChoice& o, const Prepared& prepared) {
  const auto *const a = &prepared.a, *const b = &prepared.b;
  const auto* const ids = &prepared.ids;
  Behaviour out{.divergence = engine::DivergenceBins(o.scoring.Bins()),
                .windows = o.scoring.Choose(engine::DefaultWindows(*a))};
  ProgressBar bar("comparing predictions", Unit::kTokens);
  std::vector<double> row(static_cast<size_t>(a->vocab_size()));
  const auto each = [&](const engine::ScoredToken& in_a, const engine::ScoredToken& in_b) -> Status {
    const double partition = engine::LogPartition(in_a.logits);
    if (!std::isfinite(partition) || !std::isfinite(engine::LogPartition(in_b.logits)))
      return {Code::kBadFile,
              fmt::format("the logits before token {} are no numbers; weights are damaged", in_a.index)};
    for (size_t i = 0; i < row.size(); ++i) row[i] = static_cast<double>(in_a.logits[i]) - partition;
    out.divergence.Add(in_a.position, engine::Compare(row, 0, in_b.logits, in_b.id));
    return {};
  };
  const Status scored = engine::ScoreTogether(*a, *b, *ids, out.windows, each, &out.reading, bar.Callback());
  bar.Finish();
  if (!scored.ok()) return scored;
  out.tokens = engine::TokensToRead(out.windows, ids->size());

  const int64_t most = std::min(a->context_length(), b->context_length());
  out.settings = {
      .depths = {0}, .prefill = kPrefill, .decode = kDecode, .blocks = kBlocks, .most_blocks = kBlocks};
  if (most > 0)
    out.settings.prefill = std::min(kPrefill, most), out.settings.decode = std::min(kDecode, most);
  std::vector<int32_t> tokens(static_cast<size_t>(out.settings.Context()));
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = (*ids)[i % ids->size()];
  const std::array<engine::BenchArm, 2> arms{engine::BenchArm{.name = "A", .model = *a, .tokens = tokens},
                                             engine::BenchArm{.name = "B", .model = *b, .tokens = tokens}};
  ProgressBar timing("timing both", Unit::kPart);
  const auto run = engine::RunBench(
      arms, out.settings, {.progress = timing.Callback(), .interrupted = [] { return Interrupted(); }});
  timing.Finish();
  if (!run.ok()) return run.status();
  if (!run->complete) return Status(Code::kBadInput, "interrupted");
  out.speed = engine::Analyse(*run, out.settings, 2, kConfidence);
  return out;
}

std::string Number(double value) {
  if (!std::isfinite(value)) return "inf";
  return value < 1e6 ? fmt::format("{:.6f}", value) : fmt::format("{:.6e}", value);
}

std::string Text(const CompareChoice& o, const model::FileComparison& files) {
  std::string out = fmt::format("A {}: {}\nB {}: {}\n", Printable(o.a), Bytes(files.bytes_a), Printable(o.b),
                                Bytes(files.bytes_b));
  size_t same = 0, width = 6;
  for (const auto& t : files.tensors) {
    same += t.same;
    if (!t.same) width = std::max(width, Printable(t.name).size());
  }
  out += fmt::format("{} of {} common tensors are the same byte for byte\n", Grouped(same),
                     Grouped(files.tensors.size()));
  if (same < files.tensors.size())
    out += fmt::format("\n  {:<{}}  {:<16}{:>10}{:>10}{:>14}{:>14}  {}\n", "tensor", width, "type A -> B",
                       "bytes A", "bytes B", "relative rms", "worst block", "at row, column");
  for (const auto& t : files.tensors) {
    if (t.same) continue;
    out += fmt::format("  {:<{}}  {:<16}{:>10}{:>10}", Printable(t.name), width, t.type_a + " -> " + t.type_b,
                       Bytes(t.bytes_a), Bytes(t.bytes_b));
    if (!t.incomparable.empty()) {
      out += "  " + t.incomparable + "\n";
      continue;
    }
    out += fmt::format("{:>14}{:>14}  {}, {}", Number(t.relative_rms), Number(t.worst_block), t.worst_row,
                       t.worst_column);
    if (t.not_numbers > 0) out += fmt::format("  ({} weights are no numbers)", Grouped(t.not_numbers));
    out += "\n";
  }
  for (const std::string& name : files.only_a) out += fmt::format("  only in A: {}\n", Printable(name));
  for (const std::string& name : files.only_b) out += fmt::format("  only in B: {}\n", Printable(name));
  if (!files.keys.empty()) out += "\nmetadata that differ:\n";
  for (const auto& key : files.keys)
    out += fmt::format("  {}: {} | {}\n", Printable(key.key), key.a.empty() ? "(none)" : Printable(key.a),
                       key.b.empty() ? "(none)" : Printable(key.b));
  return out;
}

std::string Text(const Behaviour& found) {
  std::string out = "\npredictions of B against A:\n" + DivergenceTable(found.divergence);
  const auto tokens = static_cast<double>(found.tokens);
  out += fmt::format("\ntokens/s, both in turn:\n  {:<12}{:>10}{:>10}\n  {:<12}{:>10}{:>10}\n", "", "A", "B",
                     "this text", Rate(tokens / found.reading[0]), Rate(tokens / found.reading[1]));
  for (size_t i = 0; i + 1 < found.speed.cells.size(); i += 2) {
    const engine::BenchCell &a = found.speed.cells[i], &b = found.speed.cells[i + 1];
    const int fewest = engine::FewestPairs(found.speed.comparisons, kConfidence);
    out += fmt::format("  {:<12}{:>10}{:>10}  B: {}\n", engine::Name(a.phase), Rate(a.rate.median),
                       Rate(b.rate.median), engine::Describe(b, fewest));
  }
  return out;
}

std::string Json(const CompareChoice& o, const model::FileComparison& files, const Behaviour* found) {
  JsonWriter json;
  json.BeginObject().Member("a", std::string_view(o.a)).Member("b", std::string_view(o.b));
  json.Member("bytes_a", files.bytes_a).Member("bytes_b", files.bytes_b);
  json.Key("tensors").BeginArray();
  for (const auto& t : files.tensors) {
    json.BeginObject().Member("name", std::string_view(t.name)).Member("same", t.same);
    json.Member("type_a", std::string_view(t.type_a)).Member("type_b", std::string_view(t.type_b));
    json.Member("bytes_a", t.bytes_a).Member("bytes_b", t.bytes_b);
    if (t.incomparable.empty()) {
      json.Member("relative_rms", t.relative_rms).Member("worst_block", t.worst_block);
      json.Member("worst_row", t.worst_row).Member("worst_column", t.worst_column);
      json.Member("not_numbers", t.not_numbers);
    } else {
      json.Member("incomparable", std::string_view(t.incomparable));
    }
    json.EndObject();
  }
  json.EndArray();
  for (const auto& [key, names] : {std::pair("only_a", &files.only_a), std::pair("only_b", &files.only_b)}) {
    json.Key(key).BeginArray();
    for (const std::string& name : *names) json.Value(std::string_view(name));
    json.EndArray();
  }
  json.Key("metadata").BeginArray();
  for (const auto& key : files.keys) {
    json.BeginObject().Member("key", std::string_view(key.key));
    for (const auto& [side, value] : {std::pair("a", &key.a), std::pair("b", &key.b)}) {
      json.Key(side);
      if (value->empty())
        json.Null();
      else
        json.Value(std::string_view(*value));
    }
    json.EndObject();
  }
  json.EndArray();
  if (found != nullptr) {
    WriteDivergence(json.Key("divergence"), found->divergence);
    json.Key("speed").BeginArray();
    const auto tokens = static_cast<double>(found->tokens);
    json.BeginObject().Member("phase", "text");
    json.Member("a", tokens / found->reading[0]).Member("b", tokens / found->reading[1]).EndObject();
    for (size_t i = 0; i + 1 < found->speed.cells.size(); i += 2) {
      const engine::BenchCell &a = found->speed.cells[i], &b = found->speed.cells[i + 1];
      json.BeginObject().Member("phase", engine::Name(a.phase));
      json.Member("a", a.rate.median).Member("b", b.rate.median);
      if (b.ratio)
        json.Member("ratio", b.ratio->median).Member("low", b.ratio->low).Member("high", b.ratio->high);
      json.Member("verdict", engine::Name(b.verdict)).EndObject();
    }
    json.EndArray();
  }
  return json.EndObject().Take();
}

Result<int> Compare(const CompareChoice& o) {
  std::optional<Prepared> prepared;
  if (o.with_text()) {
    auto made = Prepare(o);
    if (!made.ok()) return made.status();
    prepared.emplace(std::move(*made));
  }
  ProgressBar bar("comparing weights", Unit::kBytes);
  const auto files = model::CompareFiles(o.a, o.b, static_cast<int>(o.threads.value_or(0)), bar.Callback());
  bar.Finish();
  if (!files.ok()) return files.status();
  std::optional<Behaviour> found;
  if (o.with_text()) {
    auto behaviour = Behave(o, *prepared);
    if (!behaviour.ok()) return behaviour.status();
    found.emplace(std::move(*behaviour));
  }
  const Status printed = Print(o.json ? Json(o, *files, found ? &*found : nullptr)
                                      : TerminalText(Text(o, *files) + (found ? Text(*found) : "")));
  return printed.ok() ? Result<int>(0) : printed;
}

}  // namespace

Work DeclareCompare(Options& options) {
  auto o = std::make_shared<CompareChoice>();
  options.RequiredPositional("A.gguf", &o->a, "What B is compared with; any file of a set");
  options.RequiredPositional("B.gguf", &o->b, "The other");
  options.files().Reads(&o->a);
  options.files().Reads(&o->b);
  o->scoring.Declare(options, "--text");
  options.Check([o]() -> Status {
    const ScoringChoice& s = o->scoring;
    if (o->with_text()) return CheckLeverEnvironment();
    if (!(s.context || s.stride || s.first || s.bins || s.special)) return {};
    return {Code::kBadInput,
            "--ctx, --stride, --first, --bins and --special are of a text: give --text or --ids"};
  });
  options.Value("--threads", "N", &o->threads, 1, 1024, "Threads; without it one a core");
  options.Flag("--json", &o->json, "As JSON");
  options.Notes(
      "Weights: root mean square of B - A by that of A, and of the worst block (of at least 32 weights). "
      "With a text, both models read it in turn, piece by piece: how far B's predictions are from A's by "
      "position, and the speed of both.");
  options.Examples({"cp model.gguf other.gguf && glint compare model.gguf other.gguf",
                    "glint quantize model.gguf q8.gguf --type q8_0 && glint compare model.gguf q8.gguf "
                    "--text text.txt --ctx 64"});
  return [o] { return Compare(*o); };
}

}  // namespace glint::cli
