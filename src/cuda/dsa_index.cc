// spec/model.md 7.1 and 7.2: the indexer's queries, keys, pool gates and head weights; pooled keys of the
// pools that the pass completes.
#include "cuda/dsa_finish.h"
#include "cuda/product.h"

namespace glint::cuda {

Status DsaIndex(const StepContext& c) {
  const auto& w = c.layer->dsa;
  const int64_t dim = c.hp.index_head_dim, heads = c.hp.index_heads;
  float *const keys = c.Floats(plan::Slot::kIndexK), *const gates = c.Floats(plan::Slot::kIndexGate);
  Operand resid(c, c.Floats(plan::Slot::kQResid), c.hp.q_lora_rank, c.rows, c.hp.q_lora_rank);
  if (Status s = resid.Times(w.index_q_b, c.Floats(plan::Slot::kIndexQ), heads * dim); !s.ok()) return s;
  Operand x(c, c.Floats(plan::Slot::kX), c.hp.hidden, c.rows, c.hp.hidden);
  if (Status s = x.TimesAll({{&w.index_k, keys, dim},
                             {&w.index_gate, gates, dim},
                             {&w.index_proj, c.Floats(plan::Slot::kIndexW), heads}});
      !s.ok())
    return s;
  return FinishDsaRows(c, {.keys = keys, .gates = gates});
}

}  // namespace glint::cuda
