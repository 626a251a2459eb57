// spec/model.md 8.2: the chosen experts' gate and up products, then SwiGLU.
#include "cuda/moe_experts.h"
#include "cuda/swiglu.h"

namespace glint::cuda {

Status MoeGateUpIn(const StepContext& c, bool* in_one) {
  const int64_t used = c.hp.experts_used;
  const Pairs chosen{Pairs::Kind::kExperts, c.Ints(plan::Slot::kExpertIds), used};
  return GateUp(c, c.layer->moe.gate, c.layer->moe.up, plan::Slot::kMoeHidden, chosen, c.rows * used, in_one);
}

Status MoeGateUp(const StepContext& c) { return MoeGateUpIn(c, nullptr); }

}  // namespace glint::cuda
