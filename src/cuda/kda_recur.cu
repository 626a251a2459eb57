// The gated delta rule in its grid form (docs/design.md, "The grid form of kda.recur"; spec/model.md 5.3, 5.4).
//
// A block of threads a head of a segment. Rows of the pass that lie in one block of the grid go over S together: S is read once
// for them, each sum in the order of the definition (over i for each row, then over the rows s of the block). What a row owes to
// rows before it is added as soon as such a row's delta is known, which is the same order seen from the other side.
#include <cuda_pipeline.h>
#include <cuda_runtime.h>

#include <string>

#include "cuda/context.h"
#include "cuda/math.cuh"
#include "cuda/status.h"

namespace glint::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kColumns =
    kThreads / 2;  // of S at once: a thread of the first half sums m of a column, of the second half o
constexpr int kRows = 16;    // of a block of the grid, at most (model::GridBlock)
constexpr int kFewRows = 8;  // a step of drafts or of several sequences

struct KdaRecurArgs {
  const float *qkv, *decay, *beta;  // [rows][3][H][K], [rows][H][K], [rows][H]
  float* mixed;                     // [rows][H][K]
  const SegmentView* segment;
  int layer, heads, dim, block;
};

// Floats of a row in shared memory: rows begin at multiples of 16 bytes, and two neighbours in different banks.
__host__ __device__ inline int Pitch(int dim) { return (dim + 31) / 32 * 32 + 16; }
__host__ __device__ inline int64_t FloatsOfS(int64_t dim) { return (dim * dim + 3) / 4 * 4; }
inline int64_t SharedBytes(int dim, bool with_s) {
  const int64_t rows = 4 * kRows * int64_t{Pitch(dim)}, weights = 2 * kRows * kRows;
  return 4 * ((with_s ? FloatsOfS(dim) : 0) + rows + weights + Pitch(dim) + kRows);
}

// What the phases of a block of threads share. Row t of the grid's block is row t of kf and delta; row n of those that the pass
// adds to it is row n of ke and qe, and row t0 + n of the block.
struct Head {
  float* s;                              // [K key][K value], in shared or in global memory
  float *ke, *qe, *kf, *delta;           // [kRows] rows, `pitch` apart
  float *l, *p;                          // [kRows s][kRows n] weights of row s in row n
  float* last;                           // [K] E of the block's last row
  float* beta;                           // [kRows n]
  float *kept_kf, *kept_delta, *kept_g;  // of the state: row 0 of this head, rows `width` apart
  const float *q, *k, *v, *decay;        // of the first of the rows; rows 3 * width (decay: width) apart
  float* out;                            // rows `width` apart
  int dim, pitch, block, t0, count;
  int64_t width;
  bool keep;  // the block stays unfinished: the state keeps its rows
};

template <int R>
__device__ inline void LoadRow(const float* from, float (&to)[R]) {
  if constexpr (R % 4 == 0) {
#pragma unroll
    for (int n = 0; n < R; n += 4) {
      const float4 four = *reinterpret_cast<const float4*>(from + n);
      to[n] = four.x, to[n + 1] = four.y, to[n + 2] = four.z, to[n + 3] = four.w;
    }
  } else {
#pragma unroll
    for (int n = 0; n < R; ++n) to[n] = from[n];
  }
}

// kE, qE, kF of the rows (at most R), and their G and kF for the state. G_(t0 - 1) comes from the state. The halves of the threads
// take every other row.
template <int R>
__device__ void Decay(const Head& h) {
  const int half = static_cast<int>(threadIdx.x) / kColumns;
  for (int i = static_cast<int>(threadIdx.x) % kColumns; i < h.dim; i += kColumns) {
    constexpr int kPairs = (R + 1) / 2;
    float step[2 * kPairs], k[kPairs], q[kPairs];
#pragma unroll
    for (int n = 0; n < 2 * kPairs; ++n) step[n] = n < h.count ? h.decay[n * h.width + i] : 0.0f;
#pragma unroll
    for (int m = 0; m < kPairs; ++m) {
      const int n = 2 * m + half;
      k[m] = n < h.count ? h.k[3 * n * h.width + i] : 0.0f;
      q[m] = n < h.count ? h.q[3 * n * h.width + i] : 0.0f;
    }
    float g = h.t0 > 0 ? h.kept_g[(h.t0 - 1) * h.width + i] : 0.0f;
#pragma unroll
    for (int m = 0; m < kPairs; ++m) {
      if (2 * m >= h.count) break;
      const float even = h.t0 + 2 * m == 0 ? step[0] : g + step[2 * m];
      const float odd = even + step[2 * m + 1];
      g = odd;
      const int n = 2 * m + half;
      if (n >= h.count) break;
      const float mine = half == 0 ? even : odd;
      const float e = Exp(mine), kf = k[m] * Exp(-mine);
      const int t = h.t0 + n;
      h.ke[n * h.pitch + i] = k[m] * e;
      h.qe[n * h.pitch + i] = q[m] * e;
      h.kf[t * h.pitch + i] = kf;
      if (t == h.block - 1) h.last[i] = e;
      if (h.keep) {
        h.kept_g[t * h.width + i] = mine;
        h.kept_kf[t * h.width + i] = kf;
      }
    }
  }
}

