#include <fmt/core.h>

#include <filesystem>
#include <utility>

#include "base/json.h"
#include "base/memory.h"
#include "gguf/safetensors.h"
#include "model/arena.h"
#include "model/glm_flash/hf_checkpoint.h"
#include "model/glm_flash/hf_source.h"
#include "model/load.h"
#include "text/hf_tokenizer.h"

namespace glint::model {
namespace {

struct Memory {
  gguf::SafeTensors files;
  Arena arena;
};

std::string Join(const std::string& directory, std::string_view name) {
  return (std::filesystem::path(directory) / name).string();
}

// What can not stay mapped (experts, kv_b, FP8) is copied: refused, with the numbers, where there is no room for it.
Status CheckRoom(const std::string& directory, const HParams& hp, const HfSource& source) {
  uint64_t copies = 0;
  for (const Tensor& tensor : ListTensors(hp)) {
    auto located = source.Locate(tensor);
    if (!located.ok()) return located.status();
    if (tensor.kind->matrix != nullptr && !located->InPlace()) copies += located->CopyBytes();
  }
  const MemoryRoom room = AvailableMemory();
  if (copies <= room.bytes) return {};
  return {Code::kNoRoom,
          fmt::format("{}: {} of weights must be copied to be run (experts, kv_b, FP8), but {} leaves {}; "
                      "convert the checkpoint to GGUF, which is mapped",
                      directory, FormatBytes(copies), room.limited_by, FormatBytes(room.bytes))};
}

}  // namespace

std::vector<std::string> CheckpointFiles(const std::string& directory,
                                         std::vector<std::string> tensor_files) {
  for (const char* name : {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
                           "chat_template.jinja", "model.safetensors.index.json"}) {
    tensor_files.push_back(Join(directory, name));
  }
  return tensor_files;
}

SamplingHints ReadGenerationConfig(const std::string& directory, std::vector<std::string>& notes) {
  SamplingHints hints;
  auto file = ReadJson(Join(directory, "generation_config.json"));
  if (!file.ok()) return hints;
  if (auto t = file->Get<double>("temperature"); t.ok()) hints.temperature = static_cast<float>(*t);
  if (auto p = file->Get<double>("top_p"); p.ok()) hints.top_p = static_cast<float>(*p);
  if (auto k = file->Get<int64_t>("top_k"); k.ok() && std::in_range<int32_t>(*k)) {
    hints.top_k = static_cast<int32_t>(*k);
  }
  return Usable(hints, notes);
}

Result<ModelData> LoadHf(const std::string& directory, const LoadOptions& options) {
  auto checkpoint = OpenHfCheckpoint(directory);
  if (!checkpoint.ok()) return checkpoint.status();
  auto memory = std::make_shared<Memory>(Memory{std::move(checkpoint->files), {}});

  ModelData model;
  model.name = NameFromPath(directory);
  model.origin = directory;
  model.files = CheckpointFiles(directory, memory->files.paths());
  model.dialect = "hf";
  model.hparams = checkpoint->hparams;
  HfSource source(checkpoint->hparams, memory->files, memory->arena);
  if (Status s = SettleMtp(model.hparams, source, options.mtp, options.require_mtp, checkpoint->mtp_flaw,
                           model.notes);
      !s.ok()) {
    return Status(s.code(), fmt::format("{}: {}", directory, s.message()));
  }
  if (Status s =
          SetTokenizer(text::ReadHfTokenizer(directory, checkpoint->hparams.vocab_size), directory, model);
      !s.ok()) {
    return s;
  }
  auto chat_template = text::ReadHfChatTemplate(directory);
  if (!chat_template.ok()) return chat_template.status();
  model.chat_template = std::move(*chat_template);
  if (Status s = CheckRoom(directory, model.hparams, source); !s.ok()) return s;
  model.weights = EmptyWeights(model.hparams);
  if (Status s = Bind(model.hparams, source, model.weights, options.progress); !s.ok()) return s;

  model.sampling = ReadGenerationConfig(directory, model.notes);
  model.memory = std::move(memory);
  return model;
}

}  // namespace glint::model
