// spec/model.md 7.3 and 7.4: which positions a query attends to: the best complete pools, and the open tail.
#include <algorithm>
#include <cmath>

#include "cuda/context.h"
#include "cuda/dots.cuh"
#include "cuda/dsa_groups.h"
#include "cuda/launch.h"

namespace glint::cuda {
namespace {

struct SelectArgs {
  const RowView* rows;  // of the group
  int layer;
  const float* q;     // [rows][heads][dim]
  const float* w;     // [rows][heads]
  float* scores;      // [rows][stride]; null: no row can have more pools than are kept
  int32_t* selected;  // [rows][width]
  int32_t* counts;    // [rows]
  int64_t heads, dim, pool, keep, width, stride;
  float scale;  // heads^-1/2 * dim^-1/2
};

constexpr int kScoreThreads = 128;
constexpr int kScorePools = kScoreThreads / 16 * kDotRows;  // of a block at once

// Blocks (row, b): pools [kScorePools * b, + kScorePools), then those gridDim.y times that many further on. A half warp scores four
// pools, eight heads at a time, and adds the heads up in order.
__global__ void __launch_bounds__(kScoreThreads) ScoreKernel(const SelectArgs a) {
  const int64_t r = blockIdx.x;
  const RowView row = a.rows[r];
  const int64_t pools = (row.position + 1) / a.pool;
  if (pools <= a.keep) return;  // everything is selected
  const float* const pooled = row.layers[a.layer].pooled;
  const float* const q = a.q + r * a.heads * a.dim;
  const float* const w = a.w + r * a.heads;
  const int lane = static_cast<int>(threadIdx.x) % 16, half = static_cast<int>(threadIdx.x) / 16;

  for (int64_t base = int64_t{blockIdx.y} * kScorePools; base < pools;
       base += int64_t{gridDim.y} * kScorePools) {
    const int64_t first = base + half * kDotRows;
    const float* keys[kDotRows];
#pragma unroll
    for (int i = 0; i < kDotRows; ++i) {
      const int64_t p = first + i;
      keys[i] = pooled + (p < pools ? p : pools - 1) * a.dim;  // rows beyond the complete pools hold anything
    }
    float score = 0;  // of pool first + lane / 4, in four threads alike
    for (int64_t h0 = 0; h0 < a.heads; h0 += kDotHeads) {
      const float* queries[kDotHeads];
#pragma unroll
      for (int i = 0; i < kDotHeads; ++i) {
        const int64_t h = h0 + i;
        queries[i] = q + (h < a.heads ? h : a.heads - 1) * a.dim;
      }
      float dots[2];
      TileDots(lane, a.dim, queries, keys, dots);
#pragma unroll
      for (int i = 0; i < kDotHeads; ++i) {
        const float dot =
            __shfl_sync(0xffffffffu, dots[i % 2], i / 2, 4);  // of the four threads with this pool
        // StdMax(NaN, 0) is NaN: it must not turn into a score of zero.
        if (h0 + i < a.heads) score = fmaf(w[h0 + i], StdMax(dot, 0.0f), score);
      }
    }
    const int64_t p = first + lane / 4;
    if (lane % 4 == 0 && p < pools) a.scores[r * a.stride + p] = score * a.scale;
  }
}

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / 32;
constexpr int kBatch = 8;  // scores a thread loads at once

// The sum over the threads before this one; *total: over all. All threads must come; `sums` [kWarps] is shared.
__device__ uint32_t SumBefore(uint32_t value, uint32_t* sums, uint32_t* total) {
  static_assert(kWarps == 32, "one warp adds up the warps");
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const auto inclusive = [lane](uint32_t x) {
    for (unsigned d = 1; d < 32; d *= 2) {
      const uint32_t lower = __shfl_up_sync(0xffffffffu, x, d);
      if (lane >= d) x += lower;
    }
    return x;
  };
  const uint32_t own = inclusive(value);
  __syncthreads();  // nobody reads the sums of the call before any more
  if (lane == 31) sums[warp] = own;
  __syncthreads();  // all warps' sums are there
  const uint32_t warps = inclusive(sums[lane]);
  *total = __shfl_sync(0xffffffffu, warps, 31);
  const uint32_t before = __shfl_sync(0xffffffffu, warps, warp == 0 ? 0 : warp - 1);
  return (warp == 0 ? 0 : before) + own - value;
}

__device__ uint32_t Rank(float score) { return static_cast<uint32_t>(RankKey(score, 0) >> 32); }

// What separates the pools that are kept: those of a higher rank, and the first `ties` of those with this rank.
struct Cut {
  uint32_t rank, ties;
};

// The rank of the keep-th best of `pools` > keep scores, found digit by digit from the top.
__device__ Cut FindCut(const float* scores, int64_t pools, uint32_t keep, uint32_t* sums) {
  constexpr uint32_t kBins = 2 * kThreads, kNoBin = kBins;
  static_assert(kBins == 1u << 11, "two bins a thread");
  __shared__ uint32_t bins[kBins];
  __shared__ uint32_t digit, wanted;
  Cut cut{0, keep};                       // the digits so far; how many of those that share them are kept
  for (int pass = 0; pass < 3; ++pass) {  // digits of 11, 11 and 10 bits
    const int shift = pass < 2 ? 21 - 11 * pass : 0, bits = pass < 2 ? 11 : 10;
    for (uint32_t b = threadIdx.x; b < kBins; b += kThreads) bins[b] = 0;
    __syncthreads();  // the bins are empty
    for (int64_t base = 0; base < pools; base += int64_t{kBatch} * kThreads) {
      float score[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int64_t p = base + i * kThreads + threadIdx.x;
        score[i] = p < pools ? scores[p] : 0.0f;
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (base + i * kThreads >= pools) break;  // for the whole block
        const uint32_t rank = Rank(score[i]);
        uint32_t bin = kNoBin;
        if (base + i * kThreads + threadIdx.x < pools && uint64_t{rank} >> (shift + bits) == cut.rank)
          bin = rank >> shift & ((1u << bits) - 1);
        // Scores are alike: one thread adds for all of its warp that meet in a bin.
        const unsigned same = __match_any_sync(0xffffffffu, bin);
        if (bin != kNoBin && threadIdx.x % 32 == static_cast<unsigned>(__ffs(same)) - 1)
          atomicAdd(bins + bin, static_cast<uint32_t>(__popc(same)));
      }
    }
    __syncthreads();                                    // the bins are full
    const uint32_t high = kBins - 1 - 2 * threadIdx.x;  // from the top, two bins a thread
    const uint32_t in_high = bins[high], in_low = bins[high - 1];
    uint32_t all;
    const uint32_t above = SumBefore(in_high + in_low, sums, &all);
    if (above < cut.ties && cut.ties <= above + in_high + in_low) {  // of one thread alone
      const bool upper = cut.ties <= above + in_high;
      digit = upper ? high : high - 1;
      wanted = cut.ties - above - (upper ? 0 : in_high);
    }
    __syncthreads();  // the digit is known
    cut = {cut.rank << bits | digit, wanted};
  }
  return cut;
}

// A block a row.
__global__ void __launch_bounds__(kThreads) SelectKernel(const SelectArgs a) {
  __shared__ uint32_t sums[kWarps];
  const int64_t r = blockIdx.x, visible = a.rows[r].position + 1, pools = visible / a.pool;
  int32_t* const out = a.selected + r * a.width;
  int64_t count = visible;
  if (pools <= a.keep) {
    for (int64_t p = threadIdx.x; p < visible; p += kThreads) out[p] = static_cast<int32_t>(p);
  } else {
    const float* const scores = a.scores + r * a.stride;
    const Cut cut = FindCut(scores, pools, static_cast<uint32_t>(a.keep), sums);
    // In ascending order: a pool's place is the number of kept ones before it.
    uint32_t higher = 0, equal = 0;  // before this stretch of pools
    for (int64_t base = 0; base < pools; base += int64_t{kBatch} * kThreads) {
      const int64_t first = base + int64_t{threadIdx.x} * kBatch;
      uint32_t rank[kBatch], own = 0;  // own: how many are higher, and from bit 16 on how many equal
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        rank[i] = first + i < pools ? Rank(scores[first + i]) : 0;
        if (first + i < pools) own += rank[i] > cut.rank ? 1u : rank[i] == cut.rank ? 1u << 16 : 0u;
      }
      uint32_t total;
      const uint32_t before = SumBefore(own, sums, &total);
      uint32_t h = higher + (before & 0xffffu), e = equal + (before >> 16);
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (first + i >= pools) break;
        const bool is_higher = rank[i] > cut.rank, is_equal = rank[i] == cut.rank;
        if (is_higher || (is_equal && e < cut.ties)) {
          int32_t* const at = out + (int64_t{h} + (e < cut.ties ? e : cut.ties)) * a.pool;
          for (int64_t s = 0; s < a.pool; ++s) at[s] = static_cast<int32_t>((first + i) * a.pool + s);
        }
        h += is_higher ? 1 : 0;
        e += is_equal ? 1 : 0;
      }
      higher += total & 0xffffu;
      equal += total >> 16;
    }
    const int64_t kept = a.keep * a.pool, tail = pools * a.pool;
    for (int64_t i = threadIdx.x; i < visible - tail; i += kThreads)
      out[kept + i] = static_cast<int32_t>(tail + i);
    count = kept + visible - tail;
  }
  for (int64_t i = count + threadIdx.x; i < a.width; i += kThreads) out[i] = -1;
  if (threadIdx.x == 0) a.counts[r] = static_cast<int32_t>(count);
}

}  // namespace

