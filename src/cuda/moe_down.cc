#include "cuda/moe_experts.h"
#include "cuda/product.h"

namespace glint::cuda {

Status MoeDownOf(const StepContext& c, bool chosen) {
  const int64_t width = c.hp.expert_ffn, pairs = c.rows * c.hp.experts_used;
  Operand x(c, c.Floats(plan::Slot::kMoeHidden), width, pairs, width);  // [rows][used][expert_ffn]
  return x.Times(c.layer->moe.down, c.Floats(plan::Slot::kExpertOut), c.hp.hidden,
                 {Pairs::Kind::kExperts, c.Ints(plan::Slot::kExpertIds), 1, chosen}, pairs);
}

Status MoeDown(const StepContext& c) { return MoeDownOf(c, false); }

}  // namespace glint::cuda
