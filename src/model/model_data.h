// Everything that comes with a model, wherever it came from: a GGUF file (or split set), a Hugging Face directory, or
// random weights made on the spot.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/progress.h"
#include "model/glm_flash/hparams.h"
#include "model/glm_flash/weights.h"
#include "model/synthetic_fill.h"
#include "text/tokenizer_data.h"

namespace glint::model {

// What the file suggests for sampling; empty where it is silent.
struct SamplingHints {
  std::optional<float> temperature, top_p;
  std::optional<int32_t> top_k;
};

struct ModelData {
  std::string name;    // general.name, or the path's last part
  std::string origin;  // the path or synthetic spec it was loaded from
  std::vector<std::string>
      files;            // that it was read from, or would be if they were there: no output may replace one
  std::string dialect;  // "A".."D", "hf" or "synthetic"
  HParams hparams;
  Weights weights;
  std::optional<text::TokenizerData> tokenizer;  // absent: only token ids can be used
  std::string chat_template;                     // Jinja source, may be empty
  SamplingHints sampling;
  std::vector<std::string> notes;  // warnings worth a line on stderr, e.g. an incomplete MTP block left out
  std::shared_ptr<const void> memory;  // keeps mappings and arenas alive
  // Only of a synthetic model loaded with weights_elsewhere: what its matrices hold. Their data is then addresses to know them by,
  // which nobody may read.
  std::shared_ptr<const SyntheticFill> synthetic;
};

struct LoadOptions {
  bool mtp = true;  // bind the MTP block if it is there and complete; otherwise go without it, with a note
  bool require_mtp = false;  // an error, naming the tensor, if there is none or it is incomplete
  Progress progress = {};    // bytes read or made
  // LoadSynthetic only: matrices are described (ModelData::synthetic), not made, so that a model larger than this machine's memory
  // can be made on a device; vectors are made as usual.
  bool weights_elsewhere = false;
};

// `path`: a .gguf file (any shard of a set), or a directory with config.json and safetensors. GGUF weights are mapped,
// not copied; HF weights are mapped too, but for the few that need another layout (kv_b) or type (FP8).
// Errors name file, tensor and offset.
Result<ModelData> Load(const std::string& path, const LoadOptions& options = {});

// `spec`: "glm-5.3-flash" or "tiny", then options: ",layers=8,experts=16,recipe=q4_k,seed=1". Weights are seeded random
// blocks, the same on every machine, scaled so that activations stay sane. Refuses, with the numbers, what would not
// fit in memory.
Result<ModelData> LoadSynthetic(const std::string& spec, const LoadOptions& options = {});

}  // namespace glint::model
