#include "cuda/sublayer_norm.h"

namespace glint::cuda {

Status FfnNorm(const StepContext& c) { return SublayerNorm(c, c.layer->ffn_norm); }

}  // namespace glint::cuda
