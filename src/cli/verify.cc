// glint verify: a real prompt, every step that a lever serves held to the canonical stages.
#include "engine/verify.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <memory>

#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/json_writer.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/progress_bar.h"
#include "cli/subcommand.h"
#include "cli/terminal.h"
#include "cli/units.h"
#include "engine/model_impl.h"
#include "engine/random.h"

namespace glint::cli {
namespace {

using engine::VerifyOptions;
using engine::VerifyReport;

// Of the built-in prompt. Where the model's selection begins within kMostTokens, the prompt is long enough to reach it.
constexpr int64_t kFewTokens = 64, kMostTokens = 320;
constexpr int64_t kDecode = 8;
// Any text does; one that a language model finds ordinary, and that tokenizers cut in different ways.
constexpr std::string_view kText =
    "Once upon a time there was a little fox who lived at the edge of the forest. Every morning she ran down "
    "to "
    "the river to look at the boats. One day, in 1847, an old sailor called out to her: \"Do you want to see "
    "the "
    "sea?\" She thought about it for a while. \"Yes,\" she said, \"but I must be home before it gets dark.\" "
    "So they "
    "went. The water was blue and cold, the wind pulled at the sails, and gulls cried overhead. ";

struct VerifyChoice {
  ModelChoice model;
  std::optional<std::string> prompt, file, ids;
  std::optional<int64_t> decode, chunk;
  bool special = false, each = false, pairs = false, no_mtp = false, json = false;
};

std::vector<int32_t> BuiltInPrompt(const Model& model) {
  const auto& hp = model.impl()->data.hparams;
  // A few pools more than selection keeps, so that some are dropped.
  const int64_t selecting = hp.max_selected() + 8 * hp.index_kpool;
  int64_t tokens = selecting <= kMostTokens ? std::max(selecting, kFewTokens) : kFewTokens;
  if (hp.context_length > 0) tokens = std::clamp<int64_t>(hp.context_length - kDecode, 1, tokens);
  std::vector<int32_t> ids;
  if (model.has_tokenizer()) {
    std::string text;
    while (static_cast<int64_t>(ids.size()) < tokens && text.size() < 16 * static_cast<size_t>(kMostTokens)) {
      text += kText;
      ids = model.tokenizer().Encode(text, false);
    }
    ids.resize(std::min(ids.size(), static_cast<size_t>(tokens)));
  } else {
    for (int64_t i = 0; i < tokens; ++i) {
      ids.push_back(static_cast<int32_t>(engine::Draw64(1, static_cast<uint64_t>(i)) %
                                         static_cast<uint64_t>(model.usable_vocab())));
    }
  }
  return ids;
}

Result<std::vector<int32_t>> Prompt(const VerifyChoice& o, const Model& model) {
  if (o.ids) return ParseIds(*o.ids);
  if (!o.prompt && !o.file) return BuiltInPrompt(model);
  if (!model.has_tokenizer()) {
    return Status(Code::kBadInput,
                  fmt::format("{} has no tokenizer: give token ids with --ids", model.name()));
  }
  const auto text = ReadText(o.prompt, o.file, "prompt");
  if (!text.ok()) return text.status();
  return model.tokenizer().Encode(*text, o.special);
}

// "41, 23, 8 x 1"
std::string Rows(const std::vector<int64_t>& rows) {
  std::string text;
  for (size_t i = 0; i < rows.size();) {
    size_t end = i;
    while (end < rows.size() && rows[end] == rows[i]) ++end;
    text += fmt::format("{}{}", i == 0 ? "" : ", ", rows[i]);
    if (end - i > 1) text += fmt::format(" ({} times)", end - i);
    i = end;
  }
  return text;
}

std::string Label(const VerifyReport::Case& c, bool toggled) {
  if (!c.levers.empty()) return fmt::format("{}", fmt::join(c.levers, " + "));
  return toggled ? "what --with names" : "the plan";
}

std::string Text(const VerifyReport& report, const Model& model, const VerifyOptions& options) {
  const bool toggled = options.levers != VerifyOptions::Levers::kPlan;
  std::string text = fmt::format("{}: {} prompt tokens and {} more, in passes of {} rows{}\n",
                                 TerminalText(model.name()), options.prompt.size(), options.decode,
                                 Rows(report.rows), options.mtp ? ", each also through the MTP block" : "");
  text += fmt::format("levers: {}\n",
                      report.levers.empty() ? "none" : fmt::format("{}", fmt::join(report.levers, ", ")));
  if (toggled) {
    size_t width = 0;
    for (const auto& c : report.cases) width = std::max(width, Label(c, true).size());
    text +=
        fmt::format("\n{:<{}}  {:>6}  result\n", "canonical plan and", std::max<size_t>(width, 18), "steps");
    for (const auto& c : report.cases) {
      const char* result = c.difference   ? "DIFFERS (below)"
                           : c.steps == 0 ? "serves no step here"
                                          : "as canonical";
      text += fmt::format("{:<{}}  {:>6}  {}\n", Label(c, true), std::max<size_t>(width, 18),
                          Grouped(c.steps), result);
    }
  }
  for (const auto& c : report.cases) {
    if (!c.difference) continue;
    text += fmt::format("\n{}FIRST DIFFERENCE: {}", toggled ? Label(c, true) + ": " : "",
                        TerminalText(plan::Describe(*c.difference)));
  }
  const plan::Tally& t = report.tally;
  text += fmt::format(
      "\ncompared: {} steps of levers, {} outputs ({} values), {} parts of states ({} values)\n",
      Grouped(t.steps), Grouped(t.slots), Grouped(t.values), Grouped(t.parts), Grouped(t.state_values));
  for (const auto& m : t.measured) {
    text += fmt::format("{}: largest difference {:.2e} of a slot's largest entry; its tolerance is {:.2e}\n",
                        m.lever, m.largest, m.tolerance);
  }
  if (!report.clean()) return text + "NOT clean\n";
  if (t.steps == 0) return text + "clean, but no lever served a step: there was nothing to compare\n";
  return text + (t.measured.empty()
                     ? "clean: the same bits everywhere\n"
                     : "clean: the same bits everywhere, or within the tolerance that a lever declares\n");
}

void Write(JsonWriter& json, const plan::Difference& d) {
  using Where = plan::Difference::Where;
  const char* where = d.where == Where::kOutput      ? "output"
                      : d.where == Where::kInput     ? "overwritten_input"
                      : d.where == Where::kState     ? "state"
                      : d.where == Where::kStateLeft ? "overwritten_state"
                                                     : "final_out";
  json.BeginObject().Member("where", where).Member("pass", d.pass == plan::Pass::kTrunk ? "trunk" : "mtp");
  json.Member("rows", d.rows).Member("layer", d.layer);
  json.Key("stages").BeginArray(true);
  for (const auto stage : d.stages) json.Value(plan::Name(stage));
  json.EndArray().Key("site");
  if (d.site == plan::Step::Site::kNone)
    json.Null();
  else
    json.Value(d.site == plan::Step::Site::kAttn ? "attn" : "ffn");
  json.Key("lever");
  if (d.lever.empty())
    json.Null();
  else
    json.Value(std::string_view(d.lever));
  json.Key("modifiers").BeginArray(true);
  for (const auto& name : d.modifiers) json.Value(std::string_view(name));
  json.EndArray().Member("place", std::string_view(d.place)).Member("row", d.row).Member("column", d.column);
  json.Key("position");
  if (d.position < 0)
    json.Null();
  else
    json.Value(d.position);
  const auto value = [&](std::string_view key, uint32_t bits) {
    if (d.integers)
      json.Member(key, static_cast<int64_t>(static_cast<int32_t>(bits)));
    else
      json.Member(key, static_cast<double>(std::bit_cast<float>(bits)));
  };
  value("value", d.got);
  value("canonical", d.want);
  json.Member("value_bits", static_cast<uint64_t>(d.got))
      .Member("canonical_bits", static_cast<uint64_t>(d.want));
  json.Member("ulps", d.ulps).Member("bound", d.bound).EndObject();
}

std::string Json(const VerifyReport& report, const Model& model, const VerifyOptions& options) {
  JsonWriter json;
  const auto names = [&](std::string_view key, const std::vector<std::string>& list) {
    json.Key(key).BeginArray(true);
    for (const auto& name : list) json.Value(std::string_view(name));
    json.EndArray();
  };
  const auto numbers = [&](std::string_view key, const auto& list) {
    json.Key(key).BeginArray(true);
    for (const auto n : list) json.Value(static_cast<int64_t>(n));
    json.EndArray();
  };
  json.BeginObject().Member("model", std::string_view(model.name())).Member("clean", report.clean());
  json.Member("tried", options.levers == VerifyOptions::Levers::kPlan   ? "plan"
                       : options.levers == VerifyOptions::Levers::kEach ? "each"
                                                                        : "pairs");
  json.Member("mtp", options.mtp);
  numbers("prompt_ids", options.prompt);
  numbers("ids", report.generated);
  numbers("rows", report.rows);
  names("levers", report.levers);
  const plan::Tally& t = report.tally;
  json.Member("passes", t.passes)
      .Member("steps", t.steps)
      .Member("outputs", t.slots)
      .Member("values", t.values);
  json.Member("state_parts", t.parts).Member("state_values", t.state_values);
  json.Key("cases").BeginArray();
  for (const auto& c : report.cases) {
    json.BeginObject();
    names("levers", c.levers);
    json.Member("steps", c.steps).Key("difference");
    if (c.difference)
      Write(json, *c.difference);
    else
      json.Null();
    json.EndObject();
  }
  json.EndArray().Key("tolerances").BeginArray();
  for (const auto& m : t.measured) {
    json.BeginObject().Member("lever", std::string_view(m.lever)).Member("tolerance", m.tolerance);
    json.Member("largest", m.largest).EndObject();
  }
  return json.EndArray().EndObject().Take();
}

Result<int> VerifyModel(const VerifyChoice& o) {
  const auto model = o.model.Open(!o.no_mtp);
  if (!model.ok()) return model.status();
  auto prompt = Prompt(o, *model);
  if (!prompt.ok()) return prompt.status();
  VerifyOptions options;
  options.levers = o.each    ? VerifyOptions::Levers::kEach
                   : o.pairs ? VerifyOptions::Levers::kPairs
                             : VerifyOptions::Levers::kPlan;
  options.prompt = std::move(*prompt);
  options.decode = o.decode.value_or(kDecode);
  options.chunk = o.chunk.value_or(0);
  options.mtp = model->has_mtp();
  ProgressBar bar("verifying", Unit::kTokens);
  options.progress = bar.Callback();
  const auto report = engine::Verify(*model, options);
  bar.Finish();
  if (!report.ok()) return report.status();
  const Status status = Print(o.json ? Json(*report, *model, options) : Text(*report, *model, options));
  if (!status.ok()) return status;
  return report->clean() ? 0 : 1;
}

}  // namespace

Work DeclareVerify(Options& options) {
  auto o = std::make_shared<VerifyChoice>();
  options.Positional("PROMPT", &o->prompt,
                     "A text to run; without it (and -f, --ids) one that glint brings along");
  options.Value("-f,--file", "FILE", &o->file, "Read the text from a file ('-' is stdin)");
  options.files().Reads(&o->file);
  DeclareIds(options, &o->ids, "Token ids instead: 1,2,3 or @FILE");
  options.Flag("--special", &o->special, "Control tokens spelled in the text become those tokens");
  options.Value("-n,--tokens", "N", &o->decode, 0, INT32_MAX,
                "Tokens decoded one by one after the prompt, each the likeliest; without it 8");
  options.Value("--chunk", "N", &o->chunk, 1, 65536,
                "Tokens of the prompt in a pass; without it two passes that meet inside a block");
  options.Flag("--each", &o->each, "The canonical plan and one lever, for every lever this machine has");
  options.Flag("--pairs", &o->pairs, "The same for every two levers that share a stage or serve neighbours");
  options.Flag("--no-mtp", &o->no_mtp, "Leave the MTP block out");
  options.Flag("--json", &o->json, "As JSON");
  o->model.DeclareSource(options);
  o->model.DeclareLevers(options);
  options.Notes(
      "Every step runs as the plan says, and once more by the canonical stages on the same inputs and a copy "
      "of the "
      "state; all outputs and states are compared: bit by bit, or within the bound of a lever that declares "
      "one. Slow: "
      "the canonical stages are plain loops in one thread. --with and --without choose the plan; with --each "
      "and "
      "--pairs what --with names is in every plan, and what --without names is not tried ('all' names "
      "none).");
  options.Examples(
      {"glint verify \"The king said\" -n 4", "glint verify -m model.gguf \"The king said\" --chunk 2",
       "glint verify --synthetic tiny --each", "glint verify --synthetic tiny --ids 1,2,3 --pairs --json"});
  options.Check([o]() -> Status {
    if (o->each && o->pairs) return {Code::kBadInput, "give --each or --pairs, not both"};
    if ((o->prompt ? 1 : 0) + (o->file ? 1 : 0) + (o->ids ? 1 : 0) > 1) {
      return {Code::kBadInput, "give the prompt once: as an argument, with -f or with --ids"};
    }
    if (o->prompt && o->prompt->empty()) return {Code::kBadInput, "the prompt is empty"};
    return {};
  });
  return [o] { return VerifyModel(*o); };
}

}  // namespace glint::cli
