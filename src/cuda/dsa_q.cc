// spec/model.md 6, step 1: low-rank queries. The normalised low-rank rows also feed the indexer.
#include "cuda/dsa_finish.h"
#include "cuda/product.h"

namespace glint::cuda {

Status DsaQ(const StepContext& c) {
  const auto& w = c.layer->dsa;
  const int64_t rank = c.hp.q_lora_rank, width = c.hp.heads * c.hp.qk_head_dim;
  float* const resid = c.Floats(plan::Slot::kQResid);
  Operand x(c, c.Floats(plan::Slot::kX), c.hp.hidden, c.rows, c.hp.hidden);
  if (Status s = x.Times(w.q_a, resid, rank); !s.ok()) return s;
  if (Status s = FinishDsaRows(c, {.queries = resid}); !s.ok()) return s;
  return Operand(c, resid, rank, c.rows, rank).Times(w.q_b, c.Floats(plan::Slot::kQ), width);
}

}  // namespace glint::cuda
