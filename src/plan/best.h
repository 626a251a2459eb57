// The greedy choice among logits.
#pragma once
#include <cstdint>
#include <span>

namespace glint::plan {

// The id of the highest logit; ties go to the lower id, NaN and -infinity are never chosen. -1: none is left.
int32_t BestId(std::span<const float> logits);

}  // namespace glint::plan
