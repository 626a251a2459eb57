// dsa.attend for prompts: a block works on one row and goes through its list. Both kernels are bound by float multiply-adds, which the
// canonical arithmetic orders, so that tensor cores cannot take them; what else they issue is kept small. Each thread has an 8 x 8 tile
// in registers and reads four operands at a time from shared memory: an instruction for 16 multiply-adds, all 32 threads in two turns.
#include <algorithm>

#include "cuda/dots.cuh"
#include "cuda/dsa_attend.cuh"
#include "cuda/launch.h"
#include "cuda/math.cuh"

namespace glint::cuda {
namespace {

constexpr int kTile = kAttendTile;
constexpr int kPart = kAttendPart;

__device__ inline float4 Four(const float* from) { return *reinterpret_cast<const float4*>(from); }

// The same from global memory: said in so many words, since the compiler loses sight of where gathered rows lie.
__device__ inline float4 FourOfMemory(const float* from) {
  float4 four;
  asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(four.x), "=f"(four.y), "=f"(four.z), "=f"(four.w)
               : "l"(__cvta_generic_to_global(from)));
  return four;
}

// sum[i][j] += a[i] * b[j], one fma each.
__device__ inline void AddOuter(const float4& a0, const float4& a1, const float4& b0, const float4& b1,
                                float (&sum)[8][8]) {
  const float a[8] = {a0.x, a0.y, a0.z, a0.w, a1.x, a1.y, a1.z, a1.w};
  const float b[8] = {b0.x, b0.y, b0.z, b0.w, b1.x, b1.y, b1.z, b1.w};
#pragma unroll
  for (int i = 0; i < 8; ++i)
#pragma unroll
    for (int j = 0; j < 8; ++j) sum[i][j] = fmaf(a[i], b[j], sum[i][j]);
}

// The thread's warp, in a way that tells the compiler that it is the same in all its threads.
__device__ inline int Warp() { return __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0); }

// A chunk of columns of some rows in shared memory, column by column. Columns are four banks apart, and four more after every eight:
// neither reads of eight columns in a row, nor writes by threads that hold four columns each, meet a bank twice.
constexpr int kChunkColumns = 128;
template <int kRows>
struct ByColumns {
  static constexpr int kColumn = kRows + 4, kEight = 8 * kColumn + 4, kChunk = kChunkColumns / 8 * kEight;
  static __device__ int At(int column, int row) { return column * kColumn + column / 8 * 4 + row; }
};

// Scores of 64 heads with a tile of 32 entries at a time: Dot16, whose lanes are independent products of matrices. A thread has the lanes
// `lane` and `lane + 8` of 8 entries with 8 heads; the eight threads of a warp that have the same of other lanes add up with it. Queries
// and cached rows lie in shared memory by columns, so that a column of four rows is one read; cached rows pass by kColumns columns at a
// time. Half of the warps are one chunk behind the others: then one of a scheduler's two warps adds up lanes while the other multiplies.
struct Scores {
  static constexpr int kHeads = 64, kThreads = 256, kWarps = kThreads / 32, kColumns = kChunkColumns,
                       kStages = 4;
  using Queries = ByColumns<kHeads>;
  using Keys = ByColumns<kTile>;
  static constexpr int kSteps = kColumns / 8;  // of eight columns
  static_assert(kWarps * 4 == kTile, "a warp copies four rows");

  __host__ __device__ static constexpr int64_t Chunks(int64_t rank) {
    return (rank + kColumns - 1) / kColumns;
  }
  static constexpr int64_t SharedBytes(int64_t rank) {
    return (Chunks(rank) * Queries::kChunk + kStages * Keys::kChunk) * int64_t{sizeof(float)};
  }

