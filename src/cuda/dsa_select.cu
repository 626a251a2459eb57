// spec/model.md 7.3 and 7.4: which positions a query attends to: the best complete pools, and the open tail.
#include <algorithm>
#include <cmath>

#include "cuda/context.h"
#include "cuda/dots.cuh"
#include "cuda/dsa_groups.h"
#include "cuda/launch.h"
#include "cuda/math.cuh"

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

constexpr int kScoreHeads = 32;
using Tiles = DotTiles<kScoreHeads>;

constexpr int kTogether = 4;  // tiles whose heads are added up at once

// Blocks (row, b): tiles of pools b, b + gridDim.y, ... A thread adds up a pool's heads in order, while the others wait.
__global__ void __launch_bounds__(Tiles::kThreads, 2) ScoreKernel(const SelectArgs a, const int slots) {
  extern __shared__ __align__(16) float dots_shared[];
  __shared__ float dots[kTogether * Tiles::kKeys]
                       [kScoreHeads + 1];  // one more column keeps the threads' reads apart
  LetNextLaunchBegin();
  const int64_t r = blockIdx.x;
  const RowView row = a.rows[r];  // the host's, like all that says where states are
  const float* const pooled = row.layers[a.layer].pooled;
  WaitForLaunchesBefore();
  const int64_t pools = (row.position + 1) / a.pool;
  if (pools <= a.keep) return;  // everything is selected
  const float* const q = a.q + r * a.heads * a.dim;
  const float* const w = a.w + r * a.heads;
  const int64_t all = (pools + Tiles::kKeys - 1) / Tiles::kKeys, b = blockIdx.y, blocks = gridDim.y;
  const auto first_pool = [&](int tile) { return (b + tile * blocks) * Tiles::kKeys; };
  const int thread = static_cast<int>(threadIdx.x);
  const int groups = static_cast<int>((a.heads + kScoreHeads - 1) / kScoreHeads),
            count = static_cast<int>(b < all ? (all - b + blocks - 1) / blocks : 0),
            together =
                groups == 1 ? kTogether : 1;  // the score of a pool goes from group to group in its thread
  float score = 0;
  const Tiles tiles;
  tiles.Run(
      dots_shared, slots, count, groups, a.dim,
      [&](int group, int i) {
        const int64_t h = int64_t{group} * kScoreHeads + i;
        return q + (h < a.heads ? h : a.heads - 1) * a.dim;
      },
      [&](int tile, int i) {  // rows beyond the complete pools hold anything
        const int64_t p = first_pool(tile) + i;
        return pooled + (p < pools ? p : pools - 1) * a.dim;
      },
      [&](int tile, int group, const float(&sums)[4]) {
        const int turn = tile % together;
#pragma unroll
        for (int i = 0; i < 4; ++i) dots[turn * Tiles::kKeys + tiles.key][tiles.first_query + i] = sums[i];
        if (turn + 1 < together && tile + 1 < count) return;
        __syncthreads();  // the tiles' dots are there
        const int of_tile = thread / Tiles::kKeys;
        if (of_tile > turn) return;
        const int64_t h0 = int64_t{group} * kScoreHeads;
        const int heads = static_cast<int>(a.heads - h0 < kScoreHeads ? a.heads - h0 : kScoreHeads);
        if (group == 0) score = 0;
#pragma unroll 8
        for (int h = 0; h < heads; ++h)  // StdMax(NaN, 0) is NaN: it must not turn into a score of zero
          score = fmaf(w[h0 + h], StdMax(dots[thread][h], 0.0f), score);
        const int64_t p = first_pool(tile - turn + of_tile) + thread % Tiles::kKeys;
        if (h0 + heads == a.heads && p < pools) a.scores[r * a.stride + p] = score * a.scale;
      });
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

// The blocks that work on one row: one, or a cluster, whose blocks read each other's shared memory (sm_90 and up).
template <int kBlocks>
struct Team {
  static __device__ int Mine() { return static_cast<int>(blockIdx.x % kBlocks); }
  // All threads of all blocks are here, and see what each other's shared memory got before.
  static __device__ void Sync() {
    if constexpr (kBlocks == 1) {
      __syncthreads();
    } else {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
      asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
#endif
    }
  }
  // Where another block has what this one has at `mine` in its shared memory.
  template <class T>
  static __device__ const T* Of(int block, const T* mine) {
    const T* there = mine;
    if constexpr (kBlocks > 1) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
      asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(mine), "r"(block));
#endif
    }
    return there;
  }
};

