#include "cuda/sublayer_norm.h"

namespace glint::cuda {

Status AttnNorm(const StepContext& c) { return SublayerNorm(c, c.layer->attn_norm); }

}  // namespace glint::cuda
