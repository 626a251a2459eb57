// The gated delta rule in its grid form (docs/design.md, "The grid form of kda.recur"; spec/model.md 5.3, 5.4), in three launches.
//
// What does not depend on S comes first, for all blocks of the grid at once: G, kE, qE, kF, L and P. Then blocks of threads go over
// the grid's blocks in order, S in shared memory. Columns of S do not meet, so that a head is shared out among several. Each sum keeps the
// order of the definition: over i for each row, then over the rows s of the block; what a row owes to rows before it is added as soon
// as such a row's delta is known, which is the same order seen from the other side. Last, kF and G of a block that stays unfinished
// take their place in the state, when nobody reads the rows there any more.
#include <cuda_pipeline.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <string>

#include "cuda/async.cuh"
#include "cuda/context.h"
#include "cuda/kda.h"
#include "cuda/launch.h"
#include "cuda/math.cuh"
#include "cuda/status.h"

namespace glint::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kRows = 16;     // of a block of the grid, at most (model::GridBlock)
constexpr int kColumns = 64;  // of S that a block of threads has, at most
constexpr int kGroups =
    kThreads / kColumns;  // m of the first rows, m of the others, o of the first, o of the others
constexpr int kGroupRows = kRows / 2;
constexpr int kDecayColumns = kThreads / 2;
static_assert(kGroups == 4);

struct KdaRecurArgs {
  const float *qkv, *decay, *beta;  // [rows][3][H][K], [rows][H][K], [rows][H]
  float* mixed;                     // [rows][H][K]
  const SegmentView* segment;
  float *ke, *qe, *kf, *g;  // [rows][H][K]
  float *l, *p;             // [rows][H][kRows]: of the row with row s of its block
  int layer, heads, dim, block;
  int columns, parts;  // of S: of a block of threads; blocks of threads a head
  int stages;          // of the ring that rows travel through: 1 or 2
};

// Rows of a segment that lie in one block of the grid: `count` (none: below 1) from row `first` of the batch on, which is row t0 there.
struct Chunk {
  int64_t first;
  int t0, count;
};
__device__ inline Chunk ChunkAt(const SegmentView& segment, int index, int block) {
  const int skipped = static_cast<int>(segment.position % block);
  const int begin = index == 0 ? 0 : index * block - skipped;
  const int end = min((index + 1) * block - skipped, segment.rows);
  return {int64_t{segment.first_row} + begin, index == 0 ? skipped : 0, end - begin};
}

// Floats of a row in shared memory where half warps read different rows: two neighbours lie in different banks.
__host__ __device__ inline int Pitch(int dim) { return (dim + 31) / 32 * 32 + 16; }

