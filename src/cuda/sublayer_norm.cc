#include "cuda/sublayer_norm.h"

#include "cuda/norm.h"

namespace glint::cuda {

Status SublayerNorm(const StepContext& c, model::Vector w) {
  const plan::Slot in = c.pass == plan::Pass::kTrunk ? plan::Slot::kCollapsed : plan::Slot::kResidual;
  return RmsNormRows(c, c.Floats(in), w, c.hp.rms_eps, c.Floats(plan::Slot::kX), c.rows, c.hp.hidden);
}

}  // namespace glint::cuda
