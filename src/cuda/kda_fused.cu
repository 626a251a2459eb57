// Lever kda.fused: all of KDA but its last product, for up to 8 rows: the rounding of x (unless who wrote it did that), its products with
// six matrices (q, k, v, the first halves of the gates, beta), and the kernel below; two launches more where the gates' second halves are
// not Q8_0.
//
// A block of threads has one head of one sequence and does all that lies between those products and kda.out: the second halves of the
// gates (128 rows of f_b and of g_b, on tensor cores), convolution, unit length, decay, the grid form of the recurrence (docs/design.md)
// and the gated norm. So S goes through one multiprocessor's shared memory, and nothing is passed between blocks.
//
// What may be read before the launches before have ended: weights, and the batch's views and this layer's state. The host or the pass
// before wrote those; between that pass and any kernel of this one lies a copy of the batch to the device or the start of a graph, and
// neither begins before all that was enqueued earlier has ended. Within a pass nobody touches this layer's state but this kernel. So S
// (64 KB a block), the rows of the unfinished block, the past of the convolution and the weights travel while the products before
// still run.
//
// From there on it is latency that counts: phases that wait for one another, the longest of which is the chain of m and o over S (128
// steps). bench/results/2026-11-30-h200-stamps.md has what each took.
#include <cuda_runtime.h>

#include <cmath>
#include <type_traits>

#include "cuda/ahead.cuh"
#include "cuda/context.h"
#include "cuda/hc_fused.h"
#include "cuda/kda.h"
#include "cuda/launch.h"
#include "cuda/math.cuh"
#include "cuda/product_parts.cuh"
#include "cuda/round.cuh"

namespace glint::cuda {
namespace {

constexpr int kMostDim = 128;           // columns of a head: a thread each
constexpr int kThreads = 3 * kMostDim;  // of q, k and v
constexpr int kWarps = kThreads / 32, kColumnWarps = kMostDim / 32;
constexpr int kSideWarps =
    kWarps - kColumnWarps;  // beside the chains over S; and those with rows of the gates
constexpr int kMostTaps = 4;
constexpr int kGridRows = 16;  // of a block of the grid, at most (model::GridBlock)
constexpr int kLowBlocks = 4;  // of 32 columns of a low rank
static_assert(kSideWarps * kTileRows == kMostDim);

// In place of a decoder: f_b and g_b were multiplied by launches before.
struct NoTile {
  struct Regs {};
};

struct KdaFusedArgs {
  const float *u, *beta;              // [rows][3][H * K], [rows][H], before its sigmoid
  const float* inner;                 // [rows][inner_stride]: both low ranks, the second from column `second`
  const uint8_t *f_b, *g_b;           // NoTile: not used
  const float *f_scales, *g_scales;   // [1], or null
  const float *decay, *gate;          // NoTile: the products, [rows][H * K]
  const float *w_q, *w_k, *w_v;       // [H * K][taps]
  const float *a, *dt_bias, *o_norm;  // [H], [H * K], [K]
  const SegmentView* segment;
  float* out;     // [rows][H * K]
  Digits digits;  // of out; or none
  int64_t ring, inner_stride;
  int layer, heads, dim, taps, block, second, f_blocks, g_blocks;
  float lower_bound, l2_eps, q_scale, rms_eps;
};

// Floats of a row in shared memory: rows begin at multiples of 16 bytes, and two neighbours in different banks.
__host__ __device__ inline int Pitch(int dim) { return (dim + 31) / 32 * 32 + 16; }

// What a block keeps in shared memory. Rows are those of the grid's block (kf, delta) or those of the sequence in the pass.
template <int R>
struct Shared {
  float* s;                      // [K key][K value]
  float *kf, *delta;             // [kGridRows] rows
  float* value;                  // q, k, v after SiLU: [3][R] rows
  float *ke, *qe, *step, *gate;  // [R] rows; step: log-decay, later o
  float *l, *p;                  // [kGridRows s][R] weights of row s in a row of the pass
  float *last, *beta;            // [K] E of the block's last row, [R]
  float* norm;                   // of q and k: [2][R]
  float* scales;                 // [R][2 * kLowBlocks]
  int8_t* digits;                // [R][2 * kLowBlocks][2][32]

