#include "cpu/stages.h"

namespace glint::cpu {

void FfnNorm(const StepContext& c) { SublayerNorm(c, c.layer->ffn_norm); }

}  // namespace glint::cpu