  // Columns `column` to column + 3 of a row of `rank`, and zeros past its end; kWhole: rows of whole chunks.
  template <bool kWhole>
  static __device__ float4 Load(const float* row, int64_t column, int64_t rank) {
    if constexpr (kWhole) return FourOfMemory(row + column);
    float four[4] = {};
#pragma unroll 1
    for (int i = 0; i < 4; ++i) {
      const float one = column + i < rank ? row[column + i] : 0.0f;
      four[0] = four[1], four[1] = four[2], four[2] = four[3], four[3] = one;
    }
    return make_float4(four[0], four[1], four[2], four[3]);
  }
  template <class L>
  static __device__ void Store(float* to, const float4& four) {
    to[0] = four.x, to[L::kColumn] = four.y, to[2 * L::kColumn] = four.z, to[3 * L::kColumn] = four.w;
  }
};

// Blocks (block_tiles tiles of the list, heads / kHeads, row).
template <bool kWhole>
__global__ void __launch_bounds__(Scores::kThreads, 1)
    RowScoreKernel(const AttendArgs a, const int block_tiles) {
  using S = Scores;
  extern __shared__ __align__(16) float scores_shared[];
  __shared__ float tops[2][S::kHeads];
  const int thread = static_cast<int>(threadIdx.x) % 32, warp = Warp();
  // Later rows of a prompt have longer lists: they begin first.
  const int64_t r = gridDim.z - 1 - blockIdx.z, h0 = int64_t{blockIdx.y} * S::kHeads;
  const float* const latent = a.rows[r].layers[a.layer].latent;
  WaitForLaunchesBefore();
  LetNextLaunchBegin();  // what begins now may count on the list and the cached rows
  const int count = a.counts[r], first = static_cast<int>(blockIdx.x) * block_tiles,
            left = (count + kTile - 1) / kTile - first;
  if (left <= 0) return;
  const int tiles = left < block_tiles ? left : block_tiles;
  const int chunks = static_cast<int>(S::Chunks(a.rank)), steps = tiles * chunks;
  const int32_t* const list = a.selected + r * a.width;
  float* const queries = scores_shared;                       // [chunk], by columns
  float* const keys = queries + chunks * S::Queries::kChunk;  // [kStages], by columns

  // Copies, by way of registers: a warp has four rows, a thread four columns of 32 of one of them.
  const int copied = warp * 4 + thread / 8, column = thread % 8 * 4;
  for (int c = 0; c < chunks; ++c) {
    float4 four[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int64_t h = h0 + copied + i % 2 * kTile, at = int64_t{c} * S::kColumns + i / 2 * 32 + column;
      const float* const row = a.query + (r * a.heads + (h < a.heads ? h : a.heads - 1)) * a.rank;
      four[i] = S::Load<kWhole>(row, at, a.rank);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i)
      S::Store<S::Queries>(queries + c * S::Queries::kChunk + S::Queries::At(column, copied) +
                               i / 2 * 4 * S::Queries::kEight + i % 2 * kTile,
                           four[i]);
  }
  // Of eight tiles at a time a thread knows one of the warp's rows: entry thread % 4 of tile thread / 4. Past the end the last one repeats.
  int load_tile = 0, load_chunk = 0, load_stage = 0;
  int32_t listed = 0;
  const float* from = nullptr;
  const auto next_tile = [&] {
    if (load_tile % 8 == 0) {
      const int e = (first + load_tile + thread / 4) * kTile + warp * 4 + thread % 4;
      listed = list[e < count ? e : count - 1];
    }
    from = latent + int64_t{__shfl_sync(0xffffffffu, listed, load_tile % 8 * 4 + thread / 8)} * a.rank;
  };
  next_tile();
  float4 loaded[2];  // half a chunk
  const auto load = [&](int half) {
    const int64_t c = int64_t{load_chunk} * S::kColumns + half * 64 + column;
#pragma unroll
    for (int i = 0; i < 2; ++i) loaded[i] = S::Load<kWhole>(from, c + i * 32, a.rank);
  };
  const auto store = [&](int half) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
      S::Store<S::Keys>(keys + load_stage * S::Keys::kChunk + S::Keys::At(column, copied) +
                            (half * 2 + i) * 4 * S::Keys::kEight,
                        loaded[i]);
  };
  const auto loaded_chunk = [&] {
    load_stage = (load_stage + 1) % S::kStages;
    if (++load_chunk < chunks) return;
    load_chunk = 0, ++load_tile;
    next_tile();
  };
  for (int i = 0; i < 2 && i < steps; ++i) {
    load(0), store(0), load(1), store(1);
    loaded_chunk();
  }
  __syncthreads();  // the queries and the first two chunks are there

  // Sums: two neighbouring threads read the same queries, two pairs of them the same cached rows. Of the 8 entries and of the 8 heads
  // those come first that the thread will have after the first exchanges.
  const int x = thread & 1, y = thread >> 1 & 1, lane = thread >> 2;
  const int first_key = warp / 4 * 4 + x * 16 + (lane & 4) * 2,
            first_head = warp % 4 * 4 + y * 16 + (lane & 2) * 16;
  const float* const query = queries + lane * S::Queries::kColumn + first_head;
  const float* const key = keys + lane * S::Keys::kColumn + first_key;
  const int other_heads = (lane & 2) != 0 ? -32 : 32, other_keys = (lane & 4) != 0 ? -8 : 8;
  float sum[8][8], upper[8][8];  // [entry][head]: of `lane` and of `lane + 8`
