// spec/model.md 6, step 5, absorbed: each head's query is taken to the latent space, attends to the selected
// latent rows there, and their mix is brought back. One latent row serves as key and value of every head.
//
// A row's list is cut into parts of kAttendPart entries. Few rows: blocks share out tiles of a part, heads and columns, so that one row
// fills the GPU, and a third kernel adds the parts. Many rows: a block goes through all parts of a row.
#include <algorithm>
#include <cmath>

#include "cuda/dots.cuh"
#include "cuda/dsa_attend.cuh"
#include "cuda/launch.h"
#include "cuda/math.cuh"
#include "cuda/product.h"
#include "cuda/round.cuh"

namespace glint::cuda {
namespace {

constexpr int kPart = kAttendPart;
constexpr int kTile = kAttendTile;

__device__ inline float4 Four(const float* from) { return *reinterpret_cast<const float4*>(from); }

// 32 heads with a tile of entries: DotTiles' division of the work among half warps of 8 heads and 8 entries each, a thread being one lane
// of all their sums.
template <int kTurns>
struct Score {
  static constexpr int kHeads = 32, kThreads = 256, kColumns = 128, kStride = kColumns + 16;
  static constexpr int kChunkFloats = (kHeads + kTile) * kStride;
  static constexpr int kSharedBytes = kTurns * kChunkFloats * int{sizeof(float)};
};

// Blocks (tile of the list, heads / kHeads, row). Of no effect on an H200's tokens a second (2026-11-30): going through the loops once
// before the wait, so that their code is there; letting the next launch begin only when the last copies are asked for; asking v_b and
// dsa.out into L2 meanwhile; operands read one step ahead.
template <int kTurns>
__global__ void __launch_bounds__(Score<kTurns>::kThreads, 1) AttendScoreKernel(const AttendArgs a) {
  using S = Score<kTurns>;
  constexpr int kStride = S::kStride, kWarps = S::kThreads / 32;
  extern __shared__ __align__(16) float scores_shared[];  // [kTurns][kHeads, then kTile][kStride]
  __shared__ float tops[kTile / 8][S::kHeads];
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32;
  const int64_t r = blockIdx.z, h0 = int64_t{blockIdx.y} * S::kHeads;
  const float* const latent =
      a.rows[r].layers[a.layer].latent;  // the host's, like all that says where states are
  const int chunks = static_cast<int>((a.rank + S::kColumns - 1) / S::kColumns);
  const bool wide = a.rank % 4 == 0;  // then all rows start at multiples of 16 bytes

  WaitForLaunchesBefore();
  // Not before: what begins now may count on the list and the cached rows, which the launches before this one have written.
  LetNextLaunchBegin();
  // Of the tile's entry thread % 32, before anybody knows how many there are: past the end the list holds -1.
  const int64_t of_thread = int64_t{blockIdx.x} * kTile + thread % 32;
  const int32_t listed = a.selected[r * a.width + (of_thread < a.width ? of_thread : a.width - 1)];
  const int32_t position = listed < 0 ? 0 : listed;
  const int64_t count = a.counts[r];
  if (int64_t{blockIdx.x} * kTile >= count) return;

  // Each warp copies four rows of the queries and four of the cached rows.
  int load_turn = 0;
  const auto load = [&](int chunk) {
    const int64_t first = int64_t{chunk} * S::kColumns, rest = a.rank - first;
    const int left = static_cast<int>(rest < S::kColumns ? rest : S::kColumns);
    const auto row = [&](int i) {  // of the warp's eight
      const int64_t h = h0 + warp + i * kWarps;
      const int32_t at = __shfl_sync(0xffffffffu, position, (warp + i * kWarps) % kTile);
      const float* const from = i < 4 ? a.query + (r * a.heads + (h < a.heads ? h : a.heads - 1)) * a.rank
                                      : latent + int64_t{at} * a.rank;
      Copy128(scores_shared + load_turn * S::kChunkFloats + (warp + i * kWarps) * kStride, from + first, left,
              wide, thread % 32);
    };
    if (wide) {
#pragma unroll
      for (int i = 0; i < 8; ++i) row(i);
    } else {
#pragma unroll 1
      for (int i = 0; i < 8; ++i) row(i);
    }
    load_turn = load_turn + 1 == kTurns ? 0 : load_turn + 1;
  };

  const int half = thread / 16, lane = thread % 16, key0 = half % 4, head0 = half / 4 * 8;
  // Rows key0 + 4 i, in pairs: those come first that the thread will have after the first exchanges.
  const int swap = lane >> 2;
  const float* const heads = scores_shared + head0 * kStride + lane;
  const float* keys[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) keys[i] = scores_shared + (S::kHeads + key0 + (i ^ swap) * 8) * kStride + lane;
  float sum[8][8] = {};  // [entry][head]
  int offset = 0;
#pragma unroll 1
  for (int chunk = 1 - kTurns; chunk < chunks; ++chunk) {
    if (chunk + kTurns - 1 < chunks) load(chunk + kTurns - 1);
    CommitCopies();
    if (chunk < 0) continue;
    WaitForCopies<kTurns - 1>();
    __syncthreads();  // this chunk has arrived, for all
    const int64_t left = a.rank - int64_t{chunk} * S::kColumns;
    const int columns = static_cast<int>(left < S::kColumns ? left : S::kColumns);
    // Steps of sixteen columns; zeros past the end change no sum.
#pragma unroll 2
    for (int k = 0; k < columns; k += 16) {
      float of_heads[8], of_keys[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) of_heads[i] = heads[offset + k + i * kStride];
#pragma unroll
      for (int i = 0; i < 8; ++i) of_keys[i] = keys[i / 2][offset + k + i % 2 * 4 * kStride];
#pragma unroll
      for (int i = 0; i < 64; ++i)
        sum[i / 8][i % 8] = fmaf(of_heads[i % 8], of_keys[i / 8], sum[i / 8][i % 8]);
    }
    __syncthreads();  // this chunk is read, and another may take its place
    offset = offset == (kTurns - 1) * S::kChunkFloats ? 0 : offset + S::kChunkFloats;
  }
  // The sums over lanes, l[i] + l[i + 8] first, then 4, 2 and 1 apart; partners share out what they have.
#pragma unroll
  for (int i = 0; i < 32; ++i) sum[i / 8][i % 8] += __shfl_xor_sync(0xffffffffu, sum[i / 8 + 4][i % 8], 8);
#pragma unroll
  for (int i = 0; i < 16; ++i) sum[i / 8][i % 8] += __shfl_xor_sync(0xffffffffu, sum[i / 8 + 2][i % 8], 4);
  const bool second = (lane & 2) != 0, odd = (lane & 1) != 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float give = second ? sum[0][i] : sum[1][i], keep = second ? sum[1][i] : sum[0][i];
    sum[0][i] = keep + __shfl_xor_sync(0xffffffffu, give, 2);
  }
  float score[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float give = odd ? sum[0][i] : sum[0][i + 4], keep = odd ? sum[0][i + 4] : sum[0][i];
    score[i] = (keep + __shfl_xor_sync(0xffffffffu, give, 1)) * a.scale;
  }
  const int key = key0 + lane / 2 * 4, head = head0 + lane % 2 * 4;
  const int64_t e = int64_t{blockIdx.x} * kTile + key;
  const bool there = e < count;
  if (there && h0 + head < a.lanes)
    *reinterpret_cast<float4*>(a.scores + (r * a.width + e) * a.lanes + h0 + head) =
        make_float4(score[0], score[1], score[2], score[3]);
    // With a NaN the head's mix is NaN, whatever the largest score.
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float top = there ? score[i] : __int_as_float(static_cast<int>(0xff800000u));
#pragma unroll
    for (int apart = 2; apart < 16; apart *= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, apart));
    if (lane < 2) tops[key0][head + i] = top;
  }
  __syncthreads();  // the largest of each half warp's entries are there
  if (thread < S::kHeads && h0 + thread < a.lanes) {
    float all = tops[0][thread];
#pragma unroll
    for (int i = 1; i < kTile / 8; ++i) all = fmaxf(all, tops[i][thread]);
    a.tops[(r * a.tiles + blockIdx.x) * a.lanes + h0 + thread] = all;
  }
}

