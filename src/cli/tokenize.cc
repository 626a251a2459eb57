// glint tokenize: text to token ids.
#include <fmt/core.h>
#include <unistd.h>

#include <memory>

#include "base/printable.h"
#include "cli/input.h"
#include "cli/json_writer.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/subcommand.h"

namespace glint::cli {
namespace {

struct TokenizeOptions {
  ModelChoice model;
  std::optional<std::string> text, file;
  bool special = false, json = false, ids = false;
};

Result<int> Tokenize(const TokenizeOptions& o) {
  const auto text = ReadText(o.text, o.file, "text");
  if (!text.ok()) return text.status();
  const auto model = o.model.Open();
  if (!model.ok()) return model.status();
  if (!model->has_tokenizer()) return Status(Code::kBadInput, model->name() + " has no tokenizer");
  const Tokenizer& tokenizer = model->tokenizer();
  const auto ids = tokenizer.Encode(*text, o.special);

  std::string out;
  JsonWriter json;
  json.BeginObject().Member("count", static_cast<uint64_t>(ids.size())).Key("tokens").BeginArray();
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto piece = tokenizer.Decode({&ids[i], 1});
    if (!piece.ok()) return piece.status();
    if (o.json) {
      json.BeginObject().Member("id", ids[i]).Member("piece", *piece).EndObject();
    } else if (o.ids) {
      out += fmt::format("{}{}", i ? "," : "", ids[i]);
    } else {
      out += fmt::format("{:>7}  {}\n", ids[i], Printable(*piece));
    }
  }
  if (o.json)
    out = json.EndArray().EndObject().Take();
  else if (o.ids)
    out += '\n';
  const Status status = Print(out);
  if (!status.ok()) return status;
  if (!o.json && !o.ids) PrintError(fmt::format("{} tokens\n", ids.size()));
  return 0;
}

}  // namespace

Work DeclareTokenize(Options& options) {
  auto o = std::make_shared<TokenizeOptions>();
  options.Positional("TEXT", &o->text, "The text; without it -f or stdin, of which every byte counts");
  options.Value("-f,--file", "FILE", &o->file, "Read the text from a file ('-' is stdin)");
  options.files().Reads(&o->file);
  options.Flag("--special", &o->special,
               "Control tokens spelled in the text, such as <|user|>, become those tokens");
  options.Flag("--ids", &o->ids, "Only the ids, as the other commands take them: 1,2,3");
  options.Flag("--json", &o->json,
               "As JSON; bytes of a piece that are no UTF-8 by themselves show as U+FFFD");
  o->model.DeclareSource(options);
  options.Notes(
      "Prints a line for each token: its id and its piece, control characters and broken UTF-8 escaped.");
  options.Examples({"glint tokenize \"a fox and a hen\"",
                    "glint tokenize --special --ids \"[gMASK]<sop><|user|>\"",
                    "printf 'line\\n' | glint tokenize --json"});
  options.Check([o]() -> Status {
    if (o->text && o->file) return {Code::kBadInput, "give the text as an argument or with -f, not both"};
    if (o->json && o->ids) return {Code::kBadInput, "give --json or --ids, not both"};
    return {};
  });
  return [o] { return Tokenize(*o); };
}

}  // namespace glint::cli
