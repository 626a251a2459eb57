// spec/model.md 6, step 5, absorbed: each head's query is taken to the latent space, attends to the selected
// latent rows there, and their mix is brought back. One latent row serves as key and value of every head.
//
// A row's list is cut into parts of kAttendPart entries. Few rows: blocks share out tiles of a part, heads and columns, so that one row
// fills the GPU, and a third kernel adds the parts. Many rows: a block goes through all parts of a row.
#include <algorithm>
#include <cmath>

#include "cuda/dots.cuh"
#include "cuda/dsa_groups.h"
#include "cuda/launch.h"
#include "cuda/math.cuh"
#include "cuda/product.h"
#include "cuda/round.cuh"

namespace glint::cuda {
namespace {

constexpr int kPart = kAttendPart;
constexpr int kTile = kAttendTile;

struct AttendArgs {
  const RowView* rows;      // of the group
  const int32_t* selected;  // [rows][width], ascending
  const int32_t* counts;    // [rows]
  float* query;             // [rows][heads][rank]; in the end the mix takes its place
  float* scores;            // [rows][width][lanes]: of all heads
  float* tops;              // [rows][tiles][lanes]: the largest scores of kTile entries
  float* sums;              // [rows][heads][parts] the sum of its weights; few rows
  float* mixes;             // [rows][heads][parts][rank]; few rows
  Digits digits;            // none, or of the mixes joined, [rows * heads][rank]; few rows
  int64_t heads, lanes, rank, width, tiles, parts;
  float scale;
  int layer;
};

// Blocks (tiles [block_tiles * x, + block_tiles), heads / kHeads, row).
template <int kHeads>
__global__ void __launch_bounds__(DotTiles<kHeads>::kThreads, kHeads == 32 ? 2 : 1)
    AttendScoreKernel(const AttendArgs a, const int slots, const int block_tiles) {
  using Tiles = DotTiles<kHeads>;
  static_assert(Tiles::kKeys == kTile);
  extern __shared__ __align__(16) float dots_shared[];
  __shared__ float tops[kTile / 8][kHeads];
  const int64_t r = blockIdx.z, h0 = int64_t{blockIdx.y} * kHeads;
  const float* const latent =
      a.rows[r].layers[a.layer].latent;  // the host's, like all that says where states are
  WaitForLaunchesBefore();
  // Not before: what begins now may count on the list and the cached rows, which the launches before this one have written.
  LetNextLaunchBegin();
  const int64_t count = a.counts[r];
  const int64_t first = int64_t{blockIdx.x} * block_tiles, left = (count + kTile - 1) / kTile - first;
  if (left <= 0) return;
  const int32_t* const list = a.selected + r * a.width;
  const float* const query = a.query + r * a.heads * a.rank;
  const Tiles tiles;
  tiles.Run(
      dots_shared, slots, left < block_tiles ? left : block_tiles, 1, a.rank,
      [&](int, int i) { return query + (h0 + i < a.heads ? h0 + i : a.heads - 1) * a.rank; },
      [&](int tile, int i) {
        const int64_t e = (first + tile) * kTile + i;
        return latent + int64_t{list[e < count ? e : count - 1]} * a.rank;
      },
      [&](int tile, int, const float(&dots)[4]) {
        const int64_t e = (first + tile) * kTile + tiles.key, h = h0 + tiles.first_query;
        float top[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) top[i] = dots[i] * a.scale;
        if (e < count && h < a.lanes)
          *reinterpret_cast<float4*>(a.scores + (r * a.width + e) * a.lanes + h) =
              make_float4(top[0], top[1], top[2], top[3]);
      // Entries past the end repeat the last one. Which of two equal scores is the largest, and which NaN, is all one: with a NaN
      // the head's mix is NaN.
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          for (int apart = 2; apart < 16; apart *= 2)
            top[i] = StdMax(top[i], __shfl_xor_sync(0xffffffffu, top[i], apart));
          if (tiles.lane < 2) tops[tiles.key % (kTile / 8)][tiles.first_query + i] = top[i];
        }
        __syncthreads();  // the largest of each half warp's keys are there
        const int thread = static_cast<int>(threadIdx.x);
        if (thread < kHeads && h0 + thread < a.lanes) {
          float all = tops[0][thread];
          for (int i = 1; i < kTile / 8; ++i) all = StdMax(all, tops[i][thread]);
          a.tops[(r * a.tiles + first + tile) * a.lanes + h0 + thread] = all;
        }
      });
}

// What a block adds up. A warp has kSide heads and 128 columns, four a thread. Few rows: one part, whose entries are all in shared
// memory. Many rows: all parts, sixteen entries at a time.
template <bool kAllParts>
struct Mix {
  static constexpr int kSide = kAllParts ? 8 : 4, kHeads = 8 * kSide, kColumns = kAllParts ? 256 : 128;
  static constexpr int kThreads = 2 * kColumns, kWarps = kThreads / 32;
  static constexpr int kEntries = kAllParts ? 16 : kPart, kStages = kAllParts ? 3 : 1;
  static constexpr int kStageFloats = kEntries * kColumns, kWeightFloats = kPart * kHeads;
  static constexpr int kSharedBytes = (kWeightFloats + kStages * kStageFloats) * int{sizeof(float)};
  static constexpr int kShares = kThreads / kHeads;  // threads of one head where scores become weights
  static constexpr int kHeld = kPart / kShares;      // scores of a part that each of them takes
};

// Blocks (column tiles of one part after the other or, with kAllParts, column tiles; heads / kHeads; row).
template <bool kAllParts>
__global__ void __launch_bounds__(Mix<kAllParts>::kThreads, kAllParts ? 1 : 2)
    AttendMixKernel(const AttendArgs a) {
  using M = Mix<kAllParts>;
  constexpr int kSide = M::kSide;
  extern __shared__ __align__(16) float mix_shared[];
  float* const weights = mix_shared;                 // [kPart][kHeads] exp(score - top)
  float* const stages = weights + M::kWeightFloats;  // [kStages][kEntries][kColumns]
  __shared__ float tops[M::kThreads], sums[M::kHeads];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int64_t r = blockIdx.z, h0 = int64_t{blockIdx.y} * M::kHeads, count = a.counts[r];
  // The last part, of few entries, comes last: with a block a multiprocessor, the blocks that are one too many have it.
  const unsigned column_tiles = kAllParts ? gridDim.x : gridDim.x / static_cast<unsigned>(a.parts);
  const int64_t first_part = blockIdx.x / column_tiles;
  const int64_t d0 = int64_t{blockIdx.x % column_tiles} * M::kColumns;
  const int64_t begin = first_part * kPart, end = kAllParts || begin + kPart > count ? count : begin + kPart;

  // The list and the cached rows were there before the scores' launch began.
  const float* const latent = a.rows[r].layers[a.layer].latent + d0;
  const int32_t* const list = a.selected + r * a.width;
  const bool wide = a.rank % 4 == 0;
  const int columns = static_cast<int>(a.rank - d0 < M::kColumns ? a.rank - d0 : M::kColumns);
  // Each warp copies kRows entries of a stage; thread i < kRows knows the i-th, one stage ahead.
  constexpr int kRows = M::kEntries / M::kWarps;
  int64_t loading = begin + warp * kRows;
  const auto entry_of_thread = [&] {
    return lane < kRows && loading + lane < end ? list[loading + lane] : 0;
  };
  int32_t next = entry_of_thread();
  int load_stage = 0;
  const auto load = [&] {
    float* const stage = stages + load_stage * M::kStageFloats + warp * kRows * M::kColumns;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float* const from = latent + int64_t{__shfl_sync(0xffffffffu, next, i)} * a.rank;
      if (loading + i >= end) continue;
#pragma unroll
      for (int k = 0; k < M::kColumns; k += 128)
        Copy128(stage + i * M::kColumns + k, from + k, columns - k, wide, lane);
    }
    CommitCopies();
    loading += M::kEntries;
    next = entry_of_thread();
    load_stage = load_stage + 1 == M::kStages ? 0 : load_stage + 1;
  };
  load();
  if constexpr (kAllParts) load();
  WaitForLaunchesBefore();
  LetNextLaunchBegin();
  if (begin >= end) return;