#pragma unroll
  for (int i = 0; i < 64; ++i) sum[i / 8][i % 8] = upper[i / 8][i % 8] = 0;
  float4 k0 = Four(key), k1 = Four(key + other_keys), q0 = Four(query), q1 = Four(query + other_heads);
  float top[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) top[i] = __int_as_float(static_cast<int>(0xff800000u));
  const int behind = warp / 4;
  int tile = 0, chunk = 0, stage = 0;
#pragma unroll 1
  for (int step = -behind; step < steps + 1 - behind; ++step) {
    const bool loads = step + behind + 2 < steps, adds = step >= 0 && step < steps;
    const float* const q = query + chunk * S::Queries::kChunk;
    const float* const k = key + stage * S::Keys::kChunk;
    const int next_chunk = chunk + 1 == chunks ? 0 : chunk + 1, next_stage = (stage + 1) % S::kStages;
    // Operands are read one step of eight columns ahead. Zeros past the end change no sum.
    const auto add = [&](int i) {
      const float* const at_q =
          i + 1 < S::kSteps ? q + (i + 1) * S::Queries::kEight : query + next_chunk * S::Queries::kChunk;
      const float* const at_k =
          i + 1 < S::kSteps ? k + (i + 1) * S::Keys::kEight : key + next_stage * S::Keys::kChunk;
      const float4 k2 = Four(at_k), k3 = Four(at_k + other_keys), q2 = Four(at_q),
                   q3 = Four(at_q + other_heads);
      AddOuter(k0, k1, q0, q1, i % 2 == 0 ? sum : upper);
      k0 = k2, k1 = k3, q0 = q2, q1 = q3;
    };
    if (loads) load(0);
    if (adds) {
#pragma unroll
      for (int i = 0; i < S::kSteps / 2; ++i) add(i);
    }
    if (loads) store(0), load(1);
    if (adds) {
#pragma unroll
      for (int i = S::kSteps / 2; i < S::kSteps; ++i) add(i);
    }
    if (loads) {
      store(1);
      loaded_chunk();
    }
    if (adds && chunk == chunks - 1) {
      // The sums over lanes: l[i] + l[i + 8], then 4, 2 and 1 apart; partners share out what they have, and which of two adds does
      // not matter.
#pragma unroll
      for (int i = 0; i < 64; ++i) sum[i / 8][i % 8] += upper[i / 8][i % 8];
#pragma unroll
      for (int i = 0; i < 32; ++i)
        sum[i / 8][i % 8] += __shfl_xor_sync(0xffffffffu, sum[i / 8 + 4][i % 8], 16);
#pragma unroll
      for (int i = 0; i < 16; ++i)
        sum[i / 4][i % 4] += __shfl_xor_sync(0xffffffffu, sum[i / 4][i % 4 + 4], 8);
      const bool odd = (lane & 1) != 0;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float scores[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float give = odd ? sum[i][j] : sum[i + 2][j], keep = odd ? sum[i + 2][j] : sum[i][j];
          scores[j] = (keep + __shfl_xor_sync(0xffffffffu, give, 4)) * a.scale;
          // With a NaN the head's mix is NaN, whatever the largest score.
          top[j] = fmaxf(top[j], scores[j]);
        }
        const int e = (first + tile) * kTile + first_key + (lane & 1) * 2 + i;
        if (e < count && h0 + first_head < a.lanes)
          *reinterpret_cast<float4*>(a.scores + (r * a.width + e) * a.lanes + h0 + first_head) =
              make_float4(scores[0], scores[1], scores[2], scores[3]);
      }
#pragma unroll
      for (int i = 0; i < 64; ++i) sum[i / 8][i % 8] = upper[i / 8][i % 8] = 0;
      ++tile;
    }
    if (adds) chunk = next_chunk, stage = next_stage;
    __syncthreads();  // what this step has stored may be read, and what all have read by now may be overwritten
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
#pragma unroll
    for (int apart = 1; apart < 32; apart *= 4)
      top[j] = fmaxf(top[j], __shfl_xor_sync(0xffffffffu, top[j], apart));
    if (x == 0 && (lane & 5) == 0) tops[warp / 4][first_head + j] = top[j];
  }
  __syncthreads();  // the largest scores of both halves of the tiles' entries are there
  const int head = static_cast<int>(threadIdx.x);
  if (head < S::kHeads && h0 + head < a.lanes)
    a.tops[(r * a.tiles + blockIdx.x) * a.lanes + h0 + head] = fmaxf(tops[0][head], tops[1][head]);
}