// The mix of 32 heads in 128 columns by one part of the list, all of which is in shared memory. A warp has all heads and 32 columns, a
// thread 8 heads and 4 columns; one more warp adds up the weights meanwhile.
struct Mix {
  static constexpr int kHeads = 32, kColumns = 128, kMixing = 128, kThreads = kMixing + 32;
  static constexpr int kWeightFloats = kPart * kHeads;
  static constexpr int kSharedBytes = (kWeightFloats + kPart * kColumns) * int{sizeof(float)};
};

// Blocks (column tiles of one part after the other, heads / kHeads, row).
__global__ void __launch_bounds__(Mix::kThreads, 2) AttendMixKernel(const AttendArgs a) {
  using M = Mix;
  extern __shared__ __align__(16) float mix_shared[];
  float* const weights = mix_shared;                  // [kPart][kHeads] exp(score - top)
  float* const entries = weights + M::kWeightFloats;  // [kPart][kColumns]
  __shared__ float4 tops[M::kMixing / 8][M::kHeads / 4];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int64_t r = blockIdx.z, h0 = int64_t{blockIdx.y} * M::kHeads;
  const int count = a.counts[r];
  // The last part, of few entries, comes last: with a block a multiprocessor, the blocks that are one too many have it.
  const unsigned column_tiles = gridDim.x / static_cast<unsigned>(a.parts);
  const int part = static_cast<int>(blockIdx.x / column_tiles), begin = part * kPart;
  const int64_t d0 = int64_t{blockIdx.x % column_tiles} * M::kColumns;
  const int left = count - begin < kPart ? count - begin : kPart;  // entries of the part, or none or less

  // The list and the cached rows were there before the scores' launch began.
  if (warp < M::kMixing / 32 && left > 0) {
    const float* const latent = a.rows[r].layers[a.layer].latent + d0;
    const int32_t* const list = a.selected + r * a.width + begin;
    const bool wide = a.rank % 4 == 0;
    const int columns = static_cast<int>(a.rank - d0 < M::kColumns ? a.rank - d0 : M::kColumns);
    const int of_thread = warp * 32 + lane < left ? list[warp * 32 + lane] : 0;
    const int n = left - warp * 32 < 32 ? left - warp * 32 : 32;
    const auto copy = [&](int i) {
      Copy128(entries + (warp * 32 + i) * M::kColumns,
              latent + int64_t{__shfl_sync(0xffffffffu, of_thread, i)} * a.rank, columns, wide, lane);
    };
    if (wide) {
#pragma unroll 4
      for (int i = 0; i < n; ++i) copy(i);
    } else {
#pragma unroll 1
      for (int i = 0; i < n; ++i) copy(i);
    }
  }
  CommitCopies();
  const int share =
      thread / 8;  // where scores become weights: of four heads a thread, in every sixteenth entry
  const int64_t score_head = h0 + thread % 8 * 4 < a.lanes ? h0 + thread % 8 * 4 : a.lanes - 4;
  const int x = (lane & 1) + (lane >> 1 & 2) + (lane >> 2 & 4), y = (lane >> 1 & 1) + (lane >> 2 & 2);
  const float* const w = weights + y * 4;
  const float* const v = entries + warp * 32 + x * 4;
  WaitForLaunchesBefore();
  LetNextLaunchBegin();
  if (left <= 0) return;
  const int tiles = (count + kTile - 1) / kTile;
  const float lowest = __int_as_float(static_cast<int>(0xff800000u));
  float4 top = make_float4(lowest, lowest, lowest, lowest);  // the largest scores of the heads
  const auto larger = [&top](const float4& other) {
    top = make_float4(fmaxf(top.x, other.x), fmaxf(top.y, other.y), fmaxf(top.z, other.z),
                      fmaxf(top.w, other.w));
  };
  if (thread < M::kMixing) {
    const float* const of_heads = a.scores + (r * a.width + begin) * a.lanes + score_head;
#pragma unroll 4
    for (int i = share; i < kPart; i += 16)
      CopyAsyncOrZero<16>(weights + i * M::kHeads + thread % 8 * 4, of_heads + (i < left ? i : 0) * a.lanes,
                          i < left);
    CommitCopies();
    const float* const of_tiles = a.tops + r * a.tiles * a.lanes + score_head;
#pragma unroll 5
    for (int t = share; t < tiles; t += 16) larger(*reinterpret_cast<const float4*>(of_tiles + t * a.lanes));
    tops[share][thread % 8] = top;
  }
  __syncthreads();  // all shares are there
  if (thread < M::kMixing) {
#pragma unroll
    for (int i = 0; i < 16; ++i) larger(tops[i][thread % 8]);
    WaitForCopies<0>();
#pragma unroll 2
    for (int i = 0; i < kPart; i += 16) {
      float4& four = *reinterpret_cast<float4*>(weights + (i + share) * M::kHeads + thread % 8 * 4);
      four = make_float4(ExpNotAboveZero(four.x - top.x), ExpNotAboveZero(four.y - top.y),
                         ExpNotAboveZero(four.z - top.z), ExpNotAboveZero(four.w - top.w));
    }
  }
  __syncthreads();  // the weights and the entries are there
  if (thread >= M::kMixing) {
    if (d0 != 0) return;
    float sum = 0;
#pragma unroll 8
    for (int e = 0; e < left; ++e) sum += weights[e * M::kHeads + lane];
    if (h0 + lane < a.heads) a.sums[(r * a.heads + h0 + lane) * a.parts + part] = sum;
    return;
  }
  float mix[8][4] = {};  // [head][column]
#pragma unroll 4
  for (int e = 0; e < left; ++e) {
    const float4 w0 = Four(w + e * M::kHeads), w1 = Four(w + e * M::kHeads + 16),
                 columns = Four(v + e * M::kColumns);
    const float of_heads[8] = {w0.x, w0.y, w0.z, w0.w, w1.x, w1.y, w1.z, w1.w};
    const float of_columns[4] = {columns.x, columns.y, columns.z, columns.w};
#pragma unroll
    for (int i = 0; i < 32; ++i)
      mix[i / 4][i % 4] = fmaf(of_heads[i / 4], of_columns[i % 4], mix[i / 4][i % 4]);
  }
  const int64_t d = d0 + warp * 32 + x * 4;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int64_t h = h0 + y * 4 + i / 4 * 16 + i % 4;
    float* const to = a.mixes + ((r * a.heads + h) * a.parts + part) * a.rank + d;
    if (h >= a.heads) continue;
    if (a.rank % 4 == 0) {
      if (d < a.rank)
        *reinterpret_cast<float4*>(to) = make_float4(mix[i][0], mix[i][1], mix[i][2], mix[i][3]);
    } else {
      for (int j = 0; j < 4; ++j)
        if (d + j < a.rank) to[j] = mix[i][j];
    }
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

template <int kTurns>
Status Scores(const StepContext& c, const AttendArgs& args, int64_t rows) {
  using S = Score<kTurns>;
  if (!AllowShared(AttendScoreKernel<kTurns>, S::kSharedBytes)) return c.Launched("the scores");
  LaunchEarly(
      c, dim3(static_cast<unsigned>(args.tiles), Blocks(args.heads, S::kHeads), static_cast<unsigned>(rows)),
      S::kThreads, size_t{S::kSharedBytes}, AttendScoreKernel<kTurns>, args);
  return c.Launched("the scores");
}

Status MixParts(const StepContext& c, const AttendArgs& args, int64_t rows) {
  if (!AllowShared(AttendMixKernel, Mix::kSharedBytes)) return c.Launched("the mix");
  LaunchEarly(c,
              dim3(Blocks(args.rank, Mix::kColumns) * static_cast<unsigned>(args.parts),
                   Blocks(args.heads, Mix::kHeads), static_cast<unsigned>(rows)),
              Mix::kThreads, size_t{Mix::kSharedBytes}, AttendMixKernel, args);
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
  const bool roomy = HasRoomForScoresByRow(c, rank);
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
      if (Status s = ScoreByRow(c, args, rows); !s.ok()) return s;
    } else {
      args.top_entries = kTile;
      constexpr int kDeclared = 4096;  // shared memory that the kernel declares beside, at most
      const bool three = Score<3>::kSharedBytes + kDeclared <= c.device.shared_bytes;
      if (Status s = three ? Scores<3>(c, args, rows) : Scores<2>(c, args, rows); !s.ok()) return s;
    }
    args.digits = {};
    if (rows <= split_rows) {
      args.digits = TakeDigits(c, rows * heads, rank);
      if (Status s = MixParts(c, args, rows); !s.ok()) return s;
      LaunchEarly(c.early,
                  dim3(Blocks(rank, kJoinThreads), static_cast<unsigned>(heads), static_cast<unsigned>(rows)),
                  kJoinThreads, 0, c.stream, AttendJoinKernel, args);
    } else {
      if (Status s = MixByRow(c, args, rows); !s.ok()) return s;
    }
    Operand from_latent(c, args.query, rank, rows * heads, rank, args.digits);
    if (Status s = from_latent.Times(w.v_b, attended + first * heads * v, v, of_heads); !s.ok()) return s;
    c.scratch = taken;
  }
  return c.Launched();
}

}  // namespace glint::cuda
