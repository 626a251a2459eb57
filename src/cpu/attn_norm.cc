#include "cpu/stages.h"

namespace glint::cpu {

void AttnNorm(const StepContext& c) { SublayerNorm(c, c.layer->attn_norm); }

}  // namespace glint::cpu
