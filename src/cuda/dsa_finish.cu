#include "cuda/dsa_finish.h"

#include <algorithm>

#include "cuda/async.cuh"
#include "cuda/float_rows.cuh"
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
  // The product beside them, of kSame pairs in the blocks of float_rows.cuh; no rows of blocks: none.
  FloatArgs product;
  int product_tile;
  unsigned product_rows;  // of blocks
};

// y = ((x - mean) * r) * w + b in place by a warp; both its halves form the same sums, in Dot16's order. `wait` comes before the row.
template <class Wait>
__device__ void LayerNorm(float* x, const float* w, const float* b, float eps, int64_t n, Wait&& wait) {
  constexpr int kHeld = 8;
  constexpr int64_t kStretch = 16 * kHeld;  // the usual row is one stretch, which stays in registers
  const int lane = static_cast<int>(threadIdx.x) % 16;
  const bool upper = threadIdx.x % 32 >= 16;
  float held[kHeld], weight[kHeld / 2], bias[kHeld / 2];
  // Of the stretch from `first` on, each half stores every other sixteen columns.
  const auto own = [&](int i) { return lane + 16 * (2 * i + (upper ? 1 : 0)); };
  const auto fetch = [&](int64_t first) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) held[i] = first + lane + 16 * i < n ? x[first + lane + 16 * i] : 0.0f;
  };
  const auto fetch_weights = [&](int64_t first) {
#pragma unroll
    for (int i = 0; i < kHeld / 2; ++i) {
      const int64_t k = first + own(i);
      weight[i] = k < n ? w[k] : 0.0f, bias[i] = k < n ? b[k] : 0.0f;
    }
  };
  const bool more = n > kStretch;
  if (!more) fetch_weights(0);
  wait();
  float sum = 0;
  for (int64_t first = 0; first < n; first += kStretch) {
    fetch(first);
#pragma unroll
    for (int i = 0; i < kHeld; ++i) sum += held[i];  // which is never -0: zeros past the end change nothing
  }
  const float mean = SumLanes16(sum) / static_cast<float>(n);
  float squares = 0;
  for (int64_t first = 0; first < n; first += kStretch) {
    if (more) fetch(first);
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const float centred = held[i] - mean;
      if (first + lane + 16 * i < n) squares = fmaf(centred, centred, squares);
    }
  }
  const float r = 1.0f / sqrtf(SumLanes16(squares) / static_cast<float>(n) + eps);
  __syncwarp();  // everybody has read the row before anybody changes it
  for (int64_t first = 0; first < n; first += kStretch) {
    if (more) {
      fetch(first);
      fetch_weights(first);
      __syncwarp();  // the stretch is read
    }
#pragma unroll
    for (int i = 0; i < kHeld / 2; ++i) {
      const float value = upper ? held[2 * i + 1] : held[2 * i];
      if (first + own(i) < n) x[first + own(i)] = fmaf((value - mean) * r, weight[i], bias[i]);
    }
  }
}

// Row r of the pass takes its place in the ring, if no later row has the same place.
__device__ void StoreRaw(const FinishArgs& a, int64_t r, const RowView& row, const SegmentView& segment,
                         const LayerState& state) {
  if (r - segment.first_row < segment.rows - a.ring) return;
  const int64_t to = row.position % a.ring * a.dim;
  for (int64_t d = threadIdx.x; d < a.dim; d += kThreads) {
    state.raw_key[to + d] = a.key[r * a.dim + d];
    state.raw_gate[to + d] = a.gate[r * a.dim + d];
  }
}

// Row r and those of its segment behind it that belong to the same pool, for the first of them. Waits for the launches before.
__device__ void FinishPool(const FinishArgs& a, int64_t r) {
  const RowView row = a.rows[r];
  const SegmentView segment = a.segments[row.segment];
  const LayerState state = row.layers[a.layer];
  const int64_t in_pool = row.position % a.pool, end_row = segment.first_row + segment.rows;
  if (r != segment.first_row && in_pool != 0) return;
  const int64_t begin = row.position - in_pool;  // the pool's
  const int64_t left = a.pool - in_pool, end = r + left < end_row ? r + left : end_row;
  for (int64_t i = r + threadIdx.x / 32; i < end; i += kWarps)
    LayerNorm(a.key + i * a.dim, a.key_w, a.key_bias, a.layer_norm_eps, a.dim, WaitForLaunchesBefore);
  WaitForLaunchesBefore();  // those without a row too
  __syncthreads();          // the pool's keys of this pass are there
  if (end - r == left) {
    for (int64_t d = threadIdx.x; d < a.dim; d += kThreads) {
      // A slot's row is of this pass, or one the ring has kept.
      const auto from = [&](const float* pass, const float* kept, int64_t slot) {
        return slot >= in_pool ? pass[(r + slot - in_pool) * a.dim + d]
                               : kept[(begin + slot) % a.ring * a.dim + d];
      };
      constexpr int kAhead = 4;  // slots whose loads are under way at once
      float top = 0, sum = 0, mix = 0, score[kAhead], key[kAhead];
      const auto fetch = [&](int64_t first) {
#pragma unroll
        for (int i = 0; i < kAhead; ++i) {
          const int64_t slot = first + i < a.pool ? first + i : a.pool - 1;
          score[i] = from(a.gate, state.raw_gate, slot) + a.ape[slot * a.dim + d];
          key[i] = from(a.key, state.raw_key, slot);
        }
      };
      for (int64_t s = 0; s < a.pool; s += kAhead) {
        fetch(s);
#pragma unroll
        for (int i = 0; i < kAhead; ++i) top = s + i == 0 ? score[i] : StdMax(top, score[i]);
      }
      for (int64_t s = 0; s < a.pool; s += kAhead) {
        if (a.pool > kAhead) fetch(s);
#pragma unroll
        for (int i = 0; i < kAhead; ++i) {
          if (s + i >= a.pool) break;
          const float e = Exp(score[i] - top);
          sum += e;
          mix = fmaf(e, key[i], mix);
        }
      }
      state.pooled[begin / a.pool * a.dim + d] = mix / sum;
    }
  }
  if (!a.store_raw) return;
  for (int64_t i = r; i < end; ++i) StoreRaw(a, i, a.rows[i], segment, state);
}

