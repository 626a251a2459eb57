#include <fmt/core.h>

#include "model/arena.h"
#include "model/glm_flash/gguf_source.h"
#include "model/glm_flash/hparams_gguf.h"
#include "model/load.h"
#include "text/gguf_tokenizer.h"

namespace glint::model {
namespace {

struct Memory {
  gguf::File file;
  Arena arena;
};

// Absent values and those of another kind are left out: they are suggestions.
SamplingHints ReadSampling(const gguf::File& file, std::vector<std::string>& notes) {
  SamplingHints hints;
  if (auto t = file.GetFloat("general.sampling.temp"); t.ok()) hints.temperature = static_cast<float>(*t);
  if (auto p = file.GetFloat("general.sampling.top_p"); p.ok()) hints.top_p = static_cast<float>(*p);
  if (auto k = file.GetUint("general.sampling.top_k"); k.ok() && *k <= 0x7fffffff)
    hints.top_k = static_cast<int32_t>(*k);
  return Usable(hints, notes);
}

// Own copies of the trunk's embedding and head are legal in an MTP block; the released model has none and glint uses the trunk's.
void NoteOwnTables(const gguf::File& file, const HParams& hp, std::vector<std::string>& notes) {
  if (hp.nextn_layers == 0) return;
  for (const char* name : {"nextn.embed_tokens.weight", "nextn.shared_head_head.weight"}) {
    const std::string full = BlockName(static_cast<int>(hp.layers), name);
    if (file.FindTensor(full) != nullptr)
      notes.push_back(full + " is not used: the MTP block takes the trunk's");
  }
}

}  // namespace

Result<ModelData> LoadGguf(const std::string& path, const LoadOptions& options) {
  auto file = gguf::File::Open(path, BlockSizeOf);
  if (!file.ok()) return file.status();
  auto memory = std::make_shared<Memory>(Memory{std::move(*file), {}});
  auto read = ReadHParams(memory->file);
  if (!read.ok()) return read.status();

  ModelData model;
  model.origin = path;
  model.files = memory->file.paths();
  model.dialect = read->dialect;
  model.hparams = read->hparams;
  model.notes = std::move(read->notes);
  GgufSource source(memory->file, memory->arena);
  if (Status s =
          SettleMtp(model.hparams, source, options.mtp, options.require_mtp, read->mtp_flaw, model.notes);
      !s.ok()) {
    return Status(s.code(), fmt::format("{}: {}", path, s.message()));
  }
  NoteOwnTables(memory->file, model.hparams, model.notes);
  if (Status s = SetTokenizer(text::ReadGgufTokenizer(memory->file), path, model); !s.ok()) return s;
  auto chat_template = text::ReadGgufChatTemplate(memory->file);
  if (!chat_template.ok()) return chat_template.status();
  model.chat_template = std::move(*chat_template);
  model.weights = EmptyWeights(model.hparams);
  if (Status s = Bind(model.hparams, source, model.weights, options.progress); !s.ok()) return s;

  auto name = memory->file.GetString("general.name");
  model.name = name.ok() && !name->empty() ? *name : NameFromPath(path);
  model.sampling = ReadSampling(memory->file, model.notes);
  model.memory = std::move(memory);
  return model;
}

}  // namespace glint::model
