// glint logits: what the model thinks of every next token, as a NumPy file.
#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "base/checked.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/model_options.h"
#include "cli/npy.h"
#include "cli/output.h"
#include "cli/progress_bar.h"
#include "cli/subcommand.h"
#include "cli/units.h"
#include "engine/model_impl.h"
#include "glint/session.h"

namespace glint::cli {
namespace {

constexpr int64_t kDefaultChunk = 256;  // rows of logits held in memory at once

struct LogitsOptions {
  ModelChoice model;
  std::optional<std::string> ids, file, rows, out;
  std::optional<int64_t> chunk;
  bool special = false, force = false;
};

Result<std::vector<int32_t>> Ids(const LogitsOptions& o, const Model& model) {
  if (o.ids) return ParseIds(*o.ids);
  const auto text = ReadText({}, o.file, "text");
  if (!text.ok()) return text.status();
  if (!model.has_tokenizer()) {
    return Status(Code::kBadInput, model.name() + " has no tokenizer: give token ids with --ids");
  }
  return model.tokenizer().Encode(*text, o.special);
}

Result<int> Logits(const LogitsOptions& o) {
  const auto model = o.model.Open();
  if (!model.ok()) return model.status();
  const auto ids = Ids(o, *model);
  if (!ids.ok()) return ids.status();
  if (ids->empty()) return Status(Code::kBadInput, "no tokens: the input is empty");
  const auto total = static_cast<int64_t>(ids->size());
  auto session = Session::Create(*model, {.context = total});
  if (!session.ok()) return session.status();

  const bool all = !o.rows || *o.rows == "all";
  const auto vocab = static_cast<uint64_t>(model->vocab_size());
  auto npy = NpyWriter::Create(*o.out, all ? ids->size() : 1, vocab, {}, o.force);
  if (!npy.ok()) return npy.status();

  const int64_t chunk = std::min(o.chunk.value_or(kDefaultChunk), total);
  const auto floats = CheckedMul<uint64_t>(all ? static_cast<uint64_t>(chunk) : 1, vocab);
  if (!floats) return Status(Code::kBadInput, "--chunk is too large");
  std::vector<float> logits(*floats);
  ProgressBar bar("computing", Unit::kTokens);
  for (int64_t done = 0; done < total;) {
    const int64_t rows = std::min(chunk, total - done);
    const bool wanted = all || done + rows == total;
    const std::span<float> out(logits.data(), wanted ? static_cast<size_t>(all ? rows : 1) * vocab : 0);
    const auto progress = [&](uint64_t part, uint64_t) {
      bar.Update(static_cast<uint64_t>(done) + part, static_cast<uint64_t>(total));
      return !Interrupted();
    };
    const LogitRows which = all ? LogitRows::kAll : wanted ? LogitRows::kLast : LogitRows::kNone;
    Status status = session->Append(
        std::span(*ids).subspan(static_cast<size_t>(done), static_cast<size_t>(rows)), which, out, progress);
    if (status.ok() && Interrupted()) status = Status(Code::kBadInput, "interrupted");
    if (status.ok()) status = npy->Append(out);
    if (!status.ok()) return status;
    done += rows;
  }
  bar.Finish();
  const Status status = npy->Commit();
  if (!status.ok()) return status;
  PrintError(fmt::format("{}: float32 [{}, {}]\n", *o.out, all ? total : 1, vocab));
  return 0;
}

}  // namespace

Work DeclareLogits(Options& options) {
  auto o = std::make_shared<LogitsOptions>();
  DeclareIds(options, &o->ids, "Token ids: 1,2,3 or @FILE");
  options.Value("-f,--file", "FILE", &o->file,
                "A text to tokenize instead ('-' is stdin); every byte counts");
  options.Flag("--special", &o->special, "Control tokens spelled in the text become those tokens");
  options.Value("--rows", "all|last", &o->rows,
                "Logits after every token (the default), or after the last one");
  options.Value("--chunk", "N", &o->chunk, 1, INT32_MAX,
                "Tokens given to the model at a time; without it 256; the values do not depend on it");
  options.Value("--out", "FILE", &o->out,
                "The NumPy file to write: float32 [rows, vocabulary]; it appears whole or not at all");
  options.Flag("--force", &o->force, "Replace that file if it exists (never an input)");
  options.files().Reads(&o->file);
  options.files().Writes(&o->out, &o->force);
  o->model.DeclareSource(options);
  o->model.DeclareLevers(options);
  options.Examples({"glint logits --ids 1,2,3 --out logits.npy",
                    "glint logits -f text.txt --rows last --out last.npy",
                    "python3 -c \"import numpy; print(numpy.load('logits.npy').shape)\""});
  options.Check([o]() -> Status {
    if (!o->out) return {Code::kBadInput, "--out FILE is missing"};
    if (o->ids && o->file) return {Code::kBadInput, "give --ids or -f, not both"};
    if (!o->ids && !o->file) return {Code::kBadInput, "what to compute is missing: --ids LIST or -f FILE"};
    if (o->rows && *o->rows != "all" && *o->rows != "last") {
      return {Code::kBadInput, fmt::format("--rows: '{}' is not all or last", *o->rows)};
    }
    return {};
  });
  return [o] { return Logits(*o); };
}

}  // namespace glint::cli
