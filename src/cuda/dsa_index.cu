// spec/model.md 7.1 and 7.2: the indexer's queries, keys, pool gates and head weights; pooled keys of the
// pools that the pass completes.
#include "cuda/math.cuh"
#include "cuda/product.h"

namespace glint::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kThreads = 128;

// y = ((x - mean) * r) * w + b in place, a warp a row; both its halves form the same sums, in Dot16's order.
__global__ void __launch_bounds__(kWarp)
    LayerNormKernel(float* rows, const float* w, const float* b, float eps, int64_t n) {
  float* const x = rows + int64_t{blockIdx.x} * n;
  const int lane = static_cast<int>(threadIdx.x) % 16;
  float sum = 0;
  for (int64_t i = lane; i < n; i += 16) sum += x[i];
  const float mean = SumLanes16(sum) / static_cast<float>(n);
  const auto centred = [&](int64_t i) { return x[i] - mean; };
  const float r = 1.0f / sqrtf(Dot16(lane, n, centred, centred) / static_cast<float>(n) + eps);
  __syncwarp();  // everybody has read the row before anybody changes it
  for (int64_t i = threadIdx.x; i < n; i += kWarp) x[i] = fmaf(centred(i) * r, w[i], b[i]);
}

struct PoolArgs {
  const RowView* rows;
  const SegmentView* segments;
  int layer;
  float *key, *gate;  // [rows][dim], this pass's
  const float* ape;   // [pool][dim]
  int64_t dim, pool, ring;
};

// A block a row of the batch, which works if the row completes a pool. Each thread has columns of its own.
__global__ void __launch_bounds__(kThreads) PoolKernel(const PoolArgs a) {
  const int64_t r = blockIdx.x;
  const RowView row = a.rows[r];
  if ((row.position + 1) % a.pool != 0) return;
  const LayerState state = row.layers[a.layer];
  const int64_t begin = row.position + 1 - a.pool, pass_begin = a.segments[row.segment].position;
  for (int64_t d = threadIdx.x; d < a.dim; d += kThreads) {
    // A slot's row is of this pass, or one the ring has kept.
    const auto from = [&](const float* pass, const float* kept, int64_t slot) {
      const int64_t position = begin + slot;
      return position >= pass_begin ? pass[(r + position - row.position) * a.dim + d]
                                    : kept[position % a.ring * a.dim + d];
    };
    const auto score = [&](int64_t slot) {
      return from(a.gate, state.raw_gate, slot) + a.ape[slot * a.dim + d];
    };
    float top = score(0);
    for (int64_t s = 1; s < a.pool; ++s) top = StdMax(top, score(s));
    float sum = 0, mix = 0;
    for (int64_t s = 0; s < a.pool; ++s) {
      const float e = Exp(score(s) - top);
      sum += e;
      mix = fmaf(e, from(a.key, state.raw_key, s), mix);
    }
    state.pooled[begin / a.pool * a.dim + d] = mix / sum;
  }
}

// The pass's last rows take their place in the ring: a launch of its own, after every pool has read the older ones.
__global__ void __launch_bounds__(kThreads) StoreRawKernel(const PoolArgs a) {
  const int64_t r = blockIdx.x;
  const RowView row = a.rows[r];
  const SegmentView segment = a.segments[row.segment];
  if (r - segment.first_row < segment.rows - a.ring) return;  // a later row has the same place
  const LayerState state = row.layers[a.layer];
  const int64_t to = row.position % a.ring * a.dim;
  for (int64_t d = threadIdx.x; d < a.dim; d += kThreads) {
    state.raw_key[to + d] = a.key[r * a.dim + d];
    state.raw_gate[to + d] = a.gate[r * a.dim + d];
  }
}

}  // namespace

Status DsaIndex(const StepContext& c) {
  const auto& w = c.layer->dsa;
  const int64_t dim = c.hp.index_head_dim, heads = c.hp.index_heads;
  float* const key = c.Floats(plan::Slot::kIndexK);
  float* const gate = c.Floats(plan::Slot::kIndexGate);

  Operand resid(c, c.Floats(plan::Slot::kQResid), c.hp.q_lora_rank, c.rows, c.hp.q_lora_rank);
  if (Status s = resid.Times(w.index_q_b, c.Floats(plan::Slot::kIndexQ), heads * dim); !s.ok()) return s;
  Operand x(c, c.Floats(plan::Slot::kX), c.hp.hidden, c.rows, c.hp.hidden);
  if (Status s = x.TimesAll({{&w.index_k, key, dim},
                             {&w.index_gate, gate, dim},
                             {&w.index_proj, c.Floats(plan::Slot::kIndexW), heads}});
      !s.ok())
    return s;

  const auto rows = static_cast<unsigned>(c.rows);
  LayerNormKernel<<<rows, kWarp, 0, c.stream>>>(key, c.On(w.index_k_norm), c.On(w.index_k_norm_bias),
                                                c.hp.layer_norm_eps, dim);
  const PoolArgs args{c.batch.rows, c.batch.segments, c.layer_index(), key, gate, c.On(w.index_ape),
                      dim,          c.hp.index_kpool, c.raw_ring};
  PoolKernel<<<rows, kThreads, 0, c.stream>>>(args);
  StoreRawKernel<<<rows, kThreads, 0, c.stream>>>(args);
  return c.Launched();
}

}  // namespace glint::cuda