// A row's scores as its blocks go through them: `each` neighbours a thread, stretch by stretch. A single stretch stays in registers.
template <int kBlocks>
struct Ranks {
  const float* scores;
  int64_t pools;
  int each;  // at most kBatch
  uint32_t rank[kBatch];

  __device__ Ranks(const float* of, int64_t n) : scores(of), pools(n) {
    const int64_t wanted = (n + kBlocks * kThreads - 1) / (kBlocks * kThreads);
    each = static_cast<int>(wanted < kBatch ? wanted : kBatch);
    if (Stretch() >= pools) Load(0);
  }
  __device__ int64_t Stretch() const { return int64_t{each} * (kBlocks * kThreads); }
  __device__ int64_t First(int64_t base) const {
    return base + (int64_t{Team<kBlocks>::Mine()} * kThreads + threadIdx.x) * each;
  }
  // How many of the thread's pools there are, from First(base) on; their ranks are in `rank`.
  __device__ int Take(int64_t base) {
    if (Stretch() < pools) Load(base);
    const int64_t left = pools - First(base);
    return static_cast<int>(left < 0 ? 0 : left < each ? left : each);
  }

 private:
  __device__ void Load(int64_t base) {
    float score[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int64_t p = First(base) + i;
      score[i] = i < each && p < pools ? scores[p] : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) rank[i] = Rank(score[i]);
  }
};

// The rank of the keep-th best of more than `keep` scores, found digit by digit from the top.
template <int kBlocks>
__device__ Cut FindCut(Ranks<kBlocks>& ranks, uint32_t keep, uint32_t* sums) {
  constexpr uint32_t kBins = 2 * kThreads, kNoBin = kBins;
  static_assert(kBins == 1u << 11, "two bins a thread");
  __shared__ uint2
      pairs[3][kThreads];  // bins of each pass: other blocks may still read those of the pass before
  __shared__ uint32_t digit, wanted;
  Cut cut{0, keep};                       // the digits so far; how many of those that share them are kept
  for (int pass = 0; pass < 3; ++pass) {  // digits of 11, 11 and 10 bits
    const int shift = pass < 2 ? 21 - 11 * pass : 0, bits = pass < 2 ? 11 : 10;
    auto* const bins = reinterpret_cast<uint32_t*>(pairs[pass]);
    pairs[pass][threadIdx.x] = make_uint2(0, 0);
    __syncthreads();  // the bins are empty
    for (int64_t base = 0; base < ranks.pools; base += ranks.Stretch()) {
      const int there = ranks.Take(base);
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (i >= ranks.each) break;  // for the whole block
        uint32_t bin = kNoBin;
        if (i < there && uint64_t{ranks.rank[i]} >> (shift + bits) == cut.rank)
          bin = ranks.rank[i] >> shift & ((1u << bits) - 1);
        // Scores are alike: one thread adds for all of its warp that meet in a bin.
        const unsigned same = __match_any_sync(0xffffffffu, bin);
        if (bin != kNoBin && threadIdx.x % 32 == static_cast<unsigned>(__ffs(same)) - 1)
          atomicAdd(bins + bin, static_cast<uint32_t>(__popc(same)));
      }
    }
    Team<kBlocks>::Sync();                              // the bins are full
    const uint32_t high = kBins - 1 - 2 * threadIdx.x;  // from the top, two bins a thread
    uint32_t in_high = 0, in_low = 0, all;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      const uint2 pair = *Team<kBlocks>::Of(b, &pairs[pass][high / 2]);
      in_low += pair.x, in_high += pair.y;
    }
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

