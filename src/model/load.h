// The readers behind Load (model_data.h), one per kind of source.
#pragma once
#include <string>
#include <vector>

#include "model/model_data.h"

namespace glint::model {

Result<ModelData> LoadGguf(const std::string& path, const LoadOptions& options);
Result<ModelData> LoadHf(const std::string& directory, const LoadOptions& options);

// Every file a checkpoint is read from: the given tensor files, and the others whether or not they are there.
std::vector<std::string> CheckpointFiles(const std::string& directory, std::vector<std::string> tensor_files);

// What a checkpoint's generation_config.json suggests; values of another kind are skipped, and so are, with a note, values
// out of range.
SamplingHints ReadGenerationConfig(const std::string& directory, std::vector<std::string>& notes);

// The hints that can be followed. One that can not is a note and no error: it is only a suggestion.
SamplingHints Usable(SamplingHints hints, std::vector<std::string>& notes);

// Files the outcome of reading a tokenizer: none is fine, one of a foreign kind is a note, a bad one or one with more tokens
// than the embedding has rows is an error. Rows without a token become padding. `path`: for messages.
Status SetTokenizer(Result<text::TokenizerData> read, const std::string& path, ModelData& model);

// The last part of a path without .gguf and shard number, for models that have no name of their own.
std::string NameFromPath(const std::string& path);

}  // namespace glint::model
