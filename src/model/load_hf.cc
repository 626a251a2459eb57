#include <fmt/core.h>

#include <boost/json.hpp>
#include <filesystem>

#include "base/file.h"
#include "gguf/safetensors.h"
#include "model/arena.h"
#include "model/glm_flash/hf_source.h"
#include "model/glm_flash/hparams_hf.h"
#include "model/load.h"

namespace glint::model {
namespace {

struct Memory {
  gguf::SafeTensors files;
  Arena arena;
};

std::string Join(const std::string& directory, std::string_view name) {
  return (std::filesystem::path(directory) / name).string();
}

}  // namespace

SamplingHints ParseGenerationConfig(std::string_view text) {
  namespace json = boost::json;
  SamplingHints hints;
  json::error_code error;
  const json::value root = json::parse(json::string_view(text.data(), text.size()), error);
  if (error || !root.is_object()) return hints;
  const auto number = [&](const char* key) -> std::optional<double> {
    const json::value* v = root.get_object().if_contains(key);
    if (v == nullptr || !v->is_number()) return std::nullopt;
    return v->is_double() ? v->get_double() : v->to_number<double>(error);
  };
  if (const auto t = number("temperature")) hints.temperature = static_cast<float>(*t);
  if (const auto p = number("top_p")) hints.top_p = static_cast<float>(*p);
  if (const auto k = number("top_k"); k && *k >= 0 && *k < 0x7fffffff) hints.top_k = static_cast<int32_t>(*k);
  return hints;
}

Result<ModelData> LoadHf(const std::string& directory, const LoadOptions& options) {
  const std::string config_path = Join(directory, "config.json");
  auto config = ReadFile(config_path);
  if (!config.ok()) return config.status();
  std::string mtp_flaw;
  auto hparams = ParseHfConfig(*config, config_path, mtp_flaw);
  if (!hparams.ok()) return hparams.status();
  auto files = gguf::SafeTensors::OpenDirectory(directory);
  if (!files.ok()) return files.status();
  auto memory = std::make_shared<Memory>(Memory{std::move(*files), {}});

  ModelData model;
  model.name = NameFromPath(directory);
  model.origin = directory;
  model.dialect = "hf";
  model.hparams = *hparams;
  HfSource source(*hparams, memory->files, memory->arena);
  if (Status s = SettleMtp(model.hparams, source, options.mtp, options.require_mtp, mtp_flaw, model.notes);
      !s.ok()) {
    return Status(s.code(), fmt::format("{}: {}", directory, s.message()));
  }
  model.weights = EmptyWeights(model.hparams);
  if (Status s = Bind(model.hparams, source, model.weights, options.progress); !s.ok()) return s;

  if (auto generation = ReadFile(Join(directory, "generation_config.json")); generation.ok()) {
    model.sampling = ParseGenerationConfig(*generation);
  }
  model.memory = std::move(memory);
  return model;
}

}  // namespace glint::model
