// spec/model.md 6, step 2: the latent row of each token, appended to the cache.
#include <algorithm>

#include "cpu/stages.h"

namespace glint::cpu {

void DsaKv(const StepContext& c) {
  const auto& w = c.layer->dsa;
  const int64_t rank = c.hp.kv_lora_rank;
  float* const latent = c.Floats(plan::Slot::kLatent);
  Operand(c, c.how, c.Floats(plan::Slot::kX), c.hp.hidden, c.rows, c.scratch).Times(w.kv_a, 0, latent, rank);
  for (const SegmentView& segment : c.segments) {
    float* const cache = segment.state->Dsa(c.layer_index()).latent;
    c.Parallel(segment.rows, 1, [&](int64_t begin, int64_t end, Scratch&) {
      for (int64_t r = begin; r < end; ++r) {
        float* const row = latent + (segment.first_row + r) * rank;
        RmsNorm(*c.how.kernels, row, w.kv_a_norm, c.hp.rms_eps, row);
        std::copy(row, row + rank, cache + (segment.position + r) * rank);
      }
    });
  }
}

}  // namespace glint::cpu