// L and P: half a warp takes the two dot products of a row n with a row s. A warp's pair of s moves on with n, so that all warps
// have equally many with s <= t.
__device__ void Weights(const Head& h) {
  const int warp = static_cast<int>(threadIdx.x) / 32, half = static_cast<int>(threadIdx.x) / 16 % 2;
  const int lane = static_cast<int>(threadIdx.x) % 16, pairs = (h.block + 1) / 2;
  for (int item = warp; item < h.count * pairs; item += kThreads / 32) {
    const int n = item / pairs, first = (item + n) % pairs * 2, s = first + half, t = h.t0 + n;
    if (first > t) continue;  // the whole warp
    const float* const kf = h.kf + s * h.pitch;
    const float* const ke = h.ke + n * h.pitch;
    const float* const qe = h.qe + n * h.pitch;
    float l = 0, p = 0;
    if (s <= t) {
#pragma unroll 8
      for (int k = lane; k < h.dim; k += 16) {
        const float f = kf[k];
        l = fmaf(ke[k], f, l);
        p = fmaf(qe[k], f, p);
      }
    }
    __syncwarp();  // the halves may have parted
    l = SumLanes16(l);
    p = SumLanes16(p);
    if (lane == 0 && s <= t) {
      h.l[s * kRows + n] = l;  // of s == t never used
      h.p[s * kRows + n] = p;
    }
  }
}

// m, delta and o of the rows, R at least as many as there are; what the others compute is not used.
template <int R>
__device__ void Rows(const Head& h) {
  const int half = static_cast<int>(threadIdx.x) / kColumns;
  const float* const weights = half == 0 ? h.ke : h.qe;
  for (int first = 0; first < h.dim; first += kColumns) {
    const int j = first + static_cast<int>(threadIdx.x) % kColumns;
    const bool active = j < h.dim;
    float sum[R], v[R];
#pragma unroll
    for (int n = 0; n < R; ++n) {
      sum[n] = 0;
      v[n] = half == 0 && active && n < h.count ? h.v[3 * n * h.width + j] : 0.0f;
    }
    if (active) {
      const float* const s = h.s + j;
      int i = 0;
#pragma unroll(R == 1 ? 8 : 1)
      for (; i + 4 <= h.dim; i += 4) {
        float x[4];
#pragma unroll
        for (int u = 0; u < 4; ++u) x[u] = s[int64_t{i + u} * h.dim];
#pragma unroll
        for (int n = 0; n < R; ++n) {
          const float4 w = *reinterpret_cast<const float4*>(weights + n * h.pitch + i);
          sum[n] = fmaf(w.x, x[0], sum[n]);
          sum[n] = fmaf(w.y, x[1], sum[n]);
          sum[n] = fmaf(w.z, x[2], sum[n]);
          sum[n] = fmaf(w.w, x[3], sum[n]);
        }
      }
      for (; i < h.dim; ++i) {
        const float x = s[int64_t{i} * h.dim];
#pragma unroll
        for (int n = 0; n < R; ++n) sum[n] = fmaf(weights[n * h.pitch + i], x, sum[n]);
      }
      float w[R];
      if (half == 0) {
        for (int t = 0; t < h.t0; ++t) {
          LoadRow(h.l + t * kRows, w);
          const float d = h.delta[t * h.pitch + j];
#pragma unroll
          for (int n = 0; n < R; ++n) sum[n] = fmaf(w[n], d, sum[n]);
        }
#pragma unroll
        for (int n = 0; n < R; ++n) {
          if (n >= h.count) break;
          const int t = h.t0 + n;
          const float d = h.beta[n] * (v[n] - sum[n]);
          h.delta[t * h.pitch + j] = d;
          if (h.keep) h.kept_delta[t * h.width + j] = d;
          LoadRow(h.l + t * kRows, w);
#pragma unroll
          for (int later = n + 1; later < R; ++later) sum[later] = fmaf(w[later], d, sum[later]);
        }
      }
    }
    __syncthreads();  // all deltas of these columns are there
    if (active && half == 1) {
      float w[R];
      for (int t = 0; t < h.t0; ++t) {
        LoadRow(h.p + t * kRows, w);
        const float d = h.delta[t * h.pitch + j];
#pragma unroll
        for (int n = 0; n < R; ++n) sum[n] = fmaf(w[n], d, sum[n]);
      }
#pragma unroll
      for (int from = 0; from < R; ++from) {
        if (from >= h.count) break;
        LoadRow(h.p + (h.t0 + from) * kRows, w);
        const float d = h.delta[(h.t0 + from) * h.pitch + j];
#pragma unroll
        for (int n = from; n < R; ++n) sum[n] = fmaf(w[n], d, sum[n]);
      }
#pragma unroll
      for (int n = 0; n < R; ++n) {
        if (n < h.count) h.out[n * h.width + j] = sum[n];
      }
    }
  }
}