Status DsaSelect(const StepContext& c) {
  const int64_t heads = c.hp.index_heads, dim = c.hp.index_head_dim, width = c.hp.max_selected();
  const int64_t pools = c.capacity / c.hp.index_kpool, row_bytes = SelectBytesPerRow(c.hp, c.capacity);
  const int64_t group = GroupRows(c.rows, row_bytes);
  float* scores = nullptr;
  if (row_bytes > 0) {
    scores = c.scratch.Take<float>(group * pools);
    if (scores == nullptr) return NoScratch(c);
  }
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(heads * dim)));
  // Enough blocks to fill any GPU a few times over; more would only find their row's pools used up.
  constexpr int64_t kBlocks = 4096;
  const int64_t score_blocks =
      std::clamp<int64_t>((pools + kScorePools - 1) / kScorePools, 1, (kBlocks + group - 1) / group);
  for (int64_t first = 0; first < c.rows; first += group) {
    const auto rows = static_cast<unsigned>(std::min(group, c.rows - first));
    const SelectArgs args{c.batch.rows + first,
                          c.layer_index(),
                          c.Floats(plan::Slot::kIndexQ) + first * heads * dim,
                          c.Floats(plan::Slot::kIndexW) + first * heads,
                          scores,
                          c.Ints(plan::Slot::kSelected) + first * width,
                          c.Ints(plan::Slot::kSelectedCount) + first,
                          heads,
                          dim,
                          c.hp.index_kpool,
                          c.hp.pools_kept(),
                          width,
                          pools,
                          scale};
    if (scores != nullptr) {
      const dim3 blocks(rows, static_cast<unsigned>(score_blocks));
      ScoreKernel<<<blocks, kScoreThreads, 0, c.stream>>>(args);
    }
    SelectKernel<<<rows, kThreads, 0, c.stream>>>(args);
  }
  return c.Launched();
}

}  // namespace glint::cuda