  __host__ __device__ static int Floats(int dim) {
    return dim * dim + Pitch(dim) * (2 * kGridRows + 7 * R + 1) + 2 * kGridRows * R + 3 * R +
           2 * kLowBlocks * R * 17;
  }
  __device__ Shared(float* free, int dim) {
    const auto take = [&](int floats) {
      float* const taken = free;
      free += floats;
      return taken;
    };
    const int row = Pitch(dim);
    s = take(dim * dim), kf = take(kGridRows * row), delta = take(kGridRows * row);
    value = take(3 * R * row);
    ke = take(R * row), qe = take(R * row), step = take(R * row), gate = take(R * row);
    last = take(row);
    l = take(kGridRows * R), p = take(kGridRows * R);
    digits = reinterpret_cast<int8_t*>(take(2 * kLowBlocks * R * 16));
    scales = take(2 * kLowBlocks * R);
    beta = take(R), norm = take(2 * R);
  }
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

// A warp's 16 rows of a low-rank matrix times all rows of the pass: sum[i][half] of lane 4 g + t is that of row g + 8 half with row
// 4 i + t of the pass.
template <int R>
using LowSums = float[R > 4 ? 2 : 1][2];
template <class D, int R>
__device__ inline void LowRank(const Shared<R>& shared, const typename D::Regs& w, int first_block,
                               int blocks, const float* scales, int rows, int lane, LowSums<R>& sum) {
  static_assert(D::kBlocks == kLowBlocks && D::kOrder == Order::kWide && D::kUnits == 1 && !D::kMinima &&
                D::kTableBytes == 0);
  constexpr int kTiles = R > 4 ? 2 : 1;  // of activations
  const int t = lane % 4;
#pragma unroll
  for (int i = 0; i < kTiles; ++i) sum[i][0] = sum[i][1] = 0;
#pragma unroll
  for (int b = 0; b < D::kBlocks; ++b) {
    if (b >= blocks) break;
    const uint4 code = D::Codes(w, b, t, nullptr);
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      const int of_b = 4 * i + lane / 8, of_c = 4 * i + t;
      DigitLane digits{0, 0};
      float d = 0;
      if (of_b < rows) {
        const auto* const at = reinterpret_cast<const uint32_t*>(
            shared.digits + ((of_b * 2 * kLowBlocks + first_block + b) * 2 + lane / 4 % 2) * 32 + 8 * t);
        digits = {at[0], at[1]};
      }
      if (of_c < rows) d = shared.scales[of_c * 2 * kLowBlocks + first_block + b];
      int product[2];
      UnitSums<D>(code, digits, 0, t, product);
#pragma unroll
      for (int half = 0; half < 2; ++half)
        sum[i][half] = Add<D>(sum[i][half], product[half], D::Scale(w, half, b, 0), d);
    }
  }
  if (scales == nullptr) return;
#pragma unroll
  for (int i = 0; i < kTiles; ++i) sum[i][0] *= scales[0], sum[i][1] *= scales[0];
}

// Dot16 of a head's row in shared memory with itself, by half a warp.
__device__ inline float HeadSquares(const float* v, int dim, int lane) {
  float x[kMostDim / 16], sum = 0;
#pragma unroll
  for (int i = 0; i < kMostDim / 16; ++i) x[i] = 16 * i < dim ? v[16 * i + lane % 16] : 0.0f;
#pragma unroll
  for (int i = 0; i < kMostDim / 16; ++i) sum = fmaf(x[i], x[i], sum);  // zeros change no sum of squares
  return SumLanes16(sum);
}

// m and o of one row over column `s` of S.
__device__ inline void ChainOverS(const float* s, const float* ke, const float* qe, int dim, float& m,
                                  float& o) {
  constexpr int kAhead = 8;
  struct Operands {
    float from[kAhead];
    float4 ke[kAhead / 4], qe[kAhead / 4];
  };
  const auto fetch = [&](Operands& to, int i) {
#pragma unroll
    for (int c = 0; c < kAhead; ++c) to.from[c] = s[(i + c) * dim];
#pragma unroll
    for (int c = 0; c < kAhead / 4; ++c) {
      to.ke[c] = *reinterpret_cast<const float4*>(ke + i + 4 * c);
      to.qe[c] = *reinterpret_cast<const float4*>(qe + i + 4 * c);
    }
  };
  const auto add = [&](const Operands& x) {
#pragma unroll
    for (int c = 0; c < kAhead / 4; ++c) {
      const float* const from = x.from + 4 * c;
      m = fmaf(x.ke[c].x, from[0], m), o = fmaf(x.qe[c].x, from[0], o);
      m = fmaf(x.ke[c].y, from[1], m), o = fmaf(x.qe[c].y, from[1], o);
      m = fmaf(x.ke[c].z, from[2], m), o = fmaf(x.qe[c].z, from[2], o);
      m = fmaf(x.ke[c].w, from[3], m), o = fmaf(x.qe[c].w, from[3], o);
    }
  };
  TakeInOrder<Operands, kAhead>(dim, fetch, add);
}

// L and P of the chunk's rows with the block's: half a warp of the side warps takes the two dot products of a row n with a row s.
template <int R>
__device__ inline void DotWeights(const Shared<R>& shared, int dim, int t0, int count, int side_warp,
                                  int lane) {
  const int pitch = Pitch(dim), pairs = (t0 + count + 1) / 2, half = lane / 16;
  for (int item = side_warp; item < count * pairs; item += kSideWarps) {
    const int n = item / pairs, first = item % pairs * 2, s = first + half, t = t0 + n;
    if (first > t) continue;  // the whole warp
    const float* const kf = shared.kf + s * pitch;
    const float* const ke = shared.ke + n * pitch;
    const float* const qe = shared.qe + n * pitch;
    float l = 0, p = 0;
    if (s <= t) {
#pragma unroll 8
      for (int k = lane % 16; k < dim; k += 16) {
        const float f = kf[k];
        l = fmaf(ke[k], f, l);
        p = fmaf(qe[k], f, p);
      }
    }
    __syncwarp();  // the halves may have parted
    l = SumLanes16(l);
    p = SumLanes16(p);
    if (lane % 16 == 0 && s <= t) {
      shared.l[s * R + n] = l;  // of s == t never used
      shared.p[s * R + n] = p;
    }
  }
}

// After the block's last row: S takes in its rows. The three groups of threads take every third four rows of S.
template <int R>
__device__ inline void Fold(const Shared<R>& shared, float* kept_s, int dim, int block, int group, int j) {
  const int pitch = Pitch(dim);
  float delta[kGridRows];
#pragma unroll
  for (int t = 0; t < kGridRows; ++t) delta[t] = t < block ? shared.delta[t * pitch + j] : 0.0f;
  for (int i = 4 * group; i < dim; i += 12) {
    float x[4];
#pragma unroll
    for (int u = 0; u < 4; ++u) x[u] = shared.s[(i + u) * dim + j];
    constexpr int kAhead = 8;  // rows that are on their way at once
#pragma unroll
    for (int first = 0; first < kGridRows; first += kAhead) {
      float4 kf[kAhead];
#pragma unroll
      for (int t = 0; t < kAhead; ++t)
        kf[t] = *reinterpret_cast<const float4*>(shared.kf + (first + t) * pitch + i);
#pragma unroll
      for (int t = 0; t < kAhead; ++t) {
        if (first + t >= block) break;
        x[0] = fmaf(kf[t].x, delta[first + t], x[0]);
        x[1] = fmaf(kf[t].y, delta[first + t], x[1]);
        x[2] = fmaf(kf[t].z, delta[first + t], x[2]);
        x[3] = fmaf(kf[t].w, delta[first + t], x[3]);
      }
    }
#pragma unroll
    for (int u = 0; u < 4; ++u) {
      const float y = shared.last[i + u] * x[u];
      shared.s[(i + u) * dim + j] = y;
      kept_s[(i + u) * dim + j] = y;
    }
  }
}

// Grid: heads x segments. R: rows of a segment, at most. One row takes 102 registers, with which a block finds room beside one of the
// products before (256 threads of 96 registers), but with more than 104 would not. Held to fewer (80, for two blocks a multiprocessor)
// it spills u on its way from L2, and one trip becomes two.
template <class D, int R>
__global__ void __launch_bounds__(kThreads, 1) KdaFusedKernel(const KdaFusedArgs a) {
  extern __shared__ float4 memory[];
  constexpr bool kInside = !std::is_same_v<D, NoTile>;
  LetNextLaunchBegin();
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int group = thread / kMostDim, j = thread % kMostDim;
  const int head = static_cast<int>(blockIdx.x), dim = a.dim, pitch = Pitch(dim);
  const bool column = j < dim;
  const Shared<R> shared(reinterpret_cast<float*>(memory), dim);
  const SegmentView segment = a.segment[blockIdx.y];
  const LayerState state = segment.layers[a.layer];
  const int rows = segment.rows, side_warp = warp - kColumnWarps;
  const int64_t width = int64_t{a.heads} * dim, at = int64_t{head} * dim, first = segment.first_row;
  float* const kept_s = state.s + at * dim;
  int t0 = static_cast<int>(segment.position % a.block);

  const uint64_t once = ReadOncePolicy();
  for (int i = 4 * thread; i < dim * dim; i += 4 * kThreads) CopyOnceAsync16(shared.s + i, kept_s + i, once);
  for (int i = thread; i < t0 * (dim / 4); i += kThreads) {
    const int t = i / (dim / 4), k = i % (dim / 4) * 4;
    CopyAsync16(shared.kf + t * pitch + k, state.kf + t * width + at + k);
    CopyAsync16(shared.delta + t * pitch + k, state.delta + t * width + at + k);
  }
  CommitCopies();
  const float g_before = column && t0 > 0 ? state.g[(t0 - 1) * width + at + j] : 0.0f;
  // Tap i meets the row kMostTaps - 1 - i before; fewer taps are the last ones.
  float tap[kMostTaps], in[kMostTaps];
  const float* const taps = (group == 0 ? a.w_q : group == 1 ? a.w_k : a.w_v) + (at + j) * a.taps;
  float* const kept_u = state.conv + group * width + at + j;
  const int64_t slot = segment.position % a.ring;
#pragma unroll
  for (int i = 0; i < kMostTaps; ++i) {
    const int back = kMostTaps - 1 - i;
    tap[i] = column && back < a.taps ? taps[a.taps - 1 - back] : 0.0f;
    const bool past = column && back > 0 && back < a.taps && segment.position >= back;
    in[i] = past ? kept_u[(slot >= back ? slot - back : slot - back + a.ring) * 3 * width] : 0.0f;
  }
  const float a_of_head = a.a[head];
  [[maybe_unused]] typename D::Regs f_tile, g_tile;
  [[maybe_unused]] float bias[2] = {};
  [[maybe_unused]] const bool gates = warp * kTileRows < dim;  // this warp has rows of both low-rank matrices
  if constexpr (kInside) {
    const int64_t tile = at / kTileRows;
    if (gates) {
      f_tile = D::template Read<GlobalMemory>(a.f_b + (tile + warp) * D::kTileBytes, lane);
      g_tile = D::template Read<GlobalMemory>(a.g_b + (tile + warp) * D::kTileBytes, lane);
#pragma unroll
      for (int half = 0; half < 2; ++half)
        bias[half] = a.dt_bias[at + warp * kTileRows + lane / 4 + 8 * half];
    }
  }
  // In the end a warp has 32 columns of a row; the same ones of all its rows.
  static_assert(kWarps % 1 == 0 && kWarps % 2 == 0 && kWarps % 3 == 0 && kWarps % 4 == 0 &&
                kMostDim == 4 * 32);
  const int blocks = (dim + 31) / 32, out_column = warp % blocks * 32 + lane;
  const float weight = out_column < dim ? a.o_norm[out_column] : 0.0f;

  WaitForLaunchesBefore();
  float x[R];
#pragma unroll
  for (int n = 0; n < R; ++n)
    x[n] = column && n < rows ? a.u[((first + n) * 3 + group) * width + at + j] : 0.0f;
  constexpr int kLow = 2 * kLowBlocks, kItems = (R * kLow + kWarps - 1) / kWarps;  // blocks of a warp
  [[maybe_unused]] float low[kItems];
  // Block b of the low ranks of row n is item n * kLow + b.
  const auto low_works = [&](int item) {
    const int b = item % kLow;
    return item / kLow < rows && (b < kLowBlocks ? b < a.f_blocks : b - kLowBlocks < a.g_blocks);
  };
  if constexpr (kInside) {
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const int item = i * kWarps + warp, b = item % kLow;
      const int from = (b < kLowBlocks ? 0 : a.second) + b % kLowBlocks * 32 + lane;
      low[i] = low_works(item) ? a.inner[(first + item / kLow) * a.inner_stride + from] : 0.0f;
    }
  }
  const int of_beta = thread - (kThreads - 32);  // a row's, by the last warp, which has the least to do
  float beta = 0;
  if (of_beta >= 0 && of_beta < rows) beta = a.beta[(first + of_beta) * a.heads + head];

