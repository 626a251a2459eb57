// spec/model.md 8.2: the chosen experts' gate and up products, then SwiGLU.
#include "cuda/launch.h"
#include "cuda/product.h"
#include "cuda/swiglu.h"

namespace glint::cuda {

Status MoeGateUp(const StepContext& c) {
  const auto& w = c.layer->moe;
  const int64_t width = c.hp.expert_ffn, used = c.hp.experts_used, pairs = c.rows * used;
  float* const hidden = c.Floats(plan::Slot::kMoeHidden);  // [rows][used][expert_ffn]
  float* const gate = c.scratch.Take<float>(pairs * width);
  if (gate == nullptr) return NoScratch(c);
  const Pairs chosen{Pairs::Kind::kExperts, c.Ints(plan::Slot::kExpertIds), used};
  Operand x(c, c.Floats(plan::Slot::kX), c.hp.hidden, c.rows, c.hp.hidden);
  if (Status s = x.TimesAll({{&w.gate, gate, width}, {&w.up, hidden, width}}, chosen, pairs); !s.ok())
    return s;
  return SwiGlu(c, gate, hidden, plan::Slot::kMoeHidden, pairs, width);
}

}  // namespace glint::cuda
