// hidden = SwiGLU(gate x, up x), the first half of a feed-forward (spec/model.md 8.1).
#pragma once
#include <cstdint>

#include "cuda/context.h"
#include "cuda/product.h"

namespace glint::cuda {

// Both products with rows of x, then the activation into the slot, [out_rows][gate.rows]: out_rows and `pairs` as in Operand::Times (the
// experts' pairs, or rows of x). The slot's digits are made as well where they are kept. Scratch: out_rows * gate.rows floats beside what
// the products take. `in_one` becomes whether one launch did all.
Status GateUp(const StepContext& c, const model::Matrix& gate, const model::Matrix& up, plan::Slot slot,
              Pairs pairs, int64_t out_rows, bool* in_one = nullptr);
inline Status GateUp(const StepContext& c, const model::Matrix& gate, const model::Matrix& up,
                     plan::Slot slot) {
  return GateUp(c, gate, up, slot, {}, c.rows);
}

}  // namespace glint::cuda