  const int head = thread % M::kHeads, share = thread / M::kHeads;  // where scores become weights
  const int64_t score_head = h0 + head < a.lanes ? h0 + head : a.lanes - 1;
  float held[M::kHeld];
  const auto fetch = [&](int64_t part) {
    const float* const scores = a.scores + (r * a.width + part) * a.lanes + score_head;
#pragma unroll
    for (int i = 0; i < M::kHeld; ++i) {
      const int e = i * M::kShares + share;
      held[i] = part + e < end ? scores[e * a.lanes] : 0.0f;
    }
  };
  fetch(begin);
  // The largest score of the head.
  float top;
  {
    const int n = static_cast<int>((count + kTile - 1) / kTile);
    const float* const of_tiles = a.tops + r * a.tiles * a.lanes + score_head;
    top = of_tiles[0];
#pragma unroll 8
    for (int t = share; t < n; t += M::kShares) top = StdMax(top, of_tiles[t * a.lanes]);
    tops[thread] = top;
    __syncthreads();  // all shares are there
#pragma unroll
    for (int i = 0; i < M::kShares; ++i) top = StdMax(top, tops[i * M::kHeads + head]);
  }

  float mix[kSide][4], total[kSide][4];  // [head][column]; total: over the parts so far
  float sum = 0;                         // of head h0 + thread, over the parts so far
  int stage = 0;
  for (int64_t part = begin; part < end; part += kPart) {
    const int n = static_cast<int>(end - part < kPart ? end - part : kPart);
    if (part != begin) __syncthreads();  // the weights of the part before are used
#pragma unroll
    for (int i = 0; i < M::kHeld; ++i) weights[i * M::kThreads + thread] = Exp(held[i] - top);
    if (kAllParts && part + kPart < end) fetch(part + kPart);
#pragma unroll
    for (int i = 0; i < kSide * 4; ++i) mix[i / 4][i % 4] = 0;
    if constexpr (!kAllParts) WaitForCopies<0>();
    __syncthreads();  // the weights are there; few rows: the entries too
    if (thread < M::kHeads && (kAllParts || d0 == 0)) {
      float of_part = 0;
#pragma unroll 16
      for (int e = 0; e < n; ++e) of_part += weights[e * M::kHeads + thread];
      sum = part == begin ? of_part : sum + of_part;
    }
    for (int e0 = 0; e0 < n; e0 += M::kEntries) {
      if constexpr (kAllParts) {
        WaitForCopies<M::kStages - 2>();
        __syncthreads();  // these entries have arrived, and those before them are used
        load();
      }
      const float* const w = weights + e0 * M::kHeads + warp % 8 * kSide;
      const float* const x = stages + stage * M::kStageFloats + warp / 8 * 128 + lane * 4;
      stage = stage + 1 == M::kStages ? 0 : stage + 1;
      const auto entry = [&](int e) {
        const float4 of_columns = *reinterpret_cast<const float4*>(x + e * M::kColumns);
#pragma unroll
        for (int i = 0; i < kSide; i += 4) {
          const float4 of_heads = *reinterpret_cast<const float4*>(w + e * M::kHeads + i);
          const float four[4] = {of_heads.x, of_heads.y, of_heads.z, of_heads.w};
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            mix[i + j][0] = fmaf(four[j], of_columns.x, mix[i + j][0]);
            mix[i + j][1] = fmaf(four[j], of_columns.y, mix[i + j][1]);
            mix[i + j][2] = fmaf(four[j], of_columns.z, mix[i + j][2]);
            mix[i + j][3] = fmaf(four[j], of_columns.w, mix[i + j][3]);
          }
        }
      };
      if (kAllParts && n - e0 >= M::kEntries) {
#pragma unroll
        for (int e = 0; e < M::kEntries; ++e) entry(e);
      } else {
        const int entries = n - e0 < M::kEntries ? n - e0 : M::kEntries;
#pragma unroll 8
        for (int e = 0; e < entries; ++e) entry(e);
      }
    }
#pragma unroll
    for (int i = 0; i < kSide * 4; ++i)
      total[i / 4][i % 4] = part == begin ? mix[i / 4][i % 4] : total[i / 4][i % 4] + mix[i / 4][i % 4];
  }
  if (thread < M::kHeads) {
    if constexpr (kAllParts) {
      sums[thread] = sum;
    } else if (d0 == 0 && h0 + thread < a.heads) {
      a.sums[(r * a.heads + h0 + thread) * a.parts + first_part] = sum;
    }
  }
  if constexpr (kAllParts) __syncthreads();  // the sums are there
