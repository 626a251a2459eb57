// glint quantize: a GGUF file becomes another, its tensors in other types.
#include "model/quantize.h"

#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "base/file.h"
#include "cli/interrupt.h"
#include "cli/json_writer.h"
#include "cli/output.h"
#include "cli/progress_bar.h"
#include "cli/recipe_option.h"
#include "cli/subcommand.h"
#include "cli/terminal.h"
#include "cli/units.h"

namespace glint::cli {
namespace {

struct QuantizeChoice {
  std::optional<std::string> in, out, type, recipe, show, imatrix, report, split;
  std::optional<int64_t> threads;
  uint64_t shard_bytes = 0;
  bool dry = false, force = false, restart = false;
};

Result<int> ShowRecipe(const std::string& name) {
  if (name == "list") {
    std::string text;
    for (const model::ShippedRecipe& shipped : model::ShippedRecipes())
      text += fmt::format("{:<14}{}\n", shipped.name, shipped.summary);
    const Status status = Print(text);
    return status.ok() ? Result<int>(0) : status;
  }
  const auto recipe = ReadRecipe(name);
  if (!recipe.ok()) return recipe.status();
  const Status status = Print(recipe->text());
  return status.ok() ? Result<int>(0) : status;
}

std::string ReportJson(const model::QuantizeReport& report) {
  JsonWriter json;
  json.BeginObject().Key("files").BeginArray(true);
  for (const std::string& path : report.paths) json.Value(std::string_view(path));
  json.EndArray().Member("bytes", report.bytes);
  json.Key("tensors").BeginArray();
  for (const model::QuantizedTensor& t : report.tensors) {
    json.BeginObject().Member("name", std::string_view(t.name)).Key("shape").BeginArray(true);
    for (const uint64_t n : t.ne) json.Value(n);
    json.EndArray()
        .Member("from", quant::Name(t.from))
        .Member("to", quant::Name(t.to))
        .Member("asked_for", quant::Name(t.wanted));
    json.Member("bytes_before", t.bytes_before).Member("bytes", t.bytes).Member("kept", t.kept);
    json.Member("importance", t.weighed).Member("experts_never_hit", t.unhit);
    json.Member("relative_rms_error", t.relative_rms)
        .Member("largest_block_error", t.largest_block)
        .EndObject();
  }
  json.EndArray().Key("notes").BeginArray();
  for (const std::string& note : report.notes) json.Value(std::string_view(note));
  return json.EndArray().EndObject().Take();
}

// By pair of types: how many tensors, bytes, and the worst error.
std::string Table(const model::QuantizeReport& report, bool dry) {
  struct Row {
    quant::Type from, to;
    uint64_t tensors = 0, before = 0, bytes = 0;
    double worst = 0;
  };
  std::vector<Row> rows;
  for (const model::QuantizedTensor& t : report.tensors) {
    auto row = std::find_if(rows.begin(), rows.end(),
                            [&](const Row& r) { return r.from == t.from && r.to == t.to; });
    if (row == rows.end()) row = rows.insert(rows.end(), {t.from, t.to});
    ++row->tensors;
    row->before += t.bytes_before;
    row->bytes += t.bytes;
    row->worst = std::max(row->worst, t.relative_rms);
  }
  std::string text;
  for (const Row& row : rows) {
    text += fmt::format("{:>6} tensors  {:>8} {:<2} {:<8}  {:>8} {:<2} {:>8}", row.tensors,
                        quant::Name(row.from), row.from == row.to ? "" : "->",
                        row.from == row.to ? "kept" : quant::Name(row.to), Bytes(row.before),
                        row.from == row.to ? "" : "->", row.from == row.to ? "" : Bytes(row.bytes));
    if (row.from != row.to && !dry) text += fmt::format("  largest relative RMS error {:.3g}", row.worst);
    text += '\n';
  }
  return text;
}

Result<int> Quantize(const QuantizeChoice& o, const CommandFiles& files) {
  if (o.show) return ShowRecipe(*o.show);
  const auto recipe = o.type ? model::Recipe::Parse(*o.type) : ReadRecipe(*o.recipe);
  if (!recipe.ok()) return recipe.status();
  std::optional<model::ImportanceMatrix> importance;
  if (o.imatrix) {
    auto read = model::ImportanceMatrix::Read(*o.imatrix);
    if (!read.ok()) return read.status();
    importance.emplace(std::move(*read));
  }
  std::optional<AtomicFile> report_file;
  if (o.report) {  // before the work, so that a place that can't be written to shows before an hour has gone by
    auto file = AtomicFile::Create(*o.report, {}, 0666, o.force);
    if (!file.ok()) return file.status();
    report_file.emplace(std::move(*file));
    report_file->SetAside();  // the run may be killed, and the next one would leave another temporary
  }
  ProgressBar bar(o.dry ? "checking" : "quantizing", Unit::kBytes);
  model::QuantizeOptions options;
  options.importance = importance ? &*importance : nullptr;
  options.importance_path = o.imatrix.value_or("");
  options.inputs = files.Inputs();
  options.others = files.Outputs();
  options.shard_bytes = o.shard_bytes;
  options.replace = o.force;
  options.restart = o.restart;
  options.dry = o.dry;
  options.threads = static_cast<int>(o.threads.value_or(0));
  options.progress = bar.Callback();
  const auto report = model::Quantize(*o.in, *o.out, *recipe, options);
  bar.Finish();
  if (!report.ok()) return report.status();
  if (report_file && !o.dry) {
    const std::string json = ReportJson(*report);
    Status status = report_file->Write(std::as_bytes(std::span(json.data(), json.size())));
    if (status.ok()) status = report_file->Commit();
    if (!status.ok())
      return Status(status.code(), fmt::format("{} is complete, but its report is not: {}",
                                               report->paths.front(), status.message()));
  }
  const Status printed = Print(Table(*report, o.dry));
  if (!printed.ok()) return printed;
  for (const std::string& note : report->notes) PrintError("note: " + TerminalText(note) + "\n");
  if (report->taken_over_bytes > 0)
    PrintError(fmt::format("{} were there from an earlier run\n", Bytes(report->taken_over_bytes)));
  PrintError(
      fmt::format("{}{}{}: {}, {}\n", o.dry ? "would write " : "", TerminalText(report->paths.front()),
                  report->paths.size() > 1 ? fmt::format(" and {} more", report->paths.size() - 1) : "",
                  Counted(report->written_tensors, "tensor"), Bytes(report->bytes)));
  return 0;
}

}  // namespace

Work DeclareQuantize(Options& options) {
  auto o = std::make_shared<QuantizeChoice>();
  options.Positional("IN.gguf", &o->in, "The model, any file of a set; only read");
  options.Positional("OUT.gguf", &o->out, "The file to write; it appears whole or not at all");
  options.Value("--type", "TYPE", &o->type,
                fmt::format("Type of all weight matrices but routers (and hyper-connections, for f32, f16 "
                            "and bf16); small tensors "
                            "stay. There are {}",
                            quant::EncodableNames()));
  options.Value("--recipe", "FILE", &o->recipe,
                "Rules for each tensor, or the name of a recipe that comes with glint");
  options.Value("--show-recipe", "NAME", &o->show,
                "Print a recipe, to begin one's own with; 'list' names them");
  options.Value("--imatrix", "FILE", &o->imatrix,
                "Importance of input channels (glint imatrix), so that errors fall where they cost least");
  options.Value("--split-size", "SIZE", &o->split,
                "Write a set of files of at most this size each: 40G, 500M");
  options.Value("--report", "FILE", &o->report, "Write types, bytes and errors of every tensor as JSON");
  options.Flag("--dry-run", &o->dry, "Check all that could fail, weights included, and write nothing");
  options.Flag("--force", &o->force, "Replace OUT.gguf and the report if they exist (never an input)");
  options.Flag("--restart", &o->restart, "Throw away what an unfinished run has left");
  options.files().Reads(&o->in);
  options.files().Reads(&o->imatrix);
  options.files().ReadsRecipe(&o->recipe);
  options.files().Writes(&o->out, &o->force, CommandFiles::Form::kSet);
  options.files().Writes(&o->report, &o->force);
  options.Value("--threads", "N", &o->threads, 1, 1024, "Threads; without it one per available core");
  options.Notes(
      "A recipe holds a rule a line, the first that matches a tensor decides:\n"
      "  vectors = keep                     norms, biases, convolutions\n"
      "  role:router = keep                 roles: kda, dsa, indexer, hc, router, experts, shared, dense,\n"
      "                                     embedding, head, norm, mtp\n"
      "  blk.{0-2}.ffn_down* = q6_k         names as `glint inspect` shows them\n"
      "  role:mtp & role:experts = q4_k     both must hold\n"
      "  * = q4_k\n"
      "What is of its type already is kept byte for byte. A killed run goes on with the same command; until "
      "it is done "
      "OUT.gguf.part and OUT.gguf.journal hold what there is.");
  options.Examples({"glint quantize model.gguf small.gguf --type q4_k",
                    "glint quantize model.gguf mixed.gguf --recipe q8_0-q4_k --report errors.json",
                    "glint quantize model.gguf set.gguf --type q6_k --split-size 5M",
                    "glint quantize model.gguf smaller.gguf --type q3_k --dry-run",
                    "glint quantize --show-recipe ud-iq3_xxs"});
  options.Check([o]() -> Status {
    if (o->show) {
      if (o->in || o->out || o->type || o->recipe) return {Code::kBadInput, "--show-recipe stands alone"};
      if (o->show->empty()) return {Code::kBadInput, "--show-recipe: the name is empty"};
      return {};
    }
    if (!o->in || !o->out) return {Code::kBadInput, "IN.gguf and OUT.gguf are wanted"};
    if (o->type.has_value() == o->recipe.has_value())
      return {Code::kBadInput, "give --type TYPE or --recipe FILE, one of them"};
    if (o->type) {
      const quant::Format* format = quant::Find(*o->type);
      if (format == nullptr || format->encode == nullptr)
        return {Code::kBadInput, fmt::format("--type: '{}' is not a type glint can write; there are {}",
                                             *o->type, quant::EncodableNames())};
    }
    if (!o->split) return {};
    const auto bytes = ParseBytes(*o->split);
    if (!bytes || *bytes == 0)
      return {Code::kBadInput, fmt::format("--split-size: '{}' is no size such as 40G or 500M", *o->split)};
    o->shard_bytes = *bytes;
    return {};
  });
  return [o, &files = options.files()] { return Quantize(*o, files); };
}

}  // namespace glint::cli
