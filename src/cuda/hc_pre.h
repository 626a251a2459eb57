// hc.pre by the canonical kernels, for the stage and for levers that do not meet their shapes.
#pragma once
#include "cuda/context.h"

namespace glint::cuda {

// streams -> post, comb and collapsed: [rows][D] in device memory.
Status HcPreOf(const StepContext& c, const model::HcSite& site, float* collapsed);

}  // namespace glint::cuda
