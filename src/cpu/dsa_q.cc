// spec/model.md 6, step 1: low-rank queries. The normalised low-rank rows also feed the indexer.
#include "cpu/stages.h"

namespace glint::cpu {

void DsaQ(const StepContext& c) {
  const auto& w = c.layer->dsa;
  const int64_t rank = c.hp.q_lora_rank, width = c.hp.heads * c.hp.qk_head_dim;
  float* const resid = c.Floats(plan::Slot::kQResid);
  Operand(c, c.how, c.Floats(plan::Slot::kX), c.hp.hidden, c.rows, c.scratch).Times(w.q_a, 0, resid, rank);
  c.Parallel(c.rows, 1, [&](int64_t begin, int64_t end, Scratch&) {
    for (int64_t r = begin; r < end; ++r) {
      RmsNorm(*c.how.kernels, resid + r * rank, w.q_a_norm, c.hp.rms_eps, resid + r * rank);
    }
  });
  Operand(c, c.how, resid, rank, c.rows, c.scratch, 2).Times(w.q_b, 0, c.Floats(plan::Slot::kQ), width);
}

}  // namespace glint::cpu
