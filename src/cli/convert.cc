// glint convert: a Hugging Face checkpoint becomes a GGUF file.
#include "model/convert.h"

#include <fmt/core.h>

#include <memory>

#include "cli/output.h"
#include "cli/progress_bar.h"
#include "cli/recipe_option.h"
#include "cli/subcommand.h"
#include "cli/terminal.h"
#include "cli/units.h"

namespace glint::cli {
namespace {

struct ConvertChoice {
  std::string directory, out;
  std::optional<std::string> type, experts, recipe, name;
  bool force = false;
};

Status CheckType(std::string_view option, const std::optional<std::string>& name) {
  if (!name) return {};
  const quant::Format* format = quant::Find(*name);
  if (format && format->encode) return {};
  return {Code::kBadInput, fmt::format("{}: '{}' is not a type glint can write; there are {}", option, *name,
                                       quant::EncodableNames())};
}

Result<int> Convert(const ConvertChoice& o) {
  std::optional<model::Recipe> recipe;
  if (o.recipe) {
    auto read = ReadRecipe(*o.recipe);
    if (!read.ok()) return read.status();
    recipe.emplace(std::move(*read));
  }
  ProgressBar bar("converting", Unit::kBytes);
  model::ConvertOptions options;
  if (o.type) options.type = quant::Find(*o.type)->type;
  options.experts = options.type;
  if (o.experts) options.experts = quant::Find(*o.experts)->type, options.experts_set = true;
  if (recipe) options.recipe = &*recipe;
  options.replace = o.force;
  options.name = o.name.value_or("");
  options.progress = bar.Callback();
  const auto summary = model::Convert(o.directory, o.out, options);
  bar.Finish();
  if (!summary.ok()) return summary.status();
  std::string line = fmt::format("{}: {} tensors, {}", o.out, summary->tensors, Bytes(summary->bytes));
  if (summary->fallbacks > 0) {
    line +=
        fmt::format("; {} tensors whose rows do not fit the type were stored in another", summary->fallbacks);
  }
  PrintError(line + "\n");
  for (const std::string& note : summary->notes) PrintError("note: " + TerminalText(note) + "\n");
  return 0;
}

}  // namespace

Work DeclareConvert(Options& options) {
  auto o = std::make_shared<ConvertChoice>();
  options.RequiredPositional("HF_DIR", &o->directory,
                             "The checkpoint: config.json, tokenizer.json, *.safetensors; only read");
  options.RequiredPositional("OUT.gguf", &o->out, "The file to write; it appears whole or not at all");
  options.Value(
      "--type", "TYPE", &o->type,
      fmt::format("Type of the weight matrices; without it bf16; there are {}", quant::EncodableNames()));
  options.Value("--experts", "TYPE", &o->experts, "Type of the routed experts; without it that of --type");
  options.Value("--recipe", "FILE", &o->recipe,
                "Rules for each tensor in place of both, or the name of a recipe that comes with glint "
                "(`glint quantize --help` explains); 'keep' means f32");
  options.Value("--name", "NAME", &o->name, "general.name of the file; without it the directory's name");
  options.Flag("--force", &o->force, "Replace OUT.gguf if it exists (never one of the inputs)");
  options.files().Reads(&o->directory);
  options.files().ReadsRecipe(&o->recipe);
  options.files().Writes(&o->out, &o->force);
  options.Notes(
      "Tokenizer, chat template, sampling hints and the MTP block go along. Small tensors stay float32. FP8 "
      "checkpoints with "
      "128x128 block scales are dequantised on the way.");
  options.Examples({"glint convert path/to/checkpoint model.gguf --type q8_0",
                    "glint convert path/to/checkpoint model.gguf --type q8_0 --experts q4_k",
                    "glint convert path/to/checkpoint model.gguf --recipe q8_0-q4_k"});
  options.Check([o] {
    if (o->recipe && (o->type || o->experts))
      return Status(Code::kBadInput,
                    "--recipe says everything about types: give it without --type and --experts");
    const Status status = CheckType("--type", o->type);
    return status.ok() ? CheckType("--experts", o->experts) : status;
  });
  return [o] { return Convert(*o); };
}

}  // namespace glint::cli