// The mix of 64 heads in kColumns columns. A warp has all heads and 32 columns; entries come kEntries at a time, one for each warp to copy,
// and their weights are made from the scores one step ahead. The sums of the parts lie in shared memory, each thread's own.
template <int kMixColumns>
struct Mix {
  static constexpr int kHeads = 64, kColumns = kMixColumns, kThreads = kColumns, kWarps = kThreads / 32;
  static constexpr int kEntries = kWarps;
  static constexpr int kStageFloats = kEntries * kColumns, kWeightFloats = kEntries * kHeads,
                       kTotalFloats = kHeads * kColumns;
  static constexpr int kSharedBytes =
      (kTotalFloats + 2 * kStageFloats + 2 * kWeightFloats) * int{sizeof(float)};
  static constexpr int kMade = kWeightFloats / kThreads;  // weights that a thread makes at a time
  static constexpr int kShares = kThreads / kHeads;       // threads that make those of one head
  static_assert(kPart % kEntries == 0);
};

// Blocks (columns, heads / kHeads, row).
template <int kMixColumns>
__global__ void __launch_bounds__(kMixColumns, 1) RowMixKernel(const AttendArgs a) {
  using M = Mix<kMixColumns>;
  extern __shared__ __align__(16) float mix_shared[];
  float* const totals = mix_shared + threadIdx.x * 4;   // [16] four floats, kThreads * 4 apart
  float* const stages = mix_shared + M::kTotalFloats;   // [2][kEntries][kColumns]
  float* const weights = stages + 2 * M::kStageFloats;  // [2][kEntries][kHeads] exp(score - top)
  __shared__ float tops[M::kThreads], sums[M::kHeads];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = Warp();
  const int64_t r = gridDim.z - 1 - blockIdx.z, h0 = int64_t{blockIdx.y} * M::kHeads,
                d0 = int64_t{blockIdx.x} * M::kColumns;
  const int count = a.counts[r];

  // The list and the cached rows were there before the scores' launch began.
  const float* const latent = a.rows[r].layers[a.layer].latent + d0;
  const int32_t* const list = a.selected + r * a.width;
  const bool wide = a.rank % 4 == 0;
  const int columns = static_cast<int>(a.rank - d0 < M::kColumns ? a.rank - d0 : M::kColumns);
  const bool whole = wide && columns == M::kColumns;
  int loading = warp;
  int32_t next = loading < count ? list[loading] : 0;
  const auto load = [&](int stage) {
    if (loading < count) {
      float* const to = stages + stage * M::kStageFloats + warp * M::kColumns;
      const float* const from = latent + int64_t{next} * a.rank;
      if (whole) {
#pragma unroll
        for (int k = 0; k < M::kColumns; k += 128) CopyAsync16(to + k + lane * 4, from + k + lane * 4);
      } else {
#pragma unroll 1
        for (int k = 0; k < M::kColumns; k += 128) Copy128(to + k, from + k, columns - k, wide, lane);
      }
    }
    CommitCopies();
    loading += M::kEntries;
    next = loading < count ? list[loading] : 0;
  };
  load(0);
  WaitForLaunchesBefore();
  LetNextLaunchBegin();

  const int head = thread % M::kHeads, share = thread / M::kHeads;  // where scores become weights
  const int64_t score_head = h0 + head < a.lanes ? h0 + head : a.lanes - 1;
  const int lanes = static_cast<int>(a.lanes);
  const float* score = a.scores + r * a.width * a.lanes + score_head + share * a.lanes;
  int scored = share;  // the entry
  float held[M::kMade];
  const auto fetch = [&] {
#pragma unroll
    for (int i = 0; i < M::kMade; ++i)
      held[i] = scored + i * M::kShares < count ? score[i * M::kShares * lanes] : 0.0f;
    scored += M::kEntries, score += M::kEntries * lanes;
  };
  fetch();
  float top;  // the largest score of the head
  {
    const int n = static_cast<int>((count + a.top_entries - 1) / a.top_entries);
    const float* const of_blocks = a.tops + r * a.tiles * a.lanes + score_head;
    top = of_blocks[0];
    for (int t = share; t < n; t += M::kShares) top = fmaxf(top, of_blocks[t * a.lanes]);
    tops[thread] = top;
    __syncthreads();  // all shares are there
#pragma unroll
    for (int i = 0; i < M::kShares; ++i) top = fmaxf(top, tops[i * M::kHeads + head]);
  }
  const auto make = [&](int stage) {
#pragma unroll
    for (int i = 0; i < M::kMade; ++i)
      weights[stage * M::kWeightFloats + i * M::kThreads + thread] = ExpNotAboveZero(held[i] - top);
    fetch();
  };
  make(0);

  const int x = (lane & 1) + (lane >> 4) * 2, y = lane >> 1 & 7;
  const int first_head = y * 4,
            first_column = warp * 32 + x * 4;  // and those 32 heads and 16 columns further
  float mix[8][8];                             // [head][column] of a part
  float sum = 0, of_part = 0;                  // of the weights of head h0 + thread
#pragma unroll
  for (int i = 0; i < 64; ++i) mix[i / 8][i % 8] = 0;
  int stage = 0;
#pragma unroll 1
  for (int e0 = 0; e0 < count; e0 += M::kEntries) {
    WaitForCopies<0>();
    __syncthreads();  // these entries have arrived and their weights are made, for all; those before them are used
    load(stage ^ 1);
    make(stage ^ 1);
    const float* const made = weights + stage * M::kWeightFloats;
    const float* const w = made + first_head;
    const float* const v = stages + stage * M::kStageFloats + first_column;
    stage ^= 1;
    const int n = count - e0 < M::kEntries ? count - e0 : M::kEntries;
    const auto entry = [&](int e) {
      AddOuter(Four(w + e * M::kHeads), Four(w + e * M::kHeads + 32), Four(v + e * M::kColumns),
               Four(v + e * M::kColumns + 16), mix);
    };
    if (n == M::kEntries) {
      if (thread < M::kHeads) {
#pragma unroll
        for (int e = 0; e < M::kEntries; ++e) of_part += made[e * M::kHeads + thread];
      }
#pragma unroll
      for (int e = 0; e < M::kEntries; ++e) entry(e);
    } else {
#pragma unroll 1
      for (int e = 0; e < n; ++e) {
        if (thread < M::kHeads) of_part += made[e * M::kHeads + thread];
        entry(e);
      }
    }
    const int done = e0 + M::kEntries;
    if (done % kPart == 0 || done >= count) {  // parts are added in order
      const bool only = done <= kPart;
      sum = only ? of_part : sum + of_part;
      of_part = 0;
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        float* const total = totals + i * M::kThreads * 4;
        float(&of_mix)[8] = mix[i / 2];
        const int j = i % 2 * 4;
        float4 all = make_float4(of_mix[j], of_mix[j + 1], of_mix[j + 2], of_mix[j + 3]);
        if (!only) {
          const float4 before = Four(total);
          all = make_float4(before.x + all.x, before.y + all.y, before.z + all.z, before.w + all.w);
        }
        *reinterpret_cast<float4*>(total) = all;
        of_mix[j] = of_mix[j + 1] = of_mix[j + 2] = of_mix[j + 3] = 0;
      }
    }
  }
  if (thread < M::kHeads) sums[thread] = sum;
  __syncthreads();  // the sums are there
