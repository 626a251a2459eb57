// glint perplexity: how well a model predicts a text, and how far its predictions are from another's.
#include <fmt/core.h>

#include <cmath>
#include <memory>

#include "base/printable.h"
#include "cli/divergence_report.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/json_writer.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/progress_bar.h"
#include "cli/subcommand.h"
#include "cli/units.h"
#include "engine/base_file.h"
#include "engine/divergence.h"
#include "engine/model_impl.h"
#include "engine/scoring.h"

namespace glint::cli {
namespace {

struct PerplexityChoice {
  ModelChoice model;
  ScoringChoice scoring;
  std::optional<std::string> save, kld;
  bool json = false, force = false;
};

struct Findings {
  size_t tokens = 0, bytes = 0;
  engine::Windows windows;
  engine::LossSums loss;
  std::vector<engine::LossSums> bins;
};

std::string Json(const Findings& f, const engine::PositionBins& bins,
                 const engine::DivergenceBins* divergence, const Model& model) {
  JsonWriter json;
  json.BeginObject()
      .Member("model", std::string_view(model.name()))
      .Member("fingerprint", std::string_view(model.fingerprint()));
  json.Member("tokens", static_cast<uint64_t>(f.tokens)).Member("scored", f.loss.tokens);
  json.Member("context", f.windows.context)
      .Member("stride", f.windows.stride)
      .Member("first", f.windows.first);
  json.Member("loss", f.loss.Mean()).Member("loss_error", f.loss.MeanError());
  json.Member("perplexity", std::exp(f.loss.Mean()));
  json.Key("by_position").BeginArray();
  for (size_t i = 0; i < f.bins.size(); ++i) {
    json.BeginObject().Member("positions", std::string_view(bins.Name(i))).Member("scored", f.bins[i].tokens);
    json.Key("loss");
    if (f.bins[i].tokens > 0)
      json.Value(f.bins[i].Mean());
    else
      json.Null();
    json.EndObject();
  }
  json.EndArray();
  if (divergence != nullptr) WriteDivergence(json.Key("divergence"), *divergence);
  return json.EndObject().Take();
}

std::string Text(const Findings& f, const engine::PositionBins& bins) {
  std::string text = fmt::format("perplexity {:.4f} +- {:.4f} a token, loss {:.5f} +- {:.5f} nats\n",
                                 std::exp(f.loss.Mean()), std::exp(f.loss.Mean()) * f.loss.MeanError(),
                                 f.loss.Mean(), f.loss.MeanError());
  text += fmt::format("{} of {} tokens scored, in windows of {} that begin every {}, from position {}\n",
                      Grouped(static_cast<uint64_t>(f.loss.tokens)), Grouped(f.tokens),
                      Grouped(static_cast<uint64_t>(f.windows.context)),
                      Grouped(static_cast<uint64_t>(f.windows.stride)), f.windows.first);
  text += fmt::format("\n  {:<14}{:>10}{:>12}{:>10}\n", "position", "tokens", "perplexity", "loss");
  for (size_t i = 0; i < f.bins.size(); ++i) {
    const engine::LossSums& bin = f.bins[i];
    if (bin.tokens == 0) {
      text += fmt::format("  {:<14}{:>10}  no data\n", bins.Name(i), 0);
    } else {
      text += fmt::format("  {:<14}{:>10} {:>11.4f} {:>9.5f}\n", bins.Name(i),
                          Grouped(static_cast<uint64_t>(bin.tokens)), std::exp(bin.Mean()), bin.Mean());
    }
  }
  return text;
}

Result<int> Perplexity(const PerplexityChoice& o) {
  std::optional<engine::BaseReader> base;
  if (o.kld) {
    auto opened = engine::BaseReader::Open(*o.kld);
    if (!opened.ok()) return opened.status();
    base.emplace(std::move(*opened));
  }
  const auto model = o.model.Open();
  if (!model.ok()) return model.status();
  const auto ids = o.scoring.Ids(*model);
  if (!ids.ok()) return ids.status();
  Findings f;
  f.tokens = ids->size();
  // Without numbers of its own a comparison goes by those of its base.
  f.windows = o.scoring.Choose(base ? base->header().windows : engine::DefaultWindows(*model));
  if (Status s = engine::CheckWindows(f.windows, *model, ids->size()); !s.ok()) {
    if (!base || o.scoring.context || o.scoring.stride || o.scoring.first) return s;
    return Status(s.code(), fmt::format("{}: its windows do not fit here: {}", *o.kld, s.message()));
  }
  if (f.windows.stride == f.windows.context && ids->size() > static_cast<size_t>(f.windows.context))
    PrintError(
        fmt::format("note: windows do not overlap (--stride is --ctx), so {} at the beginning of each "
                    "are not scored\n",
                    Counted(static_cast<uint64_t>(f.windows.first), "token")));
  const engine::BaseHeader header{
      .model = model->fingerprint(),
      .tokenizer = model->tokenizer_fingerprint(),
      .text = engine::TokensHash(*ids),
      .tokens = ids->size(),
      .vocab = static_cast<uint64_t>(model->vocab_size()),
      .windows = f.windows,
      .rows = static_cast<uint64_t>(engine::ScoredTokens(f.windows, ids->size()))};
  if (base) {
    if (Status s = base->CheckMatches(header); !s.ok()) return s;
  }
  std::optional<engine::BaseWriter> save;
  if (o.save) {
    auto made = engine::BaseWriter::Create(*o.save, header, {}, o.force);
    if (!made.ok()) return made.status();
    save.emplace(std::move(*made));
  }
  const engine::PositionBins bins = o.scoring.Bins();
  f.bins.resize(bins.edges.size());
  engine::DivergenceBins divergence(bins);
  std::vector<double> row(base ? static_cast<size_t>(header.vocab) : 0);
  ProgressBar bar("scoring", Unit::kTokens);
  const auto each = [&](const engine::ScoredToken& token) -> Status {
    const double loss =
        engine::LogPartition(token.logits) - static_cast<double>(token.logits[static_cast<size_t>(token.id)]);
    if (!std::isfinite(loss))
      return {Code::kBadFile,
              fmt::format("{}: the logits before token {} are no numbers; weights are damaged",
                          o.model.Source(), token.index)};
    f.loss.Add(loss);
    f.bins[bins.BinOf(token.position)].Add(loss);
    if (save) {
      if (Status s = save->Add(token.logits); !s.ok()) return s;
    }
    if (base) {
      if (Status s = base->Next(row); !s.ok()) return s;
      divergence.Add(token.position, engine::Compare(row, engine::kBaseError, token.logits, token.id));
    }
    bar.SetNote(fmt::format("perplexity {:.3f}", std::exp(f.loss.Mean())));
    return {};
  };
  const Status scored = engine::ScoreText(*model, *ids, f.windows, each, bar.Callback());
  bar.Finish();
  if (!scored.ok()) return scored;
  if (save) {
    if (Status s = save->Commit(); !s.ok()) return s;
  }
  std::string text;
  if (o.json) {
    text = Json(f, bins, base ? &divergence : nullptr, *model);
  } else {
    text = Text(f, bins);
    if (base) {
      text += "\nagainst " + Printable(*o.kld) +
              (base->header().model == header.model ? " (the same model)" : "") + ":\n" +
              DivergenceTable(divergence);
    }
  }
  const Status printed = Print(text);
  return printed.ok() ? Result<int>(0) : printed;
}

}  // namespace

Work DeclarePerplexity(Options& options) {
  auto o = std::make_shared<PerplexityChoice>();
  o->scoring.Declare(options);
  options.Value("--save-base", "FILE", &o->save, "Keep the predictions, for --kld of other models");
  options.Flag("--force", &o->force, "Replace the file of --save-base if it exists (never an input)");
  options.files().Reads(&o->kld);
  options.files().Writes(&o->save, &o->force);
  options.Value(
      "--kld", "BASE", &o->kld,
      "Also compare with the predictions kept in BASE: KL divergence, same likeliest token, by position");
  options.Flag("--json", &o->json, "As JSON");
  o->model.DeclareSource(options);
  o->model.DeclareLevers(options);
  options.Notes(
      "The text is read in windows of --ctx tokens, each from an empty state, that begin every --stride; "
      "every token is "
      "scored in the first window that has it at position --first or later. Perplexity is the exponential of "
      "the mean "
      "loss. Predictions are of the next token, never of one that was seen.");
  options.Examples(
      {"glint perplexity -f text.txt",
       "glint perplexity -f text.txt --ctx 64 --stride 32 --save-base text.base && glint perplexity -m "
       "model.gguf -f text.txt --kld text.base"});
  return [o] { return Perplexity(*o); };
}

}  // namespace glint::cli