#pragma unroll
  for (int i = 0; i < kSide; ++i) {
    const int64_t h = h0 + warp % 8 * kSide + i, d = d0 + warp / 8 * 128 + lane * 4;
    if (h >= a.heads) break;
    float* const to = kAllParts ? a.query + (r * a.heads + h) * a.rank
                                : a.mixes + ((r * a.heads + h) * a.parts + first_part) * a.rank;
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (d + j < a.rank) to[d + j] = kAllParts ? total[i][j] / sums[warp % 8 * kSide + i] : total[i][j];
  }
}

constexpr int kJoinThreads = 128;

// Blocks (columns, head, row): parts are added in order, and the mix divided by the sum of the weights.
__global__ void __launch_bounds__(kJoinThreads) AttendJoinKernel(const AttendArgs a) {
  LetNextLaunchBegin();
  const int64_t r = blockIdx.z, row_head = r * a.heads + blockIdx.y;
  // The list was there before the scores' launch began, and that had ended before this one began.
  const int parts = static_cast<int>((a.counts[r] + kPart - 1) / kPart);
  WaitForLaunchesBefore();
  const int64_t d = int64_t{blockIdx.x} * kJoinThreads + threadIdx.x;
  if (d >= a.rank) return;
  const float* const mixes = a.mixes + row_head * a.parts * a.rank + d;
  const float* const sums = a.sums + row_head * a.parts;
  constexpr int kAhead = 20;  // parts on their way at once: all of 2,048 and a few entries
  float mix = 0, sum = 0;
  for (int p0 = 0; p0 < parts; p0 += kAhead) {
    float of_mix[kAhead], of_sum[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      of_mix[i] = p0 + i < parts ? mixes[(p0 + i) * a.rank] : 0.0f;
      of_sum[i] = p0 + i < parts ? sums[p0 + i] : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (p0 + i >= parts) break;
      mix = p0 + i == 0 ? of_mix[i] : mix + of_mix[i];
      sum = p0 + i == 0 ? of_sum[i] : sum + of_sum[i];
    }
  }
  const float joined = mix / sum;
  a.query[row_head * a.rank + d] = joined;
  if (a.digits.digits != nullptr) StoreRounded(a.digits, row_head, d / 32, static_cast<int>(d % 32), joined);
}

