// What each step's weight matrices are multiplied with, for instruments that look at activations.
#pragma once
#include <vector>

#include "model/glm_flash/tensors.h"
#include "plan/plan.h"

namespace glint::plan {

struct ProductInput {
  enum class Kind : uint8_t {
    kRows,        // every row of the slot
    kHeads,       // [rows][slices][columns]: a slice's own part of every row
    kRouted,      // the row of the slot, for each expert that kExpertIds names
    kExpertRows,  // [rows][experts used][columns]: one for each entry of kExpertIds
    kThrough,     // the row after `through`, which no slot keeps
  };
  model::TensorId tensor;
  Slot slot = Slot::kX;
  Kind kind = Kind::kRows;
  model::TensorId through = model::TensorId::kCount;
};

// Of a canonical step of a plan that looks inside (PlanRequest::look_inside); its slots are valid once it has run. The embedding
// is looked up, not multiplied.
std::vector<ProductInput> ProductInputs(const Step& step);

}  // namespace glint::plan
