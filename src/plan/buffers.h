// Where each slot of a plan lies: from liveness, so that slots whose lives do not overlap share bytes.
#pragma once
#include <span>

#include "plan/plan.h"

namespace glint::plan {

// One stretch of steps over which a slot's content matters, both ends included: from the step that writes it
// anew to the last step that reads it.
struct Life {
  int first, last;
};

// Lives of a slot in the order of the steps. A step that has the slot among its outputs and not among its
// inputs begins a new life; a life nobody reads lasts for its own step.
std::vector<Life> Lives(std::span<const Step> steps, Slot slot);

// Places all slots for `rows` rows, each at a multiple of 64 bytes. keep_all: no two slots share bytes.
BufferLayout LayOut(std::span<const Step> steps, const model::HParams& hp, int rows, bool keep_all);

}  // namespace glint::plan
