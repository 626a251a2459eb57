// Lever dsa.inputs: dsa.q, dsa.kv and dsa.index in one step. The sublayer's input is rounded once for five matrices, the low-rank
// queries once for two, and the norms are one launch, for few rows with the product of plain weights in it: 4 launches where the
// stages have 15.
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
  const bool beside = FinishesProduct(c, w.index_proj);
  const float* const rows = c.Floats(plan::Slot::kX);
  float* const weights = c.Floats(plan::Slot::kIndexW);
  Operand x(c, rows, c.hp.hidden, c.rows, c.hp.hidden);
  const Operand::Target q_a{&w.q_a, resid, rank}, kv_a{&w.kv_a, latents, c.hp.kv_lora_rank},
      index_k{&w.index_k, keys, dim}, index_gate{&w.index_gate, gates, dim},
      proj{&w.index_proj, weights, heads};
  if (Status s = beside ? x.TimesAll({q_a, kv_a, index_k, index_gate})
                        : x.TimesAll({q_a, kv_a, index_k, index_gate, proj});
      !s.ok())
    return s;
  DsaFinishing finishing{.queries = resid, .latents = latents, .keys = keys, .gates = gates};
  if (beside) finishing.product = &w.index_proj, finishing.x = rows, finishing.y = weights;
  if (Status s = FinishDsaRows(c, finishing); !s.ok()) return s;
  return Operand(c, resid, rank, c.rows, rank)
      .TimesAll({{&w.q_b, c.Floats(plan::Slot::kQ), c.hp.heads * c.hp.qk_head_dim},
                 {&w.index_q_b, c.Floats(plan::Slot::kIndexQ), heads * dim}});
}

}  // namespace glint::cuda
