#include "cpu/stages.h"

namespace glint::cpu {

void FfnNorm(const StepContext& c) {
  const int64_t d = c.hp.hidden;
  const float* const in =
      c.Floats(c.pass == plan::Pass::kTrunk ? plan::Slot::kCollapsed : plan::Slot::kResidual);
  float* const out = c.Floats(plan::Slot::kX);
  c.Parallel(c.rows, 1, [&](int64_t begin, int64_t end, Scratch&) {
    for (int64_t r = begin; r < end; ++r) {
      RmsNorm(*c.how.kernels, in + r * d, c.layer->ffn_norm, c.hp.rms_eps, out + r * d);
    }
  });
}

}  // namespace glint::cpu
