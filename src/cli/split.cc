// glint split and glint merge: one file of a model becomes a set of files, and back.
#include <fmt/core.h>

#include <memory>

#include "cli/output.h"
#include "cli/progress_bar.h"
#include "cli/subcommand.h"
#include "cli/terminal.h"
#include "cli/units.h"
#include "gguf/copy.h"
#include "model/glm_flash/gguf_source.h"

namespace glint::cli {
namespace {

struct CopyChoice {
  std::string in, out;
  std::optional<std::string> size;
  std::optional<int64_t> tensors;
  uint64_t shard_bytes = 0;
  bool force = false, restart = false, dry = false;
};

Result<int> Copy(const CopyChoice& o, const char* doing) {
  const auto file = gguf::File::Open(o.in, model::BlockSizeOf);
  if (!file.ok()) return file.status();
  ProgressBar bar(doing, Unit::kBytes);
  gguf::Writer::SetOptions options;
  options.shard_bytes = o.shard_bytes;
  options.shard_tensors = static_cast<uint64_t>(o.tensors.value_or(0));
  options.replace = o.force;
  options.restart = o.restart;
  options.dry = o.dry;
  options.progress = bar.Callback();
  const auto made = gguf::Copy(*file, o.out, options);
  bar.Finish();
  if (!made.ok()) return made.status();
  for (const gguf::TensorInfo& tensor : file->tensors()) {
    if (tensor.name.size() <= gguf::kUsualTensorNameBytes) continue;
    PrintError(fmt::format("note: {}: a name of {} bytes; many programs read {} at most\n",
                           TerminalText(tensor.name), tensor.name.size(), gguf::kUsualTensorNameBytes));
    break;
  }
  std::string text;
  for (const std::string& path : made->paths) text += path + "\n";
  const Status printed = Print(TerminalText(text));
  if (!printed.ok()) return printed;
  PrintError(fmt::format("{}{}, {}, {}\n", o.dry ? "would write " : "", Counted(made->paths.size(), "file"),
                         Counted(file->tensors().size(), "tensor"), Bytes(made->bytes)));
  return 0;
}

void DeclareCommon(Options& options, const std::shared_ptr<CopyChoice>& o) {
  options.Flag("--force", &o->force, "Replace files that are there (never an input)");
  options.Flag("--dry-run", &o->dry, "Check all that could fail, and write nothing");
  options.Flag("--restart", &o->restart, "Throw away what an unfinished run has left");
  options.files().Reads(&o->in);
  options.files().Writes(&o->out, &o->force, CommandFiles::Form::kSet);
}

constexpr const char* kNotes =
    "Tensors are copied byte for byte, and so are all keys but split.*, which are made anew or, in one file, "
    "left out. A killed run goes on with the same "
    "command; all "
    "files get their names at the end.";

}  // namespace

Work DeclareMerge(Options& options) {
  auto o = std::make_shared<CopyChoice>();
  options.RequiredPositional("SHARD.gguf", &o->in, "Any file of the set; only read");
  options.RequiredPositional("OUT.gguf", &o->out, "The file to write");
  DeclareCommon(options, o);
  options.Notes(kNotes);
  options.Examples(
      {"glint split model.gguf parts.gguf --split-tensors 100 && glint merge parts-00001-of-00003.gguf "
       "one.gguf"});
  return [o] { return Copy(*o, "merging"); };
}

Work DeclareSplit(Options& options) {
  auto o = std::make_shared<CopyChoice>();
  options.RequiredPositional("IN.gguf", &o->in, "The model, any file of a set; only read");
  options.RequiredPositional("OUT.gguf", &o->out, "Names the set: OUT-00001-of-00003.gguf, ...");
  options.Value("--split-size", "SIZE", &o->size, "The largest file: 40G, 500M");
  options.Value("--split-tensors", "N", &o->tensors, 1, INT32_MAX, "At most N tensors in a file");
  DeclareCommon(options, o);
  options.Notes(kNotes);
  options.Examples({"glint split model.gguf parts.gguf --split-size 8M",
                    "glint split model.gguf shards.gguf --split-tensors 50"});
  options.Check([o]() -> Status {
    if (o->size.has_value() == o->tensors.has_value())
      return {Code::kBadInput, "give --split-size SIZE or --split-tensors N, one of them"};
    if (!o->size) return {};
    const auto bytes = ParseBytes(*o->size);
    if (!bytes || *bytes == 0)
      return {Code::kBadInput, fmt::format("--split-size: '{}' is no size such as 40G or 500M", *o->size)};
    o->shard_bytes = *bytes;
    return {};
  });
  return [o] { return Copy(*o, "splitting"); };
}

}  // namespace glint::cli