// Blocks (x, y): y < product_rows is the product's y, and its x; then things to be done for row x, one a y. T: of the product's weights.
template <class T>
__global__ void __launch_bounds__(kThreads) FinishKernel(const FinishArgs a, const int64_t rows) {
  extern __shared__ __align__(16) std::byte finish_shared[];
  auto& shared = *reinterpret_cast<NormShared*>(finish_shared);
  LetNextLaunchBegin();
  if (blockIdx.y < a.product_rows) {
    if (blockIdx.x < a.product.rows) FewRowsProduct<T, 2>(a.product, 1, a.product_tile, finish_shared);
    return;
  }
  const int64_t r = blockIdx.x;
  unsigned turn = blockIdx.y - a.product_rows;
  if (r >= rows) return;
  const auto norm = [&](const NormArgs& of, auto&& also) {
    float* const row = of.rows + r * of.n;
    RmsNorm(
        shared, of.n, a.rms_eps, of.w, [&](int64_t k) { return row[k]; },
        [&](int64_t k, float y) {
          row[k] = y;
          also(k, y);
        });
  };
  if (a.query.rows != nullptr && turn-- == 0) return norm(a.query, [](int64_t, float) {});
  if (a.latent.rows != nullptr && turn-- == 0) {
    const RowView row = a.rows[r];
    float* const kept = row.layers[a.layer].latent + row.position * a.latent.n;
    return norm(a.latent, [&](int64_t k, float y) { kept[k] = y; });
  }
  if (a.key != nullptr && turn == 0) FinishPool(a, r);
}

// Of long passes, whose rows may take the places of kept ones: after every pool has read those.
__global__ void __launch_bounds__(kThreads) StoreRawKernel(const FinishArgs a) {
  LetNextLaunchBegin();
  WaitForLaunchesBefore();
  const RowView row = a.rows[blockIdx.x];
  StoreRaw(a, blockIdx.x, row, a.segments[row.segment], row.layers[a.layer]);
}

template <class T>
void Launch(const StepContext& c, FinishArgs& args, unsigned things) {
  unsigned across = static_cast<unsigned>(c.rows);
  auto shared = static_cast<int>(sizeof(NormShared));
  if (args.product_rows > 0) {
    FewRowsCut cut = CutFewRows(args.product, sizeof(T));
    args.product_tile = cut.tile;
    across = std::max(across, static_cast<unsigned>(args.product.rows));
    shared = std::max(shared, 2 * cut.tile * static_cast<int>(sizeof(float)) +
                                  (cut.tile + kRowGap) * static_cast<int>(sizeof(T)));
  }
  if (!AllowShared(FinishKernel<T>, shared)) return;
  LaunchEarly(c, dim3(across, args.product_rows + things), kThreads, static_cast<size_t>(shared),
              FinishKernel<T>, args, c.rows);
}

}  // namespace

bool FinishesProduct(const StepContext& c, const model::Matrix& matrix) {
  const Matrix w = c.On(matrix);
  return IsFloat(w.type) && c.rows <= kFewRows && w.rows > 0 && w.rows <= kFewWeightRows && w.columns > 0;
}

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
  const unsigned things = (what.queries != nullptr ? 1u : 0u) + (what.latents != nullptr ? 1u : 0u) +
                          (what.keys != nullptr ? 1u : 0u);
  quant::Type type = quant::Type::kF32;
  if (what.product != nullptr) {
    const Matrix m = c.On(*what.product);
    type = m.type;
    args.product = {m.data,      m.slice_bytes, m.rows, m.columns, m.scales,           what.x,
                    c.hp.hidden, what.y,        m.rows, c.rows,    Pairs::Kind::kSame, nullptr,
                    1,           m.slices,      c.early};
    args.product_rows = static_cast<unsigned>((c.rows + 1) / 2);
  }
  if (type == quant::Type::kF16)
    Launch<__half>(c, args, things);
  else if (type == quant::Type::kBF16)
    Launch<BFloat>(c, args, things);
  else
    Launch<float>(c, args, things);
  if (what.keys != nullptr && !args.store_raw)
    LaunchEarly(c, dim3(static_cast<unsigned>(c.rows)), kThreads, 0, StoreRawKernel, args);
  return c.Launched("the norms");
}

}  // namespace glint::cuda
