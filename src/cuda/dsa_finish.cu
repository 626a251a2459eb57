#include "cuda/dsa_finish.h"

#include "cuda/async.cuh"
#include "cuda/launch.h"
#include "cuda/math.cuh"
#include "cuda/norm.cuh"

namespace glint::cuda {
namespace {

constexpr int kThreads = kNormThreads, kWarps = kThreads / 32;

struct NormArgs {
  float* rows;  // null: none
  const float* w;
  int64_t n;
};

struct FinishArgs {
  const RowView* rows;
  const SegmentView* segments;
  int layer;
  NormArgs query, latent;
  float rms_eps;
  // The indexer's: spec/model.md 7.1 and 7.2.
  float *key, *gate;              // [rows][dim], this pass's; null: none
  const float *key_w, *key_bias;  // [dim], of the LayerNorm
  const float* ape;               // [pool][dim]
  int64_t dim, pool, ring;
  float layer_norm_eps;
  bool store_raw;
};

// y = ((x - mean) * r) * w + b in place by a warp; both its halves form the same sums, in Dot16's order.
__device__ void LayerNorm(float* x, const float* w, const float* b, float eps, int64_t n) {
  const int lane = static_cast<int>(threadIdx.x) % 16;
  float sum = 0;
#pragma unroll 8
  for (int64_t i = lane; i < n; i += 16) sum += x[i];
  const float mean = SumLanes16(sum) / static_cast<float>(n);
  const auto centred = [&](int64_t i) { return x[i] - mean; };
  const float r = 1.0f / sqrtf(Dot16(lane, n, centred, centred) / static_cast<float>(n) + eps);
  __syncwarp();  // everybody has read the row before anybody changes it
  for (int64_t i = threadIdx.x % 32; i < n; i += 32) x[i] = fmaf(centred(i) * r, w[i], b[i]);
}

// Row r of the pass takes its place in the ring, if no later row has the same place.
__device__ void StoreRaw(const FinishArgs& a, int64_t r, const RowView& row, const SegmentView& segment) {
  if (r - segment.first_row < segment.rows - a.ring) return;
  const LayerState state = row.layers[a.layer];
  const int64_t to = row.position % a.ring * a.dim;
  for (int64_t d = threadIdx.x; d < a.dim; d += kThreads) {
    state.raw_key[to + d] = a.key[r * a.dim + d];
    state.raw_gate[to + d] = a.gate[r * a.dim + d];
  }
}

// Row r and those of its segment behind it that belong to the same pool, for the first of them.
__device__ void FinishPool(const FinishArgs& a, int64_t r) {
  const RowView row = a.rows[r];
  const SegmentView segment = a.segments[row.segment];
  const int64_t in_pool = row.position % a.pool, end_row = segment.first_row + segment.rows;
  if (r != segment.first_row && in_pool != 0) return;
  const int64_t begin = row.position - in_pool;  // the pool's
  const int64_t left = a.pool - in_pool, end = r + left < end_row ? r + left : end_row;
  for (int64_t i = r + threadIdx.x / 32; i < end; i += kWarps)
    LayerNorm(a.key + i * a.dim, a.key_w, a.key_bias, a.layer_norm_eps, a.dim);
  __syncthreads();  // the pool's keys of this pass are there
  const LayerState state = row.layers[a.layer];
  if (end - r == left) {
    for (int64_t d = threadIdx.x; d < a.dim; d += kThreads) {
      // A slot's row is of this pass, or one the ring has kept.
      const auto from = [&](const float* pass, const float* kept, int64_t slot) {
        return slot >= in_pool ? pass[(r + slot - in_pool) * a.dim + d]
                               : kept[(begin + slot) % a.ring * a.dim + d];
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
  if (!a.store_raw) return;
  for (int64_t i = r; i < end; ++i) StoreRaw(a, i, a.rows[i], segment);
}

// Blocks (row, which of the things to be done).
__global__ void __launch_bounds__(kThreads) FinishKernel(const FinishArgs a) {
  __shared__ NormShared shared;
  LetNextLaunchBegin();
  WaitForLaunchesBefore();
  const int64_t r = blockIdx.x;
  unsigned turn = blockIdx.y;
  const auto norm = [&](const NormArgs& of, float* also) {
    float* const row = of.rows + r * of.n;
    RmsNorm(
        shared, of.n, a.rms_eps, of.w, [&](int64_t k) { return row[k]; },
        [&](int64_t k, float y) {
          row[k] = y;
          if (also != nullptr) also[k] = y;
        });
  };
  if (a.query.rows != nullptr && turn-- == 0) return norm(a.query, nullptr);
  if (a.latent.rows != nullptr && turn-- == 0) {
    const RowView row = a.rows[r];
    return norm(a.latent, row.layers[a.layer].latent + row.position * a.latent.n);
  }
  if (a.key != nullptr && turn == 0) FinishPool(a, r);
}

// Of long passes, whose rows may take the places of kept ones: after every pool has read those.
__global__ void __launch_bounds__(kThreads) StoreRawKernel(const FinishArgs a) {
  LetNextLaunchBegin();
  WaitForLaunchesBefore();
  const RowView row = a.rows[blockIdx.x];
  StoreRaw(a, blockIdx.x, row, a.segments[row.segment]);
}

}  // namespace

Status FinishDsaRows(const StepContext& c, const DsaFinishing& what) {
  const auto& w = c.layer->dsa;
  const model::HParams& hp = c.hp;
  FinishArgs args{};
  args.rows = c.batch.rows, args.segments = c.batch.segments, args.layer = c.layer_index();
  if (what.queries != nullptr) args.query = {what.queries, c.On(w.q_a_norm), hp.q_lora_rank};
  if (what.latents != nullptr) args.latent = {what.latents, c.On(w.kv_a_norm), hp.kv_lora_rank};
  args.rms_eps = hp.rms_eps;
  if (what.keys != nullptr) {
    args.key = what.keys, args.gate = what.gates;
    args.key_w = c.On(w.index_k_norm), args.key_bias = c.On(w.index_k_norm_bias);
    args.ape = c.On(w.index_ape);
    args.dim = hp.index_head_dim, args.pool = hp.index_kpool, args.ring = c.raw_ring;
    args.layer_norm_eps = hp.layer_norm_eps;
    // The ring holds a pool beside so many rows: these take the place of none that the pass reads.
    args.store_raw = c.rows + args.pool <= args.ring;
  }
  const auto rows = static_cast<unsigned>(c.rows);
  const unsigned things = (what.queries != nullptr ? 1u : 0u) + (what.latents != nullptr ? 1u : 0u) +
                          (what.keys != nullptr ? 1u : 0u);
  LaunchEarly(c.early, dim3(rows, things), kThreads, 0, c.stream, FinishKernel, args);
  if (what.keys != nullptr && !args.store_raw)
    LaunchEarly(c.early, dim3(rows), kThreads, 0, c.stream, StoreRawKernel, args);
  return c.Launched("the norms");
}

}  // namespace glint::cuda
