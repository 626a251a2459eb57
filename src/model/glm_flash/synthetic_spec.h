// What a synthetic model is asked to be: "glm-5.3-flash,layers=6,recipe=q4_k".
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "glint/status.h"
#include "model/glm_flash/hparams.h"
#include "model/glm_flash/recipe.h"

namespace glint::model {

struct SyntheticSpec {
  HParams hparams;  // checked
  Recipe recipe;
  uint64_t seed = 0;
};

// SHAPE[,NAME=VALUE...]. Shapes: glm-5.3-flash (as released) and tiny (the same branches in a few megabytes).
// Options: layers, dense (leading layers with a dense FFN), mtp (0 or 1), vocab, hidden, heads, kda_heads, dense_ffn,
// expert_ffn (shared experts too), experts, experts_used, topk, kpool, context, seed, recipe (default q8_0).
// Anything else is kBadInput with the list of what there is.
Result<SyntheticSpec> ParseSynthetic(std::string_view spec);
// Shapes, options and recipes that there are, in a sentence each: for who must write one.
std::string DescribeSyntheticSpec();

}  // namespace glint::model
