// Bytes of weights a stage reads for one row: what bounds decoding (spec/budget.md section 2).
#pragma once
#include "plan/plan.h"

namespace glint::plan {

// layer: as in Step. Experts count with the share that one row uses; the embedding with one row.
uint64_t WeightBytes(const model::HParams& hp, const model::Weights& weights, Stage stage, int layer,
                     Step::Site site);

}  // namespace glint::plan
