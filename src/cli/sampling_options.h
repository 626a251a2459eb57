// How the next token is chosen, as options.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "cli/options.h"
#include "glint/model.h"
#include "glint/sampler.h"

namespace glint::cli {

struct SamplingChoice {
  std::optional<double> temperature, top_p, min_p, repeat_penalty, presence_penalty, frequency_penalty;
  std::optional<int64_t> top_k;
  std::optional<uint64_t> seed;
  std::vector<std::string> logit_bias;  // "ID=VALUE"
  bool greedy = false;

  void Declare(Options& options);

  // What was given, then what the model file suggests, then 1.0 and no filters. A seed that was not given is drawn at random, so
  // that it can be shown and the text made again.
  Result<SamplerOptions> Resolve(const Model& model) const;
};

}  // namespace glint::cli