// kBlocks blocks a row.
template <int kBlocks>
__global__ void __launch_bounds__(kThreads) SelectKernel(const SelectArgs a) {
  using T = Team<kBlocks>;
  __shared__ uint32_t sums[kWarps], totals[2];  // totals: of this block, in stretches by turns
  LetNextLaunchBegin();
  const int mine = T::Mine(), thread = mine * kThreads + static_cast<int>(threadIdx.x);
  const int64_t r = blockIdx.x / kBlocks, visible = a.rows[r].position + 1, pools = visible / a.pool;
  WaitForLaunchesBefore();
  int32_t* const out = a.selected + r * a.width;
  int64_t count = visible;
  if (pools <= a.keep) {
    for (int64_t p = thread; p < visible; p += kBlocks * kThreads) out[p] = static_cast<int32_t>(p);
  } else {
    Ranks<kBlocks> ranks(a.scores + r * a.stride, pools);
    [[maybe_unused]] int turn = 0;
    const Cut cut = FindCut(ranks, static_cast<uint32_t>(a.keep), sums);
    // In ascending order: a pool's place is the number of kept ones before it.
    uint32_t higher = 0, equal = 0;  // before this stretch of pools
    for (int64_t base = 0; base < pools; base += ranks.Stretch()) {
      const int there = ranks.Take(base);
      uint32_t own = 0;  // how many are higher, and from bit 16 on how many equal
#pragma unroll
      for (int i = 0; i < kBatch; ++i)
        if (i < there) own += ranks.rank[i] > cut.rank ? 1u : ranks.rank[i] == cut.rank ? 1u << 16 : 0u;
      uint32_t total;
      const uint32_t before = SumBefore(own, sums, &total);
      uint32_t h = higher + (before & 0xffffu), e = equal + (before >> 16);
      if constexpr (kBlocks > 1) {
        if (threadIdx.x == 0) totals[turn] = total;
        T::Sync();  // all blocks' totals are there; those of two stretches ago are read
#pragma unroll
        for (int b = 0; b < kBlocks; ++b) {
          const uint32_t of_block = *T::Of(b, &totals[turn]);
          higher += of_block & 0xffffu, equal += of_block >> 16;
          if (b < mine) h += of_block & 0xffffu, e += of_block >> 16;
        }
        turn ^= 1;
      } else {
        higher += total & 0xffffu, equal += total >> 16;
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (i >= there) break;
        const bool is_higher = ranks.rank[i] > cut.rank, is_equal = ranks.rank[i] == cut.rank;
        if (is_higher || (is_equal && e < cut.ties)) {
          int32_t* const at = out + (int64_t{h} + (e < cut.ties ? e : cut.ties)) * a.pool;
          const int64_t p = (ranks.First(base) + i) * a.pool;
          for (int64_t s = 0; s < a.pool; ++s) at[s] = static_cast<int32_t>(p + s);
        }
        h += is_higher ? 1 : 0;
        e += is_equal ? 1 : 0;
      }
    }
    const int64_t kept = a.keep * a.pool, tail = pools * a.pool;
    for (int64_t i = thread; i < visible - tail; i += kBlocks * kThreads)
      out[kept + i] = static_cast<int32_t>(tail + i);
    count = kept + visible - tail;
  }
  for (int64_t i = count + thread; i < a.width; i += kBlocks * kThreads) out[i] = -1;
  if (thread == 0) a.counts[r] = static_cast<int32_t>(count);
  if constexpr (kBlocks > 1) T::Sync();  // nobody reads this block's shared memory any more
}

// One block for as many pools as it holds in registers; for more, where there are clusters, the largest that every device has.
void LaunchSelect(const StepContext& c, const SelectArgs& args, unsigned rows) {
  constexpr int kCluster = 8;
  if (c.device.compiled_major < 9 || args.stride <= int64_t{kBatch} * kThreads)
    return LaunchEarly(c.early, dim3(rows), kThreads, 0, c.stream, SelectKernel<1>, args);
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {kCluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(rows * kCluster);
  config.blockDim = dim3(kThreads);
  config.stream = c.stream;
  config.attrs = attributes;
  config.numAttrs = 2;
  cudaLaunchKernelEx(&config, SelectKernel<kCluster>, args);
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
  // Two blocks of scores for each multiprocessor: more would read their queries for fewer pools.
  const int64_t tiles = (pools + Tiles::kKeys - 1) / Tiles::kKeys, together = std::min(group, c.rows),
                blocks = (2 * c.device.multiprocessors + together - 1) / together;
  const int64_t chunks = (heads + kScoreHeads - 1) / kScoreHeads * Tiles::Chunks(dim);
  const int slots = static_cast<int>(std::min<int64_t>(chunks, 2)), shared = Tiles::SharedBytes(slots);
  if (!AllowShared(ScoreKernel, shared)) return c.Launched("the scores");
  const bool early = c.early;
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
      const dim3 grid(rows, static_cast<unsigned>(std::clamp<int64_t>(blocks, 1, tiles)));
      LaunchEarly(early, grid, Tiles::kThreads, static_cast<size_t>(shared), c.stream, ScoreKernel, args,
                  slots);
    }
    LaunchSelect(c, args, rows);
  }
  return c.Launched();
}

}  // namespace glint::cuda
