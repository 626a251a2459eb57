// The norm before a sublayer, which attn.norm and ffn.norm share.
#pragma once
#include "cuda/context.h"

namespace glint::cuda {

// collapsed (MTP: residual) -> x, row by row, with the weights w.
Status SublayerNorm(const StepContext& c, model::Vector w);

}  // namespace glint::cuda