    // Convolution and SiLU.
#pragma unroll
  for (int n = 0; n < R; ++n) {
    if (n >= rows || !column) break;
    in[kMostTaps - 1] = x[n];
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kMostTaps; ++i) {
      const int back = kMostTaps - 1 - i;
      if (back < a.taps && segment.position + n >= back) sum = fmaf(tap[i], in[i], sum);
    }
    shared.value[(group * R + n) * pitch + j] = Silu(sum);
    const int64_t to = slot + n;
    kept_u[(to < a.ring ? to : to - a.ring) * 3 * width] = x[n];
#pragma unroll
    for (int i = 0; i + 1 < kMostTaps; ++i) in[i] = in[i + 1];
  }
  if constexpr (kInside) {
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const int item = i * kWarps + warp;
      if (!low_works(item)) continue;  // the whole warp
      const Rounded rounded = RoundBlock(low[i]);
      shared.digits[item * 64 + lane] = rounded.High();
      shared.digits[item * 64 + 32 + lane] = rounded.Low();
      if (lane == 0) shared.scales[item] = rounded.scale;
    }
  }
  if (of_beta >= 0 && of_beta < rows) shared.beta[of_beta] = Sigmoid(beta);
  __syncthreads();  // q, k, v and the low ranks' digits are there

  const auto decay = [&](float r, float b) { return a_of_head * (r + b); };  // before its sigmoid
  if (warp < kSideWarps) {
    if constexpr (kInside) {
      if (gates) {
        LowSums<R> f, g;
        LowRank<D, R>(shared, f_tile, 0, a.f_blocks, a.f_scales, rows, lane, f);
        LowRank<D, R>(shared, g_tile, kLowBlocks, a.g_blocks, a.g_scales, rows, lane, g);
        const int t = lane % 4, k = warp * kTileRows + lane / 4;
        if constexpr (R == 1) {  // the first of four lanes has four sums: a sigmoid each
          const bool upper = t % 2 != 0, gate = t >= 2;
          const float sums[4] = {f[0][0], f[0][1], g[0][0], g[0][1]};
          float own = 0;
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const float sum = __shfl_sync(0xffffffffu, sums[i], lane - t);
            if (i == t) own = sum;
          }
          const float s = Sigmoid(gate ? own : decay(own, upper ? bias[1] : bias[0]));
          (gate ? shared.gate : shared.step)[upper ? k + 8 : k] = gate ? s : a.lower_bound * s;
        } else {
#pragma unroll
          for (int i = 0; i < (R > 4 ? 2 : 1); ++i) {
            const int row = (4 * i + t) * pitch + k;
            if (4 * i + t >= rows) continue;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
              shared.step[row + 8 * half] = a.lower_bound * Sigmoid(decay(f[i][half], bias[half]));
              shared.gate[row + 8 * half] = Sigmoid(g[i][half]);
            }
          }
        }
      }
    } else {
      for (int i = thread; i < rows * dim; i += kSideWarps * 32) {
        const int n = i / dim, k = i % dim;
        const int64_t from = (first + n) * width + at + k;
        shared.step[n * pitch + k] = a.lower_bound * Sigmoid(decay(a.decay[from], a.dt_bias[at + k]));
        shared.gate[n * pitch + k] = Sigmoid(a.gate[from]);
      }
    }
  } else {  // lengths of q and k: half a warp each
    for (int n = 0; n < R; n += kColumnWarps) {
      const int row = n + side_warp - kColumnWarps, part = lane / 16;
      if (row >= rows) break;  // the whole warp
      const float sum = HeadSquares(shared.value + (part * R + row) * pitch, dim, lane);
      if (lane % 16 == 0) shared.norm[part * R + row] = sqrtf(sum + a.l2_eps);
    }
  }
  __syncthreads();  // log-decays, gates and lengths are there

  // The rows that lie in one block of the grid go over S together.
  for (int done = 0; done < rows;) {
    const int left = rows - done, room = a.block - t0, count = left < room ? left : room;
    const bool keep = count < room;  // the block stays unfinished: the state keeps its rows
    if (column) {
      float g = g_before;
#pragma unroll
      for (int n = 0; n < R; ++n) {
        if (n >= count) break;
        const int t = t0 + n, row = (done + n) * pitch + j;
        g = t == 0 ? shared.step[row] : g + shared.step[row];
        // A group of threads each for k E, q E and k F.
        const int of = group == 1 ? 0 : 1;
        float v = shared.value[of * R * pitch + row] / shared.norm[of * R + done + n];
        if (group == 1) v *= a.q_scale;
        v *= Exp(group == 2 ? -g : g);
        (group == 0   ? shared.ke + n * pitch
         : group == 1 ? shared.qe + n * pitch
                      : shared.kf + t * pitch)[j] = v;
        if (group == 0 && keep) state.g[t * width + at + j] = g;
        if (group == 2 && keep) state.kf[t * width + at + j] = v;
        if (group == 1 && t == a.block - 1) shared.last[j] = Exp(g);
      }
    }
    if (done == 0) WaitForCopies<0>();
    __syncthreads();  // kE, qE, kF and S are there

    float m[R] = {}, o[R] = {};
    if (R == 1 && group == 0 && column) {
      ChainOverS(shared.s + j, shared.ke, shared.qe, dim, m[0], o[0]);
    } else if (group == 0 && column) {
      const float* const s = shared.s + j;
#pragma unroll(R == 2 ? 4 : 1)
      for (int i = 0; i < dim; i += 4) {
        float from[4];
#pragma unroll
        for (int c = 0; c < 4; ++c) from[c] = s[(i + c) * dim];
#pragma unroll
        for (int n = 0; n < R; ++n) {
          const float4 ke = *reinterpret_cast<const float4*>(shared.ke + n * pitch + i);
          const float4 qe = *reinterpret_cast<const float4*>(shared.qe + n * pitch + i);
          m[n] = fmaf(ke.x, from[0], m[n]), o[n] = fmaf(qe.x, from[0], o[n]);
          m[n] = fmaf(ke.y, from[1], m[n]), o[n] = fmaf(qe.y, from[1], o[n]);
          m[n] = fmaf(ke.z, from[2], m[n]), o[n] = fmaf(qe.z, from[2], o[n]);
          m[n] = fmaf(ke.w, from[3], m[n]), o[n] = fmaf(qe.w, from[3], o[n]);
        }
      }
    }
    if (side_warp >= 0) DotWeights<R>(shared, dim, t0, count, side_warp, lane);
    __syncthreads();  // L and P are there

    if (group == 0 && column) {
      float l[R], p[R];
#pragma unroll 4
      for (int t = 0; t < t0; ++t) {
        LoadRow(shared.l + t * R, l);
        LoadRow(shared.p + t * R, p);
        const float d = shared.delta[t * pitch + j];
#pragma unroll
        for (int n = 0; n < R; ++n) m[n] = fmaf(l[n], d, m[n]), o[n] = fmaf(p[n], d, o[n]);
      }
#pragma unroll
      for (int n = 0; n < R; ++n) {
        if (n >= count) break;
        const int t = t0 + n;
        LoadRow(shared.l + t * R, l);
        LoadRow(shared.p + t * R, p);
        const float d = shared.beta[done + n] * (shared.value[(2 * R + done + n) * pitch + j] - m[n]);
        shared.delta[t * pitch + j] = d;
        if (keep) state.delta[t * width + at + j] = d;
        o[n] = fmaf(p[n], d, o[n]);
        shared.step[(done + n) * pitch + j] = o[n];
#pragma unroll
        for (int later = n + 1; later < R; ++later)
          m[later] = fmaf(l[later], d, m[later]), o[later] = fmaf(p[later], d, o[later]);
      }
    }
    __syncthreads();  // o and the deltas are there
    if (!keep) {
      if (column) Fold<R>(shared, kept_s, dim, a.block, group, j);
      __syncthreads();  // nobody reads the block's rows any more
    }
    done += count;
    t0 = 0;
  }

  for (int item = warp; item < rows * blocks; item += kWarps) {
    const int n = item / blocks;
    const float* const mixed = shared.step + n * pitch;
    const float r = 1.0f / sqrtf(HeadSquares(mixed, dim, lane) / static_cast<float>(dim) + a.rms_eps);
    if (out_column >= dim) continue;  // digits are kept of whole blocks only
    const int64_t row = first + n;
    const float out = ((mixed[out_column] * r) * weight) * shared.gate[n * pitch + out_column];
    a.out[row * width + at + out_column] = out;
    if (a.digits.digits != nullptr) StoreRounded(a.digits, row, (at + out_column) / 32, lane, out);
  }
}