// After the block's last row: S takes in its rows. The halves of the threads take every other four rows of S.
__device__ void Fold(const Head& h) {
  const int half = static_cast<int>(threadIdx.x) / kColumns;
  for (int j = static_cast<int>(threadIdx.x) % kColumns; j < h.dim; j += kColumns) {
    float delta[kRows];
#pragma unroll
    for (int t = 0; t < kRows; ++t) delta[t] = t < h.block ? h.delta[t * h.pitch + j] : 0.0f;
    for (int i = 4 * half; i < h.dim; i += 8) {  // the last four may reach into the space between rows
      float x[4];
#pragma unroll
      for (int u = 0; u < 4; ++u) x[u] = i + u < h.dim ? h.s[int64_t{i + u} * h.dim + j] : 0.0f;
#pragma unroll
      for (int t = 0; t < kRows; ++t) {
        if (t >= h.block) break;
        const float4 kf = *reinterpret_cast<const float4*>(h.kf + t * h.pitch + i);
        x[0] = fmaf(kf.x, delta[t], x[0]);
        x[1] = fmaf(kf.y, delta[t], x[1]);
        x[2] = fmaf(kf.z, delta[t], x[2]);
        x[3] = fmaf(kf.w, delta[t], x[3]);
      }
#pragma unroll
      for (int u = 0; u < 4; ++u) {
        if (i + u < h.dim) h.s[int64_t{i + u} * h.dim + j] = h.last[i + u] * x[u];
      }
    }
  }
}