template <int kHeads>
Status Score(const StepContext& c, const AttendArgs& args, int64_t rows, int64_t slots, int64_t block_tiles) {
  using Tiles = DotTiles<kHeads>;
  const int shared = Tiles::SharedBytes(slots);
  if (!AllowShared(AttendScoreKernel<kHeads>, shared)) return c.Launched("the scores");
  const dim3 grid(static_cast<unsigned>((args.tiles + block_tiles - 1) / block_tiles),
                  Blocks(args.heads, kHeads), static_cast<unsigned>(rows));
  LaunchEarly(c.early, grid, Tiles::kThreads, static_cast<size_t>(shared), c.stream,
              AttendScoreKernel<kHeads>, args, static_cast<int>(slots), static_cast<int>(block_tiles));
  return c.Launched("the scores");
}

template <bool kAllParts>
Status MixRows(const StepContext& c, const AttendArgs& args, int64_t rows) {
  using M = Mix<kAllParts>;
  if (!AllowShared(AttendMixKernel<kAllParts>, M::kSharedBytes)) return c.Launched("the mix");
  const unsigned columns = Blocks(args.rank, M::kColumns);
  const dim3 grid(kAllParts ? columns : columns * static_cast<unsigned>(args.parts),
                  Blocks(args.heads, M::kHeads), static_cast<unsigned>(rows));
  LaunchEarly(c.early, grid, M::kThreads, size_t{M::kSharedBytes}, c.stream, AttendMixKernel<kAllParts>,
              args);
  return c.Launched("the mix");
}

}  // namespace

