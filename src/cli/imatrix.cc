// glint imatrix: what errors of a model's weights cost, measured on a text.
#include <fmt/core.h>

#include <memory>

#include "base/memory.h"
#include "cli/divergence_report.h"
#include "cli/input.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/progress_bar.h"
#include "cli/subcommand.h"
#include "cli/terminal.h"
#include "cli/units.h"
#include "engine/importance.h"
#include "engine/model_impl.h"
#include "engine/scoring.h"

namespace glint::cli {
namespace {

struct ImatrixChoice {
  ModelChoice model;
  ScoringChoice text;
  std::optional<std::string> out;
  std::optional<int64_t> context;
  bool force = false;
};

Result<int> Imatrix(const ImatrixChoice& o) {
  ModelChoice choice = o.model;
  choice.device = "cpu";  // it looks inside dsa.attend, which only the CPU's stages let it do
  const auto model = choice.Open(true);
  if (!model.ok()) return model.status();
  const auto ids = o.text.Ids(*model);
  if (!ids.ok()) return ids.status();
  const int64_t context = o.context.value_or(engine::DefaultWindows(*model).context);
  const auto memory = engine::MemoryForImportance(*model, ids->size(), context);
  if (!memory.ok()) return memory.status();
  PrintError(fmt::format("takes {} beside the model: sums {}, buffers {}, state {}, decoded weights {}\n",
                         FormatBytes(memory->total()), FormatBytes(memory->sums),
                         FormatBytes(memory->buffers), FormatBytes(memory->state),
                         FormatBytes(memory->decoded)));
  ProgressBar bar("measuring", Unit::kTokens);
  auto measured = engine::MeasureImportance(*model, *ids, context, bar.Callback());
  bar.Finish();
  if (!measured.ok()) return measured.status();
  if (o.text.file && *o.text.file != "-") measured->matrix.datasets.push_back(*o.text.file);
  if (Status s = measured->matrix.Write(*o.out, {}, o.force); !s.ok()) return s;
  for (const std::string& line : measured->never_hit)
    PrintError(fmt::format("note: never hit, so without importance: {}\n", TerminalText(line)));
  PrintError(fmt::format("{}: {}, {}\n", TerminalText(*o.out),
                         Counted(measured->matrix.tensors().size(), "tensor"),
                         Counted(ids->size(), "token")));
  return 0;
}

}  // namespace

Work DeclareImatrix(Options& options) {
  auto o = std::make_shared<ImatrixChoice>();
  options.Value("-f,--file", "TEXT", &o->text.file, "The text, a file ('-' is stdin); every byte counts");
  DeclareIds(options, &o->text.ids, "Token ids instead: 1,2,3 or @FILE");
  options.Value("-o,--out", "OUT.gguf", &o->out, "The file to write; it appears whole or not at all");
  options.Flag("--force", &o->force, "Replace OUT.gguf if it exists (never an input)");
  options.files().Reads(&o->text.file);
  options.files().Writes(&o->out, &o->force);
  options.Value(
      "--ctx", "N", &o->context, 1, INT32_MAX,
      "Tokens of a chunk, each read from an empty state; without it 2048, or what the model was made for");
  o->model.DeclareSource(options);
  o->model.DeclareLevers(options);
  o->model.CpuOnly(options);
  options.Notes(
      "Of every matrix but the embedding, the MTP block's too. Experts that no token chose are named and "
      "have count 0 in the file. It looks inside stages, which only the CPU's let it do: --device takes the "
      "CPU alone.");
  options.Check([o]() -> Status {
    if (!o->out) return {Code::kBadInput, "-o OUT.gguf is wanted"};
    if (o->text.file && o->text.ids)
      return {Code::kBadInput, "give the text as a file or with --ids, not both"};
    return {};
  });
  options.Examples({"glint imatrix -f text.txt -o text.imatrix.gguf --ctx 64"});
  return [o] { return Imatrix(*o); };
}

}  // namespace glint::cli