#pragma unroll 2
  for (int i = 0; i < 16; ++i) {
    const int of_head = first_head + i / 8 * 32 + i / 2 % 4;
    const int64_t h = h0 + of_head, d = d0 + first_column + i % 2 * 16;
    if (h >= a.heads) break;
    const float4 total = Four(totals + i * M::kThreads * 4);
    const float mixed[4] = {total.x / sums[of_head], total.y / sums[of_head], total.z / sums[of_head],
                            total.w / sums[of_head]};
    float* const to = a.query + (r * a.heads + h) * a.rank + d;
    if (wide && d < a.rank) {
      *reinterpret_cast<float4*>(to) = make_float4(mixed[0], mixed[1], mixed[2], mixed[3]);
    } else {
      for (int j = 0; j < 4; ++j)
        if (d + j < a.rank) to[j] = mixed[j];
    }
  }
}

template <int kMixColumns>
Status LaunchMix(const StepContext& c, const AttendArgs& args, int64_t rows) {
  using M = Mix<kMixColumns>;
  if (!AllowShared(RowMixKernel<kMixColumns>, M::kSharedBytes)) return c.Launched("the mix");
  LaunchEarly(
      c, dim3(Blocks(args.rank, M::kColumns), Blocks(args.heads, M::kHeads), static_cast<unsigned>(rows)),
      M::kThreads, size_t{M::kSharedBytes}, RowMixKernel<kMixColumns>, args);
  return c.Launched("the mix");
}

