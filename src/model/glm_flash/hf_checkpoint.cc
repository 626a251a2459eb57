#include "model/glm_flash/hf_checkpoint.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/printable.h"
#include "model/glm_flash/hparams_hf.h"

namespace glint::model {

namespace {

namespace fs = std::filesystem;

constexpr size_t kNamed = 5;  // files of a directory that a message lists

// What lies in a directory, and what to do about it.
std::string WhatIsThere(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error))
    names.push_back(entry->path().filename().string());
  if (error) return "it cannot be listed: " + error.message();
  if (names.empty()) return "it is empty";
  std::sort(names.begin(), names.end());
  std::string text = "it holds ";
  for (size_t i = 0; i < std::min(names.size(), kNamed); ++i)
    text += (i == 0 ? "" : ", ") + Printable(names[i]);
  if (names.size() > kNamed) text += fmt::format(" and {} more", names.size() - kNamed);
  const auto gguf =
      std::find_if(names.begin(), names.end(), [](const std::string& n) { return n.ends_with(".gguf"); });
  if (gguf == names.end()) return text;
  return fmt::format("{}; a GGUF model is named by its file, {}", text,
                     Printable((fs::path(directory) / *gguf).string()));
}

}  // namespace

Status CheckIsCheckpoint(const std::string& directory) {
  std::error_code error;
  if (!fs::is_directory(directory, error))
    return {Code::kNotFound,
            fmt::format("{}: {}; wanted is the directory of a Hugging Face checkpoint", Printable(directory),
                        fs::exists(directory, error) ? "is no directory" : "no such directory")};
  const auto has = [&](const char* name) { return fs::exists(fs::path(directory) / name, error); };
  const bool config = has("config.json");
  if (config && (has("model.safetensors") || has("model.safetensors.index.json"))) return {};
  return {
      Code::kNotFound,
      fmt::format("{}: is no Hugging Face checkpoint: {}; {}", Printable(directory),
                  config ? "neither model.safetensors nor model.safetensors.index.json is in it"
                         : "wanted are config.json, and model.safetensors or model.safetensors.index.json",
                  WhatIsThere(directory))};
}

Result<HfCheckpoint> OpenHfCheckpoint(const std::string& directory) {
  if (Status s = CheckIsCheckpoint(directory); !s.ok()) return s;
  auto config = ReadJson((fs::path(directory) / "config.json").string());
  if (!config.ok()) return config.status();
  std::string mtp_flaw;
  auto hparams = ReadHfConfig(*config, mtp_flaw);
  if (!hparams.ok()) return hparams.status();
  auto files = gguf::SafeTensors::OpenDirectory(directory);
  if (!files.ok()) return files.status();
  return HfCheckpoint{*std::move(hparams), std::move(mtp_flaw), *std::move(files)};
}

}  // namespace glint::model
