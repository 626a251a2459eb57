// `glint imatrix`: mean squares of what each input channel of a model's matrices is multiplied with, over a text.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "base/progress.h"
#include "glint/model.h"
#include "model/imatrix.h"

namespace glint::engine {

struct MeasuredImportance {
  model::ImportanceMatrix matrix;
  std::vector<std::string> never_hit;  // "blk.3.ffn_up_exps.weight: 2 of 8 experts"
};

// The text in chunks of `context` tokens, each from an empty state. The trunk only. Sums are taken in double precision in the
// order of the tokens, so the result does not depend on threads. kBadInput for an empty text; kBadFile for activations that
// are no numbers.
Result<MeasuredImportance> MeasureImportance(const Model& model, std::span<const int32_t> ids,
                                             int64_t context, const Progress& progress = {});

}  // namespace glint::engine
