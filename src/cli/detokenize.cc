// glint detokenize: token ids to text.
#include <fmt/core.h>
#include <unistd.h>

#include <memory>

#include "cli/input.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/subcommand.h"
#include "cli/terminal.h"

namespace glint::cli {
namespace {

struct DetokenizeOptions {
  ModelChoice model;
  std::vector<std::string> ids;
  bool hide_special = false;
};

Result<int> Detokenize(const DetokenizeOptions& o) {
  std::vector<int32_t> ids;
  std::vector<std::string> lists = o.ids;
  if (lists.empty()) {
    if (IsTerminal(STDIN_FILENO))
      return Status(Code::kBadInput, "no ids: give them as arguments or on stdin");
    auto text = ReadStdin();
    if (!text.ok()) return text.status();
    lists.push_back(std::move(*text));
  }
  for (const std::string& list : lists) {
    const auto more = ParseIds(list);
    if (!more.ok()) return more.status();
    ids.insert(ids.end(), more->begin(), more->end());
  }
  const auto model = o.model.Open();
  if (!model.ok()) return model.status();
  if (!model->has_tokenizer()) return Status(Code::kBadInput, model->name() + " has no tokenizer");
  auto text = model->tokenizer().Decode(ids, !o.hide_special);
  if (!text.ok()) return text.status();
  // A pipe gets exactly the bytes, a terminal a readable form of them.
  if (IsTerminal(STDOUT_FILENO)) *text = TerminalText(*text) + "\n";
  const Status status = Print(*text);
  if (!status.ok()) return status;
  return 0;
}

}  // namespace

Work DeclareDetokenize(Options& options) {
  auto o = std::make_shared<DetokenizeOptions>();
  options.PositionalList("IDS", &o->ids, "Token ids: 1 2 3, or 1,2,3, or @FILE; without them stdin");
  options.Flag("--hide-special", &o->hide_special, "Leave control tokens out instead of spelling them");
  o->model.DeclareSource(options);
  options.Notes(
      "Prints exactly the bytes that the ids stand for; on a terminal, control characters are escaped.");
  options.Check([o]() -> Status {
    for (const std::string& list : o->ids)
      if (Status status = CheckIds(list, 0); !status.ok()) return status;
    return {};
  });
  options.Examples({"glint detokenize 72 101 300", "glint tokenize --ids \"a fox\" | glint detokenize"});
  return [o] { return Detokenize(*o); };
}

}  // namespace glint::cli
