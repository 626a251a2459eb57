// spec/model.md 7.1 and 7.2: the indexer's queries, keys, pool gates and head weights; pooled keys of the
// pools that the pass completes.
#include <algorithm>
#include <cmath>

#include "base/mutation.h"
#include "cpu/stages.h"

namespace glint::cpu {
namespace {

// y = ((x - mean) * r) * w + b in place; sums in Dot16's order.
void LayerNorm(const Kernels& kernels, float* x, model::Vector w, model::Vector b, float eps) {
  const auto n = static_cast<int64_t>(w.size());
  std::array<float, 16> lanes{};
  for (int64_t i = 0; i < n; ++i) lanes[i % 16] += x[i];
  for (int64_t half = 8; half >= 1; half /= 2) {
    for (int64_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  const float mean = lanes[0] / static_cast<float>(n);
  for (int64_t i = 0; i < n; ++i) x[i] -= mean;
  const float r = InverseRms(kernels, x, n, eps);
  for (int64_t i = 0; i < n; ++i) x[i] = std::fma(x[i] * r, w[i], b[i]);
}

}  // namespace

void DsaIndex(const StepContext& c) {
  const auto& w = c.layer->dsa;
  const int64_t dim = c.hp.index_head_dim, heads = c.hp.index_heads, pool = c.hp.index_kpool;
  const Kernels& kernels = *c.how.kernels;
  float* const key = c.Floats(plan::Slot::kIndexK);
  float* const gate = c.Floats(plan::Slot::kIndexGate);

  Operand(c, c.how, c.Floats(plan::Slot::kQResid), c.hp.q_lora_rank, c.rows, c.scratch, 2)
      .Times(w.index_q_b, 0, c.Floats(plan::Slot::kIndexQ), heads * dim);
  Operand x(c, c.how, c.Floats(plan::Slot::kX), c.hp.hidden, c.rows, c.scratch);
  x.Times(w.index_k, 0, key, dim);
  x.Times(w.index_gate, 0, gate, dim);
  x.Times(w.index_proj, 0, c.Floats(plan::Slot::kIndexW), heads);
  c.Parallel(c.rows, 1, [&](int64_t begin, int64_t end, Scratch&) {
    for (int64_t r = begin; r < end; ++r) {
      LayerNorm(kernels, key + r * dim, w.index_k_norm, w.index_k_norm_bias, c.hp.layer_norm_eps);
    }
  });

  for (const SegmentView& segment : c.segments) {
    const DsaState state = segment.state->Dsa(c.layer_index());
    const int64_t ring = segment.state->layout().raw_ring, end_position = segment.position + segment.rows;
    const int64_t first_pool = segment.position / pool, pools = end_position / pool - first_pool;
    c.Parallel(pools, 1, [&](int64_t begin, int64_t end, Scratch& scratch) {
      float* const top = scratch.Floats(0, (3 + pool) * dim);
      float *const sum = top + dim, *const mix = sum + dim, *const e = mix + dim;  // e [pool][dim]
      for (int64_t p = first_pool + begin; p < first_pool + end; ++p) {
        // A slot's row is of this pass, or one the ring has kept.
        const auto row = [&](const float* pass, const float* kept, int64_t slot) {
          const int64_t position = p * pool + slot;
          return position >= segment.position
                     ? pass + (segment.first_row + position - segment.position) * dim
                     : kept + (position + (Mutated(Mutation::kPoolFromAnotherSlot) ? 1 : 0)) % ring * dim;
        };
        for (int64_t s = 0; s < pool; ++s) {
          const float* const g = row(gate, state.raw_gate, s);
          const float* const ape = w.index_ape.data() + s * dim;
          for (int64_t d = 0; d < dim; ++d) {
            e[s * dim + d] = g[d] + ape[d];
            top[d] = s == 0 ? e[d] : std::max(top[d], e[s * dim + d]);
          }
        }
        std::fill(sum, sum + 2 * dim, 0.0f);
        for (int64_t s = 0; s < pool; ++s) {
          float* const es = e + s * dim;
          for (int64_t d = 0; d < dim; ++d) es[d] -= top[d];
          kernels.exp(es, es, dim);
          const float* const k = row(key, state.raw_key, s);
          for (int64_t d = 0; d < dim; ++d) {
            sum[d] += es[d];
            mix[d] = std::fma(es[d], k[d], mix[d]);
          }
        }
        for (int64_t d = 0; d < dim; ++d) state.pooled[p * dim + d] = mix[d] / sum[d];
      }
    });
    // Only now, when no pool needs the older rows, the pass's last rows take their place.
    for (int64_t r = std::max<int64_t>(0, segment.rows - ring); r < segment.rows; ++r) {
      const int64_t from = (segment.first_row + r) * dim, to = (segment.position + r) % ring * dim;
      std::copy(key + from, key + from + dim, state.raw_key + to);
      std::copy(gate + from, gate + from + dim, state.raw_gate + to);
    }
  }
}

}  // namespace glint::cpu
