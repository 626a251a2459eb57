// A Hugging Face checkpoint directory, opened: its configuration read and checked, its tensors mapped.
#pragma once
#include <string>

#include "gguf/safetensors.h"
#include "glint/status.h"
#include "model/glm_flash/hparams.h"

namespace glint::model {

struct HfCheckpoint {
  HParams hparams;
  std::string mtp_flaw;  // why the MTP block that config.json claims can not be used, if so
  gguf::SafeTensors files;
};

// kNotFound if that is no directory, or one in which config.json or the safetensors are missing: says what was looked for and what
// is there.
Status CheckIsCheckpoint(const std::string& directory);

// config.json and the safetensors of `directory`. Nothing is known yet of which tensors are there.
Result<HfCheckpoint> OpenHfCheckpoint(const std::string& directory);

}  // namespace glint::model
