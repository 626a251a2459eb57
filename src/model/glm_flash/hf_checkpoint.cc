#include "model/glm_flash/hf_checkpoint.h"

#include <filesystem>
#include <utility>

#include "base/json.h"
#include "model/glm_flash/hparams_hf.h"

namespace glint::model {

Result<HfCheckpoint> OpenHfCheckpoint(const std::string& directory) {
  auto config = ReadJson((std::filesystem::path(directory) / "config.json").string());
  if (!config.ok()) return config.status();
  std::string mtp_flaw;
  auto hparams = ReadHfConfig(*config, mtp_flaw);
  if (!hparams.ok()) return hparams.status();
  auto files = gguf::SafeTensors::OpenDirectory(directory);
  if (!files.ok()) return files.status();
  return HfCheckpoint{*std::move(hparams), std::move(mtp_flaw), *std::move(files)};
}

}  // namespace glint::model
