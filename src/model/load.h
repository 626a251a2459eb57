// The readers behind Load (model_data.h), one per kind of source.
#pragma once
#include <string>

#include "model/model_data.h"

namespace glint::model {

Result<ModelData> LoadGguf(const std::string& path, const LoadOptions& options);
Result<ModelData> LoadHf(const std::string& directory, const LoadOptions& options);

// What a checkpoint's generation_config.json suggests; values of another kind are skipped.
SamplingHints ReadGenerationConfig(const std::string& directory);

// Files the outcome of reading a tokenizer: none is fine, one of a foreign kind is a note, a bad one or one with more tokens
// than the embedding has rows is an error. Rows without a token become padding. `path`: for messages.
Status SetTokenizer(Result<text::TokenizerData> read, const std::string& path, ModelData& model);

// The last part of a path without .gguf and shard number, for models that have no name of their own.
std::string NameFromPath(const std::string& path);

}  // namespace glint::model
