// The readers behind Load (model_data.h), one per kind of source.
#pragma once
#include <string>

#include "model/model_data.h"

namespace glint::model {

Result<ModelData> LoadGguf(const std::string& path, const LoadOptions& options);
Result<ModelData> LoadHf(const std::string& directory, const LoadOptions& options);

// What a checkpoint's generation_config.json suggests; nothing, if `json` is no object. Values of another kind are skipped.
SamplingHints ParseGenerationConfig(std::string_view json);

// The last part of a path without .gguf and shard number, for models that have no name of their own.
std::string NameFromPath(const std::string& path);

}  // namespace glint::model