// Grid: heads x segments. kMost: rows of the pass in one block of the grid, at most. kSharedS: S lies in shared memory meanwhile; it
// is on its way while kE, qE, L and P are computed. With few rows two blocks share a multiprocessor: sequences decoded together.
template <int kMost, bool kSharedS>
__global__ void __launch_bounds__(kThreads, kMost < kRows ? 2 : 1) KdaRecurKernel(const KdaRecurArgs a) {
  extern __shared__ float4 memory[];
  const int thread = static_cast<int>(threadIdx.x), head = static_cast<int>(blockIdx.x), dim = a.dim,
            pitch = Pitch(dim);
  const SegmentView segment = a.segment[blockIdx.y];
  const LayerState state = segment.layers[a.layer];
  const int64_t width = int64_t{a.heads} * dim, at = int64_t{head} * dim, squared = int64_t{dim} * dim;
  float* const global_s = state.s + head * squared;

  float* free = reinterpret_cast<float*>(memory);
  const auto take = [&](int64_t floats) {
    float* const taken = free;
    free += floats;
    return taken;
  };
  Head h{};
  h.s = kSharedS ? take(FloatsOfS(dim)) : global_s;
  h.ke = take(kRows * pitch), h.qe = take(kRows * pitch), h.kf = take(kRows * pitch),
  h.delta = take(kRows * pitch);
  h.l = take(kRows * kRows), h.p = take(kRows * kRows);
  h.last = take(pitch), h.beta = take(kRows);
  h.dim = dim, h.pitch = pitch, h.block = a.block, h.width = width;
  h.kept_kf = state.kf + at, h.kept_delta = state.delta + at, h.kept_g = state.g + at;
  h.t0 = static_cast<int>(segment.position % a.block);

  if constexpr (kSharedS) {
    if (squared % 4 == 0) {  // every head's S at a multiple of 16 bytes
      for (int64_t i = 4 * thread; i < squared; i += 4 * kThreads)
        __pipeline_memcpy_async(h.s + i, global_s + i, 16);
    } else {
      for (int64_t i = thread; i < squared; i += kThreads) __pipeline_memcpy_async(h.s + i, global_s + i, 4);
    }
    __pipeline_commit();
  }
  // The block's rows of before.
  for (int t = 0; t < h.t0; ++t) {
    for (int i = thread; i < dim; i += kThreads) {
      h.kf[t * pitch + i] = h.kept_kf[t * width + i];
      h.delta[t * pitch + i] = h.kept_delta[t * width + i];
    }
  }

  bool folded = false;
  for (int r = 0; r < segment.rows; r += h.count, h.t0 = 0) {
    const int left = segment.rows - r, room = a.block - h.t0;
    h.count = left < room ? left : room;
    h.keep = h.count < room;
    const int64_t row = int64_t{segment.first_row} + r;
    h.q = a.qkv + row * 3 * width + at, h.k = h.q + width, h.v = h.k + width;
    h.decay = a.decay + row * width + at;
    h.out = a.mixed + row * width + at;
    if (thread < h.count) h.beta[thread] = a.beta[(row + thread) * a.heads + head];
    Decay<kMost>(h);
    __syncthreads();  // kE, qE, kF and beta are there
    Weights(h);
    if constexpr (kSharedS) __pipeline_wait_prior(0);  // this thread's part of S
    __syncthreads();                                   // L, P and S are there
    if (kMost == 1 || h.count == 1) {
      Rows<1>(h);
    } else if (kMost == kFewRows || h.count <= kFewRows) {
      Rows<kMost == 1 ? 1 : kFewRows>(h);
    } else {
      Rows<kMost>(h);
    }
    if (!h.keep) {  // behind the barrier of the last columns, before which S was read
      Fold(h);
      folded = true;
    }
    __syncthreads();  // S is folded and nobody reads the rows any more
  }
  if (kSharedS && folded) {
    for (int64_t i = thread; i < squared; i += kThreads) global_s[i] = h.s[i];
  }
}

template <int kMost, bool kSharedS>
Status Launch(const StepContext& c, const KdaRecurArgs& args) {
  const int64_t shared = SharedBytes(args.dim, kSharedS);
  if (Status s =
          Check(cudaFuncSetAttribute(KdaRecurKernel<kMost, kSharedS>,
                                     cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)),
                "kda.recur: asking for shared memory");
      !s.ok())
    return s;
  const dim3 grid(static_cast<unsigned>(args.heads), static_cast<unsigned>(c.segments));
  KdaRecurKernel<kMost, kSharedS><<<grid, kThreads, static_cast<size_t>(shared), c.stream>>>(args);
  return c.Launched();
}

template <bool kSharedS>
Status LaunchFor(const StepContext& c, const KdaRecurArgs& args) {
  if (c.rows == 1) return Launch<1, kSharedS>(c, args);
  return c.rows <= kFewRows ? Launch<kFewRows, kSharedS>(c, args) : Launch<kRows, kSharedS>(c, args);
}

}  // namespace

Status KdaRecur(const StepContext& c) {
  constexpr int64_t kWidest = 4096;  // far beyond what fits
  int most = 0;
  if (Status s =
          Check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, c.device.ordinal),
                "kda.recur: asking how much shared memory there is");
      !s.ok())
    return s;
  const int64_t wide = c.hp.kda_head_dim;
  const int dim = static_cast<int>(wide < kWidest ? wide : kWidest);
  if (SharedBytes(dim, false) > most) {
    return {Code::kUnsupported, "kda.recur: heads " + std::to_string(wide) + " wide want " +
                                    std::to_string(SharedBytes(dim, false)) +
                                    " bytes of shared memory, this GPU has " + std::to_string(most)};
  }
  KdaRecurArgs args{};
  args.qkv = c.Floats(plan::Slot::kQkv), args.decay = c.Floats(plan::Slot::kDecay),
  args.beta = c.Floats(plan::Slot::kBeta);
  args.mixed = c.Floats(plan::Slot::kMixed);
  args.segment = c.batch.segments;
  args.layer = c.layer_index();
  args.heads = static_cast<int>(c.hp.kda_heads), args.dim = dim, args.block = static_cast<int>(c.hp.block);
  return SharedBytes(dim, true) <= most ? LaunchFor<true>(c, args) : LaunchFor<false>(c, args);
}

}  // namespace glint::cuda
