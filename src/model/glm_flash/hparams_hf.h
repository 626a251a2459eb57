// Hyper-parameters from the config.json of a Hugging Face checkpoint (model type glm5_next).
#pragma once
#include <string>

#include "base/json.h"
#include "glint/status.h"
#include "model/glm_flash/hparams.h"

namespace glint::model {

// Both spellings of the KDA keys (linear_*, or inside linear_attn_config) and both places (text_config, or the
// top level) are read; where a key is spelled twice, both must agree. The result is checked; errors name file and
// key. nextn_layers is what the file claims, at most 1; `mtp_flaw` says why that can not be used, if so.
Result<HParams> ReadHfConfig(const JsonFile& file, std::string& mtp_flaw);

}  // namespace glint::model
