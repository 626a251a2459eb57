// Hugging Face checkpoint directory -> dialect A GGUF.
#pragma once
#include <string>
#include <vector>

#include "base/progress.h"
#include "glint/status.h"
#include "model/glm_flash/recipe.h"
#include "quant/format.h"

namespace glint::model {

struct ConvertOptions {
  // Type of the weight matrices; small vectors, convolutions, routers, hc base and scale, and index ape and head weights stay F32 (spec/gguf.md section 5).
  // A row that is not a whole number of blocks falls back to q8_0, or f16 where that does not fit either; the summary tells.
  quant::Type type = quant::Type::kBF16;
  quant::Type experts = quant::Type::kBF16;  // routed experts; same as type unless set
  bool experts_set = false;
  const Recipe* recipe = nullptr;        // in place of both; outlives the call
  std::vector<std::string> inputs = {};  // other files that are never overwritten: the recipe's
  bool replace = true;                   // false: an output that is there is refused
  std::string name = {};                 // general.name; empty: from the directory
  Progress progress = {};                // bytes of output
};

struct ConvertSummary {
  uint64_t tensors = 0, bytes = 0;
  uint64_t fallbacks = 0;          // tensors stored in another type than asked
  std::vector<std::string> notes;  // e.g. an incomplete MTP block left out
};

// Reads config.json, generation_config.json, tokenizer.json, tokenizer_config.json (chat template also from chat_template.jinja) and the safetensors
// of `directory`; writes `out` atomically. FP8 E4M3 with 128x128 block scales is dequantised on the way. NaN or infinity in weights to be
// quantised is refused, naming tensor and index. The MTP block goes along.
Result<ConvertSummary> Convert(const std::string& directory, const std::string& out,
                               const ConvertOptions& options);

}  // namespace glint::model