Status DsaAttend(const StepContext& c) {
  const auto& w = c.layer->dsa;
  const int64_t heads = c.hp.heads, qk = c.hp.qk_head_dim, v = c.hp.v_head_dim, rank = c.hp.kv_lora_rank;
  const int64_t width = c.hp.max_selected(), parts = AttendParts(c.hp), lanes = AttendLanes(c.hp);
  const float* const q = c.Floats(plan::Slot::kQ);
  float* const attended = c.Floats(plan::Slot::kAttended);
  const int64_t group = AttendRows(c.hp, c.rows), split_rows = std::min(group, kMostSplitRows);

  AttendArgs args{};
  args.heads = heads, args.lanes = lanes, args.rank = rank, args.width = width, args.parts = parts;
  args.tiles = AttendTiles(c.hp);
  args.query = c.scratch.Take<float>(group * heads * rank);
  args.scores = c.scratch.Take<float>(group * width * lanes);
  args.tops = c.scratch.Take<float>(group * args.tiles * lanes);
  args.sums = c.scratch.Take<float>(split_rows * heads * parts);
  args.mixes = c.scratch.Take<float>(split_rows * heads * parts * rank);
  if (c.scratch.Full()) return NoScratch(c);
  args.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(qk)));
  args.layer = c.layer_index();

  // A block of many heads keeps their queries, where they fit, and takes a part of the list after the other.
  const int64_t chunks = DotTiles<64>::Chunks(rank);
  const auto room = int64_t{c.device.shared_bytes} - 4096;  // beside what the kernels declare
  const bool roomy = room >= DotTiles<64>::SharedBytes(chunks);
  const Pairs of_heads{Pairs::Kind::kHeads};
  for (int64_t first = 0; first < c.rows; first += group) {
    const int64_t rows = std::min(group, c.rows - first);
    // The digits of one group are done with when the next one's are made: the stream keeps the order.
    const Scratch taken = c.scratch;
    Operand to_latent(c, q + first * heads * qk, qk, rows * heads, qk);
    if (Status s = to_latent.Times(w.k_b, args.query, rank, of_heads); !s.ok()) return s;
    args.rows = c.batch.rows + first;
    args.selected = c.Ints(plan::Slot::kSelected) + first * width;
    args.counts = c.Ints(plan::Slot::kSelectedCount) + first;
    if (roomy && rows > kMostSplitRows) {
      if (Status s = Score<64>(c, args, rows, chunks, 16); !s.ok()) return s;
    } else {
      if (Status s = Score<32>(c, args, rows, 2, 1); !s.ok()) return s;
    }
    args.digits = {};
    if (rows <= split_rows) {
      args.digits = TakeDigits(c, rows * heads, rank);
      if (Status s = MixRows<false>(c, args, rows); !s.ok()) return s;
      LaunchEarly(c.early,
                  dim3(Blocks(rank, kJoinThreads), static_cast<unsigned>(heads), static_cast<unsigned>(rows)),
                  kJoinThreads, 0, c.stream, AttendJoinKernel, args);
    } else {
      if (Status s = MixRows<true>(c, args, rows); !s.ok()) return s;
    }
    Operand from_latent(c, args.query, rank, rows * heads, rank, args.digits);
    if (Status s = from_latent.Times(w.v_b, attended + first * heads * v, v, of_heads); !s.ok()) return s;
    c.scratch = taken;
  }
  return c.Launched();
}

}  // namespace glint::cuda
