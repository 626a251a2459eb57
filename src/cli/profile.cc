// glint profile: where the time of a forward pass goes, by stage and lever.
#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "base/file.h"
#include "cli/input.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/profile_report.h"
#include "cli/progress_bar.h"
#include "cli/sampling_options.h"
#include "cli/subcommand.h"
#include "cli/units.h"
#include "engine/model_impl.h"
#include "engine/profile.h"
#include "engine/random.h"
#include "engine/session_impl.h"
#include "engine/synthetic_depth.h"
#include "plan/chrome_trace.h"
#include "plan/edits.h"

namespace glint::cli {
namespace {

constexpr int64_t kUsualDepth = 256;

struct ProfileChoice {
  ModelChoice model;
  std::optional<std::string> ids, file, only, trace;
  std::optional<int64_t> depth, real, rows, tokens, rounds;
  std::optional<uint64_t> seed;
  std::vector<std::string> ablate, repeat;
  bool per_layer = false, json = false, no_limits = false, force = false;
};

struct Context {
  std::vector<int32_t> ids;
  std::string words;  // what they are
};

// As many tokens as are needed, of the text or ids given, over and over, or at random.
Result<Context> MakeContext(const ProfileChoice& o, const Model& model, int64_t needed) {
  Context context;
  const auto count = static_cast<size_t>(needed);
  if (!o.ids && !o.file) {
    const uint64_t seed = o.seed.value_or(1);
    const auto vocab = static_cast<uint64_t>(model.usable_vocab());
    for (size_t i = 0; i < count; ++i)
      context.ids.push_back(static_cast<int32_t>(engine::Draw64(seed, i) % vocab));
    context.words = fmt::format("{} random ids, seed {}", Grouped(count), seed);
    return context;
  }
  if (o.ids) {
    auto ids = ParseIds(*o.ids);
    if (!ids.ok()) return ids.status();
    context.ids = std::move(*ids);
  } else {
    const auto text = ReadText({}, o.file, "text");
    if (!text.ok()) return text.status();
    if (!model.has_tokenizer()) {
      return Status(Code::kBadInput, model.name() + " has no tokenizer: give token ids with --ids");
    }
    context.ids = model.tokenizer().Encode(*text, false);
  }
  const size_t given = context.ids.size();
  if (given == 0) return Status(Code::kBadInput, "no tokens: the input is empty");
  const std::string from = o.ids ? "--ids" : *o.file == "-" ? "stdin" : *o.file;
  context.words = given >= count ? fmt::format("{} tokens of {}", Grouped(count), from)
                                 : fmt::format("{} tokens, the {} of {} over and over", Grouped(count),
                                               Grouped(given), from);
  for (size_t i = 0; context.ids.size() < count; ++i) context.ids.push_back(context.ids[i]);
  context.ids.resize(count);
  return context;
}

// Written whole or not at all.
Status WriteTrace(const ProfileChoice& o, const Model& model, const engine::ProfileReport& report) {
  const auto& data = model.impl()->data;
  auto file = AtomicFile::Create(*o.trace, {}, 0666, o.force);
  if (!file.ok()) return file.status();
  std::vector<plan::TraceTrack> tracks;
  for (const auto& phase : report.phases)
    tracks.push_back({phase.name, phase.plan.get(), phase.typical, phase.shapes});
  const std::string text =
      plan::ChromeTrace(fmt::format("glint: {}", data.name), tracks, data.hparams, data.weights);
  if (Status status = file->Write(std::as_bytes(std::span(text))); !status.ok()) return status;
  return file->Commit();
}

Result<int> Profile(const ProfileChoice& o) {
  const auto model = o.model.Open();
  if (!model.ok()) return model.status();
  engine::ProfileOptions options;
  options.prefill = o.only != "decode";
  options.decode = o.only != "prefill";
  options.prompt_rows = o.rows.value_or(engine::kProfiledPrompt);
  options.decode_tokens = o.tokens.value_or(0);
  options.repetitions = static_cast<int>(o.rounds.value_or(0));
  options.real_tokens = o.real.value_or(0);
  options.per_layer = o.per_layer;
  options.limits = !o.no_limits;
  options.ablate = SplitNames(o.ablate);
  options.repeat = SplitNames(o.repeat);
  // Where the context is short, as deep as leaves room for what is measured.
  const int64_t made_for = model->context_length();
  options.depth = o.depth.value_or(kUsualDepth);
  if (!o.depth && made_for > 0) {
    options.depth = std::clamp<int64_t>(made_for - engine::kChunkRows, 0, kUsualDepth);
  }
  const auto sampler = SamplingChoice{}.Resolve(*model);
  if (!sampler.ok()) return sampler.status();
  options.sampler = *sampler;
  options.sampler.seed = 1;
  std::unique_ptr<ProgressBar> bar;
  options.progress = [&](const std::string& what) {
    bar.reset();  // the old one goes before the new one comes
    bar = std::make_unique<ProgressBar>(what, what.starts_with("filling") ? Unit::kTokens : Unit::kPart);
    return bar->Callback();
  };

  if (Status status = engine::CheckDepth(*model, options); !status.ok()) return status;
  auto context = MakeContext(o, *model, engine::TokensNeeded(*model, options));
  if (!context.ok()) return context.status();
  if (o.real) context->words += engine::DescribeSynthetic(*o.real);
  const auto report = engine::MeasureProfile(*model, context->ids, options);
  bar.reset();
  if (!report.ok()) return report.status();
  const ProfileSubject subject{model->name(), model->threads(), options.depth, context->words};
  const Status status = Print(o.json ? ProfileJson(*report, subject) : ProfileTables(*report, subject));
  // Each is written though the other could not be: measuring took its time.
  const Status traced = o.trace ? WriteTrace(o, *model, *report) : Status();
  if (!status.ok()) return status;
  if (!traced.ok()) return traced;
  return 0;
}

}  // namespace

Work DeclareProfile(Options& options) {
  auto o = std::make_shared<ProfileChoice>();
  options.Value(
      "--ctx", "N", &o->depth, 0, INT32_MAX,
      "Tokens in the context before what is measured; without it 256, or less if the model takes no more");
  options.Value(
      "--fill-from", "N", &o->real, 1, INT32_MAX,
      "Read only about N tokens of the context and repeat what is kept of them: a deep one in seconds");
  options.Value(
      "-f,--file", "FILE", &o->file,
      "A text to fill the context with ('-' is stdin), over and over if it is short; without it random ids");
  DeclareIds(options, &o->ids, "Token ids to fill it with: 1,2,3 or @FILE");
  options.Value("--seed", "N", &o->seed, "Of the random ids; without it 1");
  options.Value("--only", "prefill|decode", &o->only, "Measure only a piece of a prompt, or only decoding");
  options.Value("--rows", "N", &o->rows, 1, engine::kChunkRows,
                "Tokens of the piece of a prompt; without it 256, cut so that it ends on the grid of 16");
  options.Value(
      "--tokens", "N", &o->tokens, 1, 65536,
      "Tokens decoded a run; without it a block of the grid (16), whose end costs more than its middle");
  options.Value("--rounds", "N", &o->rounds, 1, 1000,
                "Runs of each kind, in turns; without it 5, or more while a run is short");
  options.Flag("--no-limits", &o->no_limits,
               "Don't measure the memory's bandwidth (about a second, before and after)");
  options.Flag("--per-layer", &o->per_layer, "A row for each layer");
  options.List("--ablate", "STAGE,...", &o->ablate,
               "Price stages by leaving each out (or 'all'); the output is then wrong, and dropped");
  options.List("--repeat", "STAGE,...", &o->repeat,
               "Price stages by doing each once more (or 'all'); refused where that changes the output");
  options.Flag("--json", &o->json, "As JSON");
  options.Value("--chrome-trace", "FILE", &o->trace,
                "Also write a timeline for chrome://tracing or Perfetto: the typical run, step by step");
  options.Flag("--force", &o->force, "Replace that file if it exists (never an input)");
  options.files().Reads(&o->file);
  options.files().Writes(&o->trace, &o->force);
  o->model.DeclareSource(options);
  o->model.DeclareLevers(options);
  options.Examples({"glint profile",
                    "glint profile --synthetic tiny --ctx 64 --only decode --repeat head.logits",
                    "glint profile --synthetic tiny --ctx 256 --fill-from 32 --only decode --rounds 1",
                    "glint profile --ctx 64 --rounds 3 --ablate kda.recur,moe.gate_up",
                    "glint profile --rounds 1 --json --chrome-trace trace.json"});
  options.Check([o]() -> Status {
    if (o->ids && o->file) return {Code::kBadInput, "give --ids or -f, not both"};
    if (o->seed && (o->ids || o->file))
      return {Code::kBadInput, "--seed is of random ids; it does nothing beside --ids or -f"};
    if (o->only && *o->only != "prefill" && *o->only != "decode") {
      return {Code::kBadInput, fmt::format("--only: '{}' is not prefill or decode", *o->only)};
    }
    for (const auto* given : {&o->ablate, &o->repeat}) {
      const auto names = SplitNames(*given);
      if (names.empty() && !given->empty()) {
        return {Code::kBadInput,
                fmt::format("{}: the list is empty", given == &o->ablate ? "--ablate" : "--repeat")};
      }
      if (Status status = plan::CheckStageNames(names); !status.ok()) return status;
    }
    return {};
  });
  return [o] { return Profile(*o); };
}

}  // namespace glint::cli
