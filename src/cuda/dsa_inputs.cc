// Lever dsa.inputs: dsa.q, dsa.kv and dsa.index in one step. The sublayer's input is rounded once for five matrices, the low-rank
// queries once for two, and the norms are one launch: 5 launches where the stages have 15.
#include "cuda/dsa_finish.h"
#include "cuda/launch.h"
#include "cuda/product.h"

namespace glint::cuda {

Status DsaInputs(const StepContext& c) {
  const auto& w = c.layer->dsa;
  const int64_t rank = c.hp.q_lora_rank, dim = c.hp.index_head_dim, heads = c.hp.index_heads;
  // What nobody reads after the step has no buffer of the plan's.
  float* const resid = c.scratch.Take<float>(c.rows * rank);
  float* const latents = c.scratch.Take<float>(c.rows * c.hp.kv_lora_rank);
  float *const keys = c.scratch.Take<float>(c.rows * dim), *const gates = c.scratch.Take<float>(c.rows * dim);
  if (c.scratch.Full()) return NoScratch(c);
  Operand x(c, c.Floats(plan::Slot::kX), c.hp.hidden, c.rows, c.hp.hidden);
  if (Status s = x.TimesAll({{&w.q_a, resid, rank},
                             {&w.kv_a, latents, c.hp.kv_lora_rank},
                             {&w.index_k, keys, dim},
                             {&w.index_gate, gates, dim},
                             {&w.index_proj, c.Floats(plan::Slot::kIndexW), heads}});
      !s.ok())
    return s;
  if (Status s = FinishDsaRows(c, {.queries = resid, .latents = latents, .keys = keys, .gates = gates});
      !s.ok())
    return s;
  return Operand(c, resid, rank, c.rows, rank)
      .TimesAll({{&w.q_b, c.Floats(plan::Slot::kQ), c.hp.heads * c.hp.qk_head_dim},
                 {&w.index_q_b, c.Floats(plan::Slot::kIndexQ), heads * dim}});
}

}  // namespace glint::cuda
