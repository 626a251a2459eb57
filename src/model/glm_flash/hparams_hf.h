// Hyper-parameters from the config.json of a Hugging Face checkpoint (model type glm5_next).
#pragma once
#include <string>
#include <string_view>

#include "glint/status.h"
#include "model/glm_flash/hparams.h"

namespace glint::model {

// `json`: the text of config.json; `path`: its name, for messages. Both spellings of the KDA keys (linear_*, or inside
// linear_attn_config) and both places (text_config, or the top level) are read; where a key is there twice, both must agree.
// The result is checked. nextn_layers is what the file claims, at most 1; `mtp_flaw` says why that can not be used, if so.
Result<HParams> ParseHfConfig(std::string_view json, const std::string& path, std::string& mtp_flaw);

}  // namespace glint::model