// Grid: heads x chunks x segments.
__global__ void __launch_bounds__(kThreads) KdaPrepareKernel(const KdaRecurArgs a) {
  extern __shared__ float4 memory[];
  LetNextLaunchBegin();
  WaitForLaunchesBefore();
  const int thread = static_cast<int>(threadIdx.x), half = thread / kDecayColumns, dim = a.dim,
            pitch = Pitch(dim), head = static_cast<int>(blockIdx.x);
  const SegmentView segment = a.segment[blockIdx.z];
  const LayerState& state = segment.layers[a.layer];
  const Chunk chunk = ChunkAt(segment, static_cast<int>(blockIdx.y), a.block);
  const int t0 = chunk.t0, count = chunk.count;
  if (count < 1) return;
  const int64_t width = int64_t{a.heads} * dim, at = int64_t{head} * dim;
  float* const ke = reinterpret_cast<float*>(memory);  // [kRows] rows each
  float* const qe = ke + kRows * pitch;
  float* const kf = qe + kRows * pitch;
  for (int t = 0; t < t0; ++t)
    for (int i = thread; i < dim; i += kThreads) kf[t * pitch + i] = state.kf[t * width + at + i];

  // The halves of the threads take every other row.
  for (int i = thread % kDecayColumns; i < dim; i += kDecayColumns) {
    float step[kRows], k[kRows / 2], q[kRows / 2];
#pragma unroll
    for (int n = 0; n < kRows; ++n) step[n] = n < count ? a.decay[(chunk.first + n) * width + at + i] : 0.0f;
#pragma unroll
    for (int m = 0; m < kRows / 2; ++m) {
      const int n = 2 * m + half;
      const float* const of_row = a.qkv + (chunk.first + n) * 3 * width + at + i;
      q[m] = n < count ? of_row[0] : 0.0f;
      k[m] = n < count ? of_row[width] : 0.0f;
    }
    float g = t0 > 0 ? state.g[(t0 - 1) * width + at + i] : 0.0f;
#pragma unroll
    for (int m = 0; m < kRows / 2; ++m) {
      const float even = t0 + 2 * m == 0 ? step[0] : g + step[2 * m];
      const float odd = even + step[2 * m + 1];
      g = odd;
      const int n = 2 * m + half;
      if (n >= count) break;
      const float mine = half == 0 ? even : odd, e = Exp(mine);
      const float of_ke = k[m] * e, of_qe = q[m] * e, of_kf = k[m] * Exp(-mine);
      ke[n * pitch + i] = of_ke, qe[n * pitch + i] = of_qe, kf[(t0 + n) * pitch + i] = of_kf;
      const int64_t out = (chunk.first + n) * width + at + i;
      a.ke[out] = of_ke, a.qe[out] = of_qe, a.kf[out] = of_kf, a.g[out] = mine;
    }
  }
  __syncthreads();  // kE, qE and kF are there

  // Half a warp takes the two dot products of a row n with a row s. A warp's pair of s moves on with n, so that all warps have
  // equally many with s <= t.
  const int warp = thread / 32, lane = thread % 16, pairs = (t0 + count + 1) / 2;
  for (int item = warp; item < count * pairs; item += kThreads / 32) {
    const int n = item / pairs, first = (item + n) % pairs * 2, s = first + thread / 16 % 2, t = t0 + n;
    if (first > t) continue;  // the whole warp
    float l = 0, p = 0;
    if (s <= t) {
#pragma unroll 8
      for (int i = lane; i < dim; i += 16) {
        const float f = kf[s * pitch + i];
        l = fmaf(ke[n * pitch + i], f, l);
        p = fmaf(qe[n * pitch + i], f, p);
      }
    }
    __syncwarp();  // the halves may have parted
    l = SumLanes16(l);
    p = SumLanes16(p);
    if (lane == 0 && s <= t) {
      const int64_t out = ((chunk.first + n) * a.heads + head) * kRows + s;
      a.l[out] = l;  // of s == t never used
      a.p[out] = p;
    }
  }
}

// What a block of threads of the second launch has in shared memory.
struct Shared {
  float* s;      // [K key][columns]
  float* delta;  // [kRows][columns]
  // One of the stages of rows on their way:
  float *ke, *qe, *kf, *v;  // [kRows][K rounded up to 4] thrice, [kRows][columns]
  float *l, *p;             // [kRows s][kRows n]
  float *g,
      *beta;  // [K rounded up to 4]: of the last row, and E in its place when S takes the block in; [kRows]

  __host__ __device__ static int Row(int dim) { return (dim + 3) / 4 * 4; }
  __host__ __device__ static int StageFloats(int dim, int columns) {
    return (3 * kRows + 1) * Row(dim) + kRows * columns + 2 * kRows * kRows + kRows;
  }
  __host__ __device__ static int64_t Bytes(int64_t dim, int columns, int stages) {
    const int row = static_cast<int>(dim);
    return 4 * ((dim + kRows) * columns + int64_t{stages} * StageFloats(row, columns));
  }
  __device__ Shared(float* free, const KdaRecurArgs& a, int stage) {
    const auto take = [&](int floats) {
      float* const taken = free;
      free += floats;
      return taken;
    };
    const int row = Row(a.dim);
    s = take(a.dim * a.columns), delta = take(kRows * a.columns);
    free += stage * StageFloats(a.dim, a.columns);
    ke = take(kRows * row), qe = take(kRows * row), kf = take(kRows * row), v = take(kRows * a.columns);
    l = take(kRows * kRows), p = take(kRows * kRows), g = take(row), beta = take(kRows);
  }
};

// Copies of `rows` rows of n floats are under way. wide: rows begin at multiples of 16 bytes, and n is a multiple of four.
__device__ inline void CopyRows(float* to, int to_stride, const float* from, int64_t from_stride, int rows,
                                int n, bool wide) {
  const int step = wide ? 4 : 1, of_row = n / step;
  for (int i = static_cast<int>(threadIdx.x); i < rows * of_row; i += kThreads) {
    const int row = i / of_row, k = i % of_row * step;
    if (wide) {
      __pipeline_memcpy_async(to + row * to_stride + k, from + row * from_stride + k, 16);
    } else {
      __pipeline_memcpy_async(to + row * to_stride + k, from + row * from_stride + k, 4);
    }
  }
}