template <class D, int R>
Status Launch(const StepContext& c, const KdaFusedArgs& args) {
  const int shared = Shared<R>::Floats(args.dim) * static_cast<int>(sizeof(float));
  const auto kernel = KdaFusedKernel<D, R>;
  if (AllowShared(kernel, shared)) {
    const dim3 grid(static_cast<unsigned>(args.heads), static_cast<unsigned>(c.segments));
    LaunchEarly(c.early, grid, kThreads, static_cast<size_t>(shared), c.stream, kernel, args);
  }
  return c.Launched();
}

int64_t MostRows(const StepContext& c) { return c.rows - c.segments + 1; }  // of a segment; each has one

// What LaunchFor's choice takes.
int64_t SharedFloats(const StepContext& c, int dim) {
  const int64_t most = MostRows(c);
  if (most == 1) return Shared<1>::Floats(dim);
  if (most == 2) return Shared<2>::Floats(dim);
  return most <= 4 ? Shared<4>::Floats(dim) : Shared<8>::Floats(dim);
}

template <class D>
Status LaunchFor(const StepContext& c, const KdaFusedArgs& args) {
  const int64_t most = MostRows(c);
  if (most == 1) return Launch<D, 1>(c, args);
  if (most == 2) return Launch<D, 2>(c, args);
  return most <= 4 ? Launch<D, 4>(c, args) : Launch<D, 8>(c, args);
}

