// spec/model.md 6, step 2: the latent row of each token, appended to the cache.
#include "cuda/dsa_finish.h"
#include "cuda/product.h"

namespace glint::cuda {

Status DsaKv(const StepContext& c) {
  float* const latents = c.Floats(plan::Slot::kLatent);
  Operand x(c, c.Floats(plan::Slot::kX), c.hp.hidden, c.rows, c.hp.hidden);
  if (Status s = x.Times(c.layer->dsa.kv_a, latents, c.hp.kv_lora_rank); !s.ok()) return s;
  return FinishDsaRows(c, {.latents = latents});
}

}  // namespace glint::cuda