// sum[n] of rows n of the group takes in row t of the block.
__device__ inline void AddRow(float (&sum)[kGroupRows], const float* weights, float delta) {
#pragma unroll
  for (int n = 0; n < kGroupRows; n += 4) {
    const float4 w = *reinterpret_cast<const float4*>(weights + n);
    sum[n] = fmaf(w.x, delta, sum[n]), sum[n + 1] = fmaf(w.y, delta, sum[n + 1]);
    sum[n + 2] = fmaf(w.z, delta, sum[n + 2]), sum[n + 3] = fmaf(w.w, delta, sum[n + 3]);
  }
}

// Grid: parts of heads x segments.
__global__ void __launch_bounds__(kThreads, 1) KdaScanKernel(const KdaRecurArgs a) {
  extern __shared__ float4 memory[];
  LetNextLaunchBegin();
  WaitForLaunchesBefore();
  float* const base = reinterpret_cast<float*>(memory);
  const int thread = static_cast<int>(threadIdx.x), c = thread % kColumns, group = thread / kColumns;
  const int dim = a.dim, row = Shared::Row(dim), head = static_cast<int>(blockIdx.x) / a.parts;
  const int first_column = static_cast<int>(blockIdx.x) % a.parts * a.columns,
            columns = min(a.columns, dim - first_column);
  const SegmentView segment = a.segment[blockIdx.y];
  const LayerState& state = segment.layers[a.layer];
  const int64_t width = int64_t{a.heads} * dim, at = int64_t{head} * dim, column = at + first_column;
  float* const kept_s = state.s + at * dim + first_column;
  const bool wide = dim % 4 == 0, active = c < columns;
  const int first_row = group % 2 * kGroupRows;  // of the group, in a chunk

  const auto fetch = [&](const Shared& to, const Chunk& chunk) {
    const int64_t from = chunk.first * width + at;
    CopyRows(to.ke, row, a.ke + from, width, chunk.count, dim, wide);
    CopyRows(to.qe, row, a.qe + from, width, chunk.count, dim, wide);
    CopyRows(to.kf + chunk.t0 * row, row, a.kf + from, width, chunk.count, dim, wide);
    CopyRows(to.v, a.columns, a.qkv + (chunk.first * 3 + 2) * width + column, 3 * width, chunk.count, columns,
             wide);
    CopyRows(to.g, row, a.g + from + (chunk.count - 1) * width, width, 1, dim, wide);
    for (int i = thread; i < chunk.count * kRows; i += kThreads) {
      const int n = i / kRows, s = i % kRows;
      const int64_t of_row = ((chunk.first + n) * a.heads + head) * kRows + s;
      if (s > chunk.t0 + n) continue;
      __pipeline_memcpy_async(to.l + s * kRows + n, a.l + of_row, 4);
      __pipeline_memcpy_async(to.p + s * kRows + n, a.p + of_row, 4);
    }
    if (thread < chunk.count)
      __pipeline_memcpy_async(to.beta + thread, a.beta + (chunk.first + thread) * a.heads + head, 4);
  };

  const int chunks = static_cast<int>((segment.position % a.block + segment.rows + a.block - 1) / a.block);
  Chunk chunk = ChunkAt(segment, 0, a.block);
  {
    const Shared shared(base, a, 0);
    CopyRows(shared.s, a.columns, kept_s, dim, dim, columns, wide);
    CopyRows(shared.kf, row, state.kf + at, width, chunk.t0, dim, wide);
    CopyRows(shared.delta, a.columns, state.delta + column, width, chunk.t0, columns, wide);
    fetch(shared, chunk);
    __pipeline_commit();
  }
  bool folded = false;
  for (int index = 0; index < chunks; ++index) {
    const Shared shared(base, a, index % a.stages);
    const Chunk next = ChunkAt(segment, index + 1, a.block);
    const int t0 = chunk.t0, count = chunk.count;
    const bool keep = t0 + count < a.block;  // the block stays unfinished: the state keeps its rows
    __pipeline_wait_prior(0);
    __syncthreads();  // S and the chunk are there, and nobody reads the stage of the chunk before any more
    if (a.stages > 1 && index + 1 < chunks) {
      fetch(Shared(base, a, (index + 1) % a.stages), next);
      __pipeline_commit();
    }

    const bool works = active && first_row < count;
    const float* const rank =
        (group < 2 ? shared.l : shared.p) + first_row;  // row s of it: kRows * s further
    float sum[kGroupRows] = {};
    if (works) {
      const float* const weights = (group < 2 ? shared.ke : shared.qe) + first_row * row;
      const float* const s = shared.s + c;
      int i = 0;
#pragma unroll 4
      for (; i + 4 <= dim; i += 4) {
        float x[4];
#pragma unroll
        for (int u = 0; u < 4; ++u) x[u] = s[(i + u) * a.columns];
#pragma unroll
        for (int n = 0; n < kGroupRows; ++n) {
          const float4 w = *reinterpret_cast<const float4*>(weights + n * row + i);
          sum[n] = fmaf(w.x, x[0], sum[n]);
          sum[n] = fmaf(w.y, x[1], sum[n]);
          sum[n] = fmaf(w.z, x[2], sum[n]);
          sum[n] = fmaf(w.w, x[3], sum[n]);
        }
      }
      for (; i < dim; ++i) {
#pragma unroll
        for (int n = 0; n < kGroupRows; ++n) sum[n] = fmaf(weights[n * row + i], s[i * a.columns], sum[n]);
      }
      for (int t = 0; t < t0; ++t) AddRow(sum, rank + t * kRows, shared.delta[t * a.columns + c]);
    }
    // Deltas of the first rows, then of the others; o of either once all its deltas are there.
    const auto deltas = [&] {
      float v[kGroupRows], beta[kGroupRows];  // asked for before the chain begins, as are its weights
#pragma unroll
      for (int i = 0; i < kGroupRows; ++i)
        v[i] = shared.v[(first_row + i) * a.columns + c], beta[i] = shared.beta[first_row + i];
      float d[kGroupRows];
#pragma unroll
      for (int i = 0; i < kGroupRows; ++i) {
        d[i] = beta[i] * (v[i] - sum[i]);
        const float* const w = rank + min(t0 + first_row + i, kRows - 1) * kRows;
#pragma unroll
        for (int later = i + 1; later < kGroupRows; ++later) sum[later] = fmaf(w[later], d[i], sum[later]);
      }
#pragma unroll
      for (int i = 0; i < kGroupRows; ++i) {
        const int n = first_row + i, t = t0 + n;
        if (n >= count) break;
        shared.delta[t * a.columns + c] = d[i];
        if (keep) state.delta[t * width + column + c] = d[i];
      }
    };
    const auto outputs = [&] {
#pragma unroll
      for (int i = 0; i < kGroupRows; ++i) {
        const int n = first_row + i, t = t0 + n;
        if (n >= count) break;
        const float d = shared.delta[t * a.columns + c];
        const float* const w = rank + t * kRows;
#pragma unroll
        for (int later = i; later < kGroupRows; ++later) sum[later] = fmaf(w[later], d, sum[later]);
        a.mixed[(chunk.first + n) * width + column + c] = sum[i];
      }
    };
    const auto take_in_first_rows = [&] {
#pragma unroll
      for (int n = 0; n < kGroupRows; ++n)
        AddRow(sum, rank + (t0 + n) * kRows, shared.delta[(t0 + n) * a.columns + c]);
    };
    if (works && group == 0) deltas();
    if (!keep) {
      for (int i = thread; i < dim; i += kThreads) shared.g[i] = Exp(shared.g[i]);
    }
    __syncthreads();  // deltas of the first rows are there
    if (works && group == 1) {
      take_in_first_rows();
      deltas();
    }
    if (works && group == 2) outputs();
    __syncthreads();  // all deltas are there
    if (works && group == 3) {
      take_in_first_rows();
      outputs();
    }
    if (!keep) {  // S takes in the block's rows; the groups take every fourth four of its rows
      if (active) {
        float delta[kRows];
#pragma unroll
        for (int t = 0; t < kRows; ++t) delta[t] = t < a.block ? shared.delta[t * a.columns + c] : 0.0f;
#pragma unroll 2
        for (int i = 4 * group; i < dim; i += 4 * kGroups) {
          float x[4];
#pragma unroll
          for (int u = 0; u < 4; ++u) x[u] = i + u < dim ? shared.s[(i + u) * a.columns + c] : 0.0f;
#pragma unroll
          for (int t = 0; t < kRows; ++t) {
            if (t >= a.block) break;
            const float4 kf = *reinterpret_cast<const float4*>(shared.kf + t * row + i);
            x[0] = fmaf(kf.x, delta[t], x[0]);
            x[1] = fmaf(kf.y, delta[t], x[1]);
            x[2] = fmaf(kf.z, delta[t], x[2]);
            x[3] = fmaf(kf.w, delta[t], x[3]);
          }
#pragma unroll
          for (int u = 0; u < 4; ++u)
            if (i + u < dim) shared.s[(i + u) * a.columns + c] = shared.g[i + u] * x[u];
        }
      }
      folded = true;
    }
    if (a.stages == 1 && index + 1 < chunks) {
      __syncthreads();  // nobody reads the stage any more
      fetch(shared, next);
      __pipeline_commit();
    }
    chunk = next;
  }
  if (!folded) return;
  __syncthreads();  // S is folded
  for (int i = thread; i < dim * columns; i += kThreads)
    kept_s[int64_t{i / columns} * dim + i % columns] = base[i / columns * a.columns + i % columns];
}