// Shapes that the kernel is not made for: the canonical stages, one after another.
Status StageByStage(const StepContext& c, float* u, float* out) {
  const int64_t width = c.hp.kda_width();
  float* const qkv = c.scratch.Take<float>(c.rows * 3 * width);
  float* const decay = c.scratch.Take<float>(c.rows * width);
  float* const gate = c.scratch.Take<float>(c.rows * width);
  float* const beta = c.scratch.Take<float>(c.rows * c.hp.kda_heads);
  float* const mixed = c.scratch.Take<float>(c.rows * width);
  if (mixed == nullptr) return NoScratch(c);
  if (Status s = KdaQkvOf(c, u); !s.ok()) return s;
  if (Status s = KdaConvOf(c, u, qkv); !s.ok()) return s;
  if (Status s = KdaGatesOf(c, decay, beta, gate); !s.ok()) return s;
  if (Status s = KdaRecurOf(c, qkv, decay, beta, mixed); !s.ok()) return s;
  return KdaNormOf(c, mixed, gate, out);
}

}  // namespace

Status KdaFused(const StepContext& c) {
  const auto& w = c.layer->kda;
  const int64_t dim = c.hp.kda_head_dim, heads = c.hp.kda_heads, width = c.hp.kda_width(), d = c.hp.hidden;
  float* const u = c.scratch.Take<float>(c.rows * 3 * width);
  float* const out = c.Floats(plan::Slot::kMixedNormed);
  if (u == nullptr) return NoScratch(c);
  // A pass this short writes no slot of the convolution's ring that it reads.
  const bool fits = dim <= kMostDim && dim % kTileRows == 0 && c.hp.conv_kernel <= kMostTaps &&
                    c.hp.block <= kGridRows && c.rows <= kMostFusedRows &&
                    c.rows + c.hp.conv_kernel - 1 <= c.conv_ring &&
                    SharedFloats(c, static_cast<int>(dim)) * int64_t{sizeof(float)} <= c.device.shared_bytes;
  if (!fits) return StageByStage(c, u, out);

  KdaFusedArgs args{};
  const int64_t second = (w.f_a.rows + 31) / 32 * 32, stride = second + w.g_a.rows;  // as kda.gates has them
  float* const inner = c.scratch.Take<float>(c.rows * stride);
  float* const beta = c.scratch.Take<float>(c.rows * heads);
  if (beta == nullptr) return NoScratch(c);
  Operand x(c, c.Floats(plan::Slot::kX), d, c.rows, d);
  if (Status s = x.TimesAll({{&w.f_a, inner, stride},
                             {&w.g_a, inner + second, stride},
                             {&w.beta, beta, heads},
                             {&w.q, u, 3 * width},
                             {&w.k, u + width, 3 * width},
                             {&w.v, u + 2 * width, 3 * width}});
      !s.ok())
    return s;
  const Matrix f_b = c.On(w.f_b), g_b = c.On(w.g_b);
  const auto inside = [&](const Matrix& m) {
    return m.type == Q8_0Tile::kType && m.columns <= kLowBlocks * 32;
  };
  const bool low_ranks_inside = c.how.tensor_cores && inside(f_b) && inside(g_b);
  if (!low_ranks_inside) {
    float* const decay = c.scratch.Take<float>(c.rows * width);
    float* const gate = c.scratch.Take<float>(c.rows * width);
    if (gate == nullptr) return NoScratch(c);
    Operand between(c, inner, stride, c.rows, stride);
    if (Status s = between.TimesAll({{&w.f_b, decay, width}, {&w.g_b, gate, width, second}}); !s.ok())
      return s;
    args.decay = decay, args.gate = gate;
  }
  args.u = u, args.beta = beta, args.inner = inner;
  args.f_b = f_b.data, args.g_b = g_b.data, args.f_scales = f_b.scales, args.g_scales = g_b.scales;
  args.f_blocks = static_cast<int>(f_b.columns / 32), args.g_blocks = static_cast<int>(g_b.columns / 32);
  args.w_q = c.On(w.conv_q), args.w_k = c.On(w.conv_k), args.w_v = c.On(w.conv_v);
  args.a = c.On(w.a), args.dt_bias = c.On(w.dt_bias), args.o_norm = c.On(w.o_norm);
  args.segment = c.batch.segments;
  args.out = out;
  // Heads of whole blocks, and no blocks behind the last head that would have to be zeros.
  if (dim % 32 == 0 && width % 256 == 0) args.digits = c.MakeDigits(plan::Slot::kMixedNormed);
  args.ring = c.conv_ring, args.inner_stride = stride, args.second = static_cast<int>(second);
  args.layer = c.layer_index(), args.heads = static_cast<int>(heads), args.dim = static_cast<int>(dim);
  args.taps = static_cast<int>(c.hp.conv_kernel), args.block = static_cast<int>(c.hp.block);
  args.lower_bound = c.hp.gate_lower_bound, args.l2_eps = c.hp.l2_eps, args.rms_eps = c.hp.rms_eps;
  args.q_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim)));
  return low_ranks_inside ? LaunchFor<Q8_0Tile>(c, args) : LaunchFor<NoTile>(c, args);
}

}  // namespace glint::cuda