constexpr int64_t kDeclared = 4096;  // shared memory that the kernels declare beside, at most

}  // namespace

bool HasRoomForScoresByRow(const StepContext& c, int64_t rank) {
  return Scores::SharedBytes(rank) + kDeclared <= int64_t{c.device.shared_bytes};
}

Status ScoreByRow(const StepContext& c, AttendArgs& args, int64_t rows) {
  const auto shared = static_cast<int>(Scores::SharedBytes(args.rank));
  auto* const kernel = args.rank % kChunkColumns == 0 ? RowScoreKernel<true> : RowScoreKernel<false>;
  if (!AllowShared(kernel, shared)) return c.Launched("the scores");
  // Whole lists, or where that leaves multiprocessors idle, shares of them.
  const int64_t most = std::max<int64_t>(c.device.multiprocessors / rows, 1),
                block_tiles = std::max<int64_t>((args.tiles + most - 1) / most, 8);
  args.top_entries = block_tiles * kTile;
  LaunchEarly(c,
              dim3(static_cast<unsigned>((args.tiles + block_tiles - 1) / block_tiles),
                   Blocks(args.heads, Scores::kHeads), static_cast<unsigned>(rows)),
              Scores::kThreads, static_cast<size_t>(shared), kernel, args, static_cast<int>(block_tiles));
  return c.Launched("the scores");
}

Status MixByRow(const StepContext& c, const AttendArgs& args, int64_t rows) {
  const bool roomy = Mix<512>::kSharedBytes + kDeclared <= int64_t{c.device.shared_bytes};
  return roomy && args.rank > Mix<256>::kColumns ? LaunchMix<512>(c, args, rows)
                                                 : LaunchMix<256>(c, args, rows);
}

}  // namespace glint::cuda