// Grid: columns x rows of a block x segments.
__global__ void __launch_bounds__(kThreads) KdaKeepKernel(const KdaRecurArgs a) {
  LetNextLaunchBegin();
  WaitForLaunchesBefore();
  const SegmentView segment = a.segment[blockIdx.z];
  const LayerState& state = segment.layers[a.layer];
  const int64_t width = int64_t{a.heads} * a.dim, i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int t = static_cast<int>(blockIdx.y),
            of_block = static_cast<int>((segment.position + segment.rows) % a.block);
  const int row = segment.rows - of_block + t;  // below 0: it has been in the state before
  if (t >= of_block || row < 0 || i >= width) return;
  state.kf[t * width + i] = a.kf[(segment.first_row + row) * width + i];
  state.g[t * width + i] = a.g[(segment.first_row + row) * width + i];
}

}  // namespace

Status KdaRecurOf(const StepContext& c, const float* qkv, const float* decay, const float* beta,
                  float* mixed) {
  constexpr int64_t kWidest = 4096;  // far beyond what fits
  const int most = c.device.shared_bytes;
  KdaRecurArgs args{};
  const int64_t wide = c.hp.kda_head_dim, width = c.hp.kda_width(), heads = c.hp.kda_heads;
  args.dim = static_cast<int>(std::min(wide, kWidest));
  args.stages = 2, args.columns = kColumns;
  const auto prepare = static_cast<int64_t>(3 * kRows * Pitch(args.dim) * sizeof(float));
  const auto scan = [&] { return Shared::Bytes(args.dim, args.columns, args.stages); };
  while (scan() > most && (args.stages > 1 || args.columns > 4)) {
    if (args.stages > 1) {
      args.stages = 1;
    } else {
      args.columns /= 2;
    }
  }
  if (std::max(scan(), prepare) > most) {
    return {Code::kUnsupported, "kda.recur: heads " + std::to_string(wide) + " wide want " +
                                    std::to_string(std::max(scan(), prepare)) +
                                    " bytes of shared memory, this GPU has " + std::to_string(most)};
  }
  args.qkv = qkv, args.decay = decay, args.beta = beta, args.mixed = mixed;
  for (float** rows : {&args.ke, &args.qe, &args.kf, &args.g}) *rows = c.scratch.Take<float>(c.rows * width);
  for (float** rows : {&args.l, &args.p}) *rows = c.scratch.Take<float>(c.rows * heads * kRows);
  if (args.p == nullptr) return NoScratch(c);
  args.segment = c.batch.segments;
  args.layer = c.layer_index();
  args.heads = static_cast<int>(heads), args.block = static_cast<int>(c.hp.block);
  args.parts = (args.dim + args.columns - 1) / args.columns;

  const bool early = c.early;
  const auto segments = static_cast<unsigned>(c.segments);
  const int64_t most_rows = c.rows - c.segments + 1;  // of a segment; each has one
  if (AllowShared(KdaPrepareKernel, static_cast<int>(prepare)) &&
      AllowShared(KdaScanKernel, static_cast<int>(scan()))) {
    const dim3 chunks(static_cast<unsigned>(heads), static_cast<unsigned>((most_rows - 1) / args.block + 2),
                      segments);
    LaunchEarly(early, chunks, kThreads, static_cast<size_t>(prepare), c.stream, KdaPrepareKernel, args);
    LaunchEarly(early, dim3(static_cast<unsigned>(heads * args.parts), segments), kThreads,
                static_cast<size_t>(scan()), c.stream, KdaScanKernel, args);
    LaunchEarly(early, dim3(Blocks(width, kThreads), static_cast<unsigned>(args.block), segments), kThreads,
                0, c.stream, KdaKeepKernel, args);
  }
  return c.Launched();
}

Status KdaRecur(const StepContext& c) {
  return KdaRecurOf(c, c.Floats(plan::Slot::kQkv), c.Floats(plan::Slot::kDecay), c.Floats(plan::Slot::kBeta),
                    c.Floats(plan::Slot::kMixed));
}

}  // namespace glint::cuda
