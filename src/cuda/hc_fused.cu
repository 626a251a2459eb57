// Levers hc.fused (hc.pre and the sublayer's norm in one launch), hc.block (hc.post before them as well) and hc.moe (moe.combine before
// those), for few rows: the canonical kernels are four or five launches whose blocks are few, and all of them wait for memory and for
// one another.
//
// A row has a cluster of 4 D / 1,024 blocks. A block takes one part of 1,024 columns of the streams and all of fn's columns there; it
// mixes the part (reading the same columns of all streams, whose new values it thus has all), rounds it, multiplies, and sends the
// part's products and sum of squares to the whole cluster. Then each block has all it needs to collapse a quarter of its columns,
// sends those to all, takes the norm's sum like all others, and writes its quarter; one warp of the first block does the Sinkhorn
// steps meanwhile, and one warp of each the norm's sum.
//
// Where a version with one warp for both spent its time, in microseconds from the moment the launches before had ended (time stamps in
// the graph of a token, H200, 2026-11-30, D = 4,096, one row): columns there 1.7 (weights asked for after the wait came between them),
// mixed and rounded 2.3, integer sums 3.0, chains of a part sent 3.2, all parts there 3.5, logits and sigmoids 4.2, all collapsed
// columns there 5.0, the norm's sum 6.3 (256 fmas of 4 cycles at least), norm and rounding 6.9; 40 Sinkhorn steps of some 120 cycles
// beside that 7.1; the next launch went on at 7.6. With events around it a step took 11.2 then and takes 10.3 now.
#include <cuda_runtime.h>

#include <algorithm>

#include "cuda/async.cuh"
#include "cuda/cluster.cuh"
#include "cuda/context.h"
#include "cuda/grid_decoders.cuh"
#include "cuda/hc_fused.h"
#include "cuda/hc_pre.h"
#include "cuda/hc_sinkhorn.cuh"
#include "cuda/launch.h"
#include "cuda/norm.cuh"
#include "cuda/norm.h"
#include "cuda/product_kernels.cuh"
#include "cuda/round.cuh"

namespace glint::cuda {
namespace {

constexpr int kStreams = 4, kMix = 2 * kStreams + kStreams * kStreams;
constexpr int kRowTiles = (kMix + kTileRows - 1) / kTileRows, kMixRows = kRowTiles * kTileRows;
constexpr int kWorkers = 512, kWorkWarps = kWorkers / 32;  // of columns
constexpr int kNormWarp = kWorkWarps,
              kSinkhornWarp = kWorkWarps + 1;  // and two for what is no work on columns
constexpr int kHcThreads = kWorkers + 64;
constexpr int kMostUsed = 8;  // experts of a row
constexpr int kPartBlocks = kPartColumns / 32, kBlocksOfWarp = kPartBlocks / kWorkWarps;
constexpr int kMostParts = 16, kMostColumns = kMostParts * kPartColumns / kStreams;  // of D
constexpr int kOwnColumns = kPartColumns / kStreams;  // of D, that a block collapses

// What a launch begins with; the stages behind it follow.
enum class From { kPre, kPost, kCombine };

struct HcFusedArgs {
  float* streams;        // [rows][4][D]
  const float* branch;   // [rows][D]: kPost
  const float* experts;  // [rows][used][D], with weights [rows][used], and what is added, [rows][D]: kCombine
  const float *expert_weights, *shared_out;
  const uint8_t* fn;
  int64_t tiles;           // column tiles of fn
  const float* fn_scales;  // [1], or null
  const uint8_t* table;
  const float *scale, *base, *norm;  // [3], [24], [D]
  float *x, *post, *comb;            // [rows][D], [rows][4], [rows][4][4]: those of the sublayer that begins
  Digits digits;                     // of x; or none
  int d, used;
  int64_t iters;
  From begin;
  float rms_eps, hc_eps, of_streams,
      of_row;  // 1 / 4 D and 1 / D: powers of two, so that a product with them is the quotient
};

// One fma of a chain of the product.
struct Operands {
  float product, scale;
};

// Rows of n columns lie by the lanes of their sum: column 16 i + c at c * LanePitch(n) + i.
__host__ __device__ constexpr int LanePitch(int n) { return n / 16 + 4; }  // 8 lanes meet 32 banks

template <class D>
struct HcShared {
  static constexpr int kOfBlock = D::kUnits * (D::kMinima ? 2 : 1);
  union __align__(16) {
    Operands operands[kPartBlocks * kOfBlock][kMixRows];  // until the cluster's first exchange
    float collapsed[16 * LanePitch(kMostColumns)];        // by lanes, from all blocks, in the second
  };
  __align__(16) int8_t digits[kPartBlocks][2][32];
  float scales[kPartBlocks];
  int sums[kPartBlocks][2];
  __align__(
      16) float part[16 * LanePitch(kPartColumns)];  // by lanes; later the columns that this block collapsed
  __align__(16) float z[kMostParts][kMixRows];       // from all blocks, in the first exchange
  float squares[kMostParts];                         // like z
  Mailbox products_box, collapsed_box;               // of the first and the second exchange
  float pre[kStreams];
  float inverse_rms;
};

// Barriers of the threads that work on columns, and of those and the warp that takes the norm; the last one goes its own way.
__device__ inline void SyncWorkers() { asm volatile("bar.sync 1, %0;" ::"n"(kWorkers) : "memory"); }
__device__ inline void SyncWithNorm() { asm volatile("bar.sync 2, %0;" ::"n"(kWorkers + 32) : "memory"); }

// Dot16 with itself of a row of `columns` (a multiple of 512) that lies by lanes, by a warp whose halves do the same. Each step waits
// for the one before it; the entries are fetched ahead.
__device__ inline float LaneSquares(const float* x, int columns, int lane) {
  constexpr int kAhead = 4;
  const auto* const from = reinterpret_cast<const float4*>(x + lane % 16 * LanePitch(columns));
  const int fours = columns / 64;
  float sum = 0;
  float4 now[kAhead], next[kAhead];
  const auto fetch = [&](float4(&to)[kAhead], int first) {
    first = first < fours ? first : 0;  // nothing is left: anything will do
#pragma unroll
    for (int i = 0; i < kAhead; ++i) to[i] = from[first + i];
  };
  const auto add = [&](const float4(&v)[kAhead]) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      sum = fmaf(v[i].x, v[i].x, sum);
      sum = fmaf(v[i].y, v[i].y, sum);
      sum = fmaf(v[i].z, v[i].z, sum);
      sum = fmaf(v[i].w, v[i].w, sum);
    }
  };
  fetch(now, 0);
  for (int first = 0; first < fours; first += 2 * kAhead) {
    fetch(next, first + kAhead);
    add(now);
    fetch(now, first + 2 * kAhead);
    add(next);
  }
  return SumLanes16(sum);
}
__device__ inline float InverseRmsOfShare(float sum, float share, float eps) {
  return 1.0f / sqrtf(sum * share + eps);
}

// What hc.post mixes with: post [to], comb [from][to] of a row, both at multiples of 16 bytes.
struct Shares {
  float4 post, comb[kStreams];
  __device__ Shares(const float* of_post, const float* of_comb) {
    post = __ldcg(reinterpret_cast<const float4*>(of_post));
#pragma unroll
    for (int j = 0; j < kStreams; ++j) comb[j] = __ldcg(reinterpret_cast<const float4*>(of_comb) + j);
  }
  __device__ static float At(const float4& v, int i) {
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
  }
  // What stream `to` becomes in a column.
  __device__ float Mixed(int to, float branch, const float (&source)[kStreams]) const {
    float next = At(post, to) * branch;
#pragma unroll
    for (int j = 0; j < kStreams; ++j) next = fmaf(At(comb[j], to), source[j], next);
    return next;
  }
};

template <class D>
__device__ inline DigitLane SharedDigits(const int8_t* at, int t) {
  if constexpr (D::kOrder == Order::kWide) {
    const uint2 v = *reinterpret_cast<const uint2*>(at + 8 * t);
    return {v.x, v.y};
  } else {
    return {*reinterpret_cast<const uint32_t*>(at + 4 * t),
            *reinterpret_cast<const uint32_t*>(at + 16 + 4 * t)};
  }
}

// The operands of all units of a tile of fn, whose first block is `first_block` of the part.
template <class D>
__device__ inline void TileOperands(HcShared<D>& shared, const typename D::Regs& w, int row_tile,
                                    int first_block, const uint8_t* table, int lane) {
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int b = 0; b < D::kBlocks; ++b) {
    const int block = first_block + b;
    const uint4 code = D::Codes(w, b, t, table);
    // One row of activations: columns 0 and 1 of the B fragment are its high and low digits.
    DigitLane digits{0, 0};
    if (g < 2) digits = SharedDigits<D>(shared.digits[block][g], t);
    const float d = shared.scales[block];
#pragma unroll
    for (int unit = 0; unit < D::kUnits; ++unit) {
      int product[2];
      UnitSums<D>(code, digits, unit, t, product);
      if (t != 0) continue;  // the first of four lanes has the sums of the row
      const int n = !D::kMinima      ? 0
                    : D::kUnits == 1 ? shared.sums[block][0] + shared.sums[block][1]
                                     : shared.sums[block][unit];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        Operands* const out = shared.operands[block * HcShared<D>::kOfBlock + unit * (D::kMinima ? 2 : 1)] +
                              row_tile * kTileRows + g + 8 * half;
        out[0] = {__int2float_rn(product[half]), D::Scale(w, half, b, unit) * d};
        if constexpr (D::kMinima) out[kMixRows] = {__int2float_rn(n), D::Minimum(w, half, b, unit) * d};
      }
    }
  }
}

// What a warp that mixes wants of the weights: a mix a lane. Not by __ldg, here and below: such loads come after the wait for the
// launches before, and all others behind them.
struct MixWeights {
  float scale, base, of_fn;
  MixWeights() = default;
  __device__ MixWeights(const HcFusedArgs& a, int lane) {
    const int mix = lane < kMix ? lane : kMix - 1;
    scale = a.scale[mix < kStreams ? 0 : mix < 2 * kStreams ? 1 : 2];
    base = a.base[mix];
    of_fn = a.fn_scales != nullptr ? *a.fn_scales : 1.0f;
  }
};

// The mix of this lane from all parts, before its sigmoid.
template <class D>
__device__ inline float MixLogit(const HcShared<D>& shared, const HcFusedArgs& a, const MixWeights& w,
                                 int parts, int lane) {
  const int mix = lane < kMix ? lane : kMix - 1;
  float z[kMostParts], squares[kMostParts];  // all on their way at once; nothing is there beyond the parts
#pragma unroll
  for (int i = 0; i < kMostParts; ++i) z[i] = shared.z[i][mix], squares[i] = shared.squares[i];
  float total = z[0], sum = squares[0];
#pragma unroll
  for (int i = 1; i < kMostParts; ++i) {
    total = i < parts ? total + z[i] : total;
    sum = i < parts ? sum + squares[i] : sum;
  }
  if (a.fn_scales != nullptr) total *= w.of_fn;
  const float rms = InverseRmsOfShare(sum, a.of_streams, a.rms_eps);
  return fmaf(total * rms, w.scale, w.base);
}

// Has the address worked out here, and not behind the wait that follows.
template <class T>
__device__ inline void WorkOut(const T*& address) {
#if defined(__CUDA_ARCH__)
  asm volatile("" : "+l"(address));
#endif
}

// Grid: parts x rows, a row a cluster. D is a multiple of 1,024, so that a part is of one stream.
template <class D>
__global__ void __launch_bounds__(kHcThreads) HcFusedKernel(const HcFusedArgs a) {
  __shared__ HcShared<D> shared;
  LetNextLaunchBegin();
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int part = static_cast<int>(blockIdx.x), parts = static_cast<int>(gridDim.x);
  const int64_t row = blockIdx.y;
  if (thread == 0) {
    shared.products_box.Open(parts * (kMix + 1) * static_cast<int>(sizeof(float)));
    shared.collapsed_box.Open(a.d * static_cast<int>(sizeof(float)));
  }
  ArriveAtCluster();  // this block has begun, and its boxes are open
  const int first = part * kPartColumns, own_stream = first / a.d,
            begin = first % a.d;  // the part's first column in its stream
  const bool works = warp < kWorkWarps;
  // Of the columns that the part has in all streams, this block collapses one quarter.
  const bool owns = works && thread / kOwnColumns == own_stream % 2;
  const int own_column = begin + own_stream * kOwnColumns + thread % kOwnColumns;

  constexpr int kTilesOfPart = kPartBlocks / D::kBlocks;
  const int row_tile = warp / kTilesOfPart, tile = warp % kTilesOfPart;
  typename D::Regs w;
  if (row_tile < kRowTiles)
    w = D::template Read<GlobalMemory>(
        a.fn + (row_tile * a.tiles + part * kTilesOfPart + tile) * D::kTileBytes, lane);
  MixWeights mix_weights;
  if (!works) mix_weights = MixWeights(a, lane);
  const float norm_weight = owns ? a.norm[own_column] : 0.0f;

  const bool combines = a.begin == From::kCombine, mixes = a.begin != From::kPre;
  float* const streams = a.streams + row * kStreams * a.d;
  const float* from_streams = streams + begin + thread;
  const float* from_branch = a.branch + (row * a.d + begin + thread);
  const float* from_experts = a.experts + (row * a.used * a.d + begin + thread);
  const float* from_shared = a.shared_out + (row * a.d + begin + thread);
  const float *of_post = a.post + row * kStreams, *of_comb = a.comb + row * kStreams * kStreams;
  WorkOut(from_streams), WorkOut(from_branch), WorkOut(from_experts), WorkOut(from_shared);
  WorkOut(of_post), WorkOut(of_comb);
  WaitForLaunchesBefore();

  float x[kBlocksOfWarp], own[kStreams];  // of the part; of all streams in the own column
  if (works) {
    // All loads first: a trip to L2 takes as long as all that follows here.
    float source[kBlocksOfWarp][kStreams], branch[kBlocksOfWarp];
#pragma unroll
    for (int j = 0; j < kStreams; ++j, from_streams += a.d) {
#pragma unroll
      for (int i = 0; i < kBlocksOfWarp; ++i) source[i][j] = __ldcg(from_streams + i * kWorkers);
    }
#pragma unroll
    for (int i = 0; i < kBlocksOfWarp; ++i)
      branch[i] = a.begin == From::kPost ? __ldcg(from_branch + i * kWorkers) : 0.0f;
    const Shares shares(of_post, of_comb);
    if (combines) {
      float weight[kMostUsed], out[kBlocksOfWarp][kMostUsed], shared_out[kBlocksOfWarp];
      const float* const of_row = a.expert_weights + row * a.used;
#pragma unroll
      for (int e = 0; e < kMostUsed; ++e, from_experts += a.d) {
        weight[e] = e < a.used ? __ldcg(of_row + e) : 0.0f;
#pragma unroll
        for (int i = 0; i < kBlocksOfWarp; ++i)
          out[i][e] = e < a.used ? __ldcg(from_experts + i * kWorkers) : 0.0f;
      }
#pragma unroll
      for (int i = 0; i < kBlocksOfWarp; ++i) shared_out[i] = __ldcg(from_shared + i * kWorkers);
#pragma unroll
      for (int i = 0; i < kBlocksOfWarp; ++i) {
        float sum = 0;
#pragma unroll
        for (int e = 0; e < kMostUsed; ++e) sum = e < a.used ? fmaf(weight[e], out[i][e], sum) : sum;
        branch[i] = sum + shared_out[i];
      }
    }
#pragma unroll
    for (int to = 0; to < kStreams; ++to) {
      float value[kBlocksOfWarp];
#pragma unroll
      for (int i = 0; i < kBlocksOfWarp; ++i)
        value[i] = mixes ? shares.Mixed(to, branch[i], source[i]) : source[i][to];
      own[to] = own_stream < 2 ? value[0] : value[1];
#pragma unroll
      for (int i = 0; i < kBlocksOfWarp; ++i)
        if (to == own_stream) x[i] = value[i];
    }
#pragma unroll
    for (int i = 0; i < kBlocksOfWarp; ++i) {
      const int k = i * kWorkers + thread, block = k / 32;
      shared.part[k % 16 * LanePitch(kPartColumns) + k / 16] = x[i];
      const Rounded rounded = RoundBlock(x[i]);
      shared.digits[block][0][lane] = rounded.High();
      shared.digits[block][1][lane] = rounded.Low();
      if (lane == 0) shared.scales[block] = rounded.scale;
      if constexpr (D::kMinima) {
        const int sum = DigitSum(rounded.digit);
        if (lane % 16 == 0) shared.sums[block][lane / 16] = sum;
      }
    }
  }
  WaitForCluster();  // all blocks' boxes are open
  __syncthreads();   // the part is there, and its digits

  if (row_tile < kRowTiles) TileOperands<D>(shared, w, row_tile, tile * D::kBlocks, a.table, lane);
  if (warp == kNormWarp) {
    const float sum = LaneSquares(shared.part, kPartColumns, lane);
    if (lane < parts) shared.products_box.Send(lane, shared.squares + part, sum);
  }
  __syncthreads();  // the operands are there
  if (warp == 0) {
    float sum = 0;
#pragma unroll 32
    for (int i = 0; i < kPartBlocks * HcShared<D>::kOfBlock; ++i) {
      const Operands o = shared.operands[i][lane];
      sum = fmaf(o.product, o.scale, sum);
    }
    // Four mixes a message; lanes of a four have every fourth block.
    const int quad = lane / 4 * 4;
    float4 four;
    four.x = __shfl_sync(0xffffffffu, sum, quad);
    four.y = __shfl_sync(0xffffffffu, sum, quad + 1);
    four.z = __shfl_sync(0xffffffffu, sum, quad + 2);
    four.w = __shfl_sync(0xffffffffu, sum, quad + 3);
#pragma unroll
    for (int i = 0; i < kMostParts / 4; ++i) {
      const int to = 4 * i + lane % 4;
      if (quad < kMix && to < parts) shared.products_box.Send(to, shared.z[part] + quad, four);
    }
  }

  if (warp == kSinkhornWarp) {
    if (part != 0) return;
    shared.products_box.Wait();
    const float logit = MixLogit<D>(shared, a, mix_weights, parts, lane);
    const float entry =
        SinkhornOfFour(__shfl_sync(0xffffffffu, logit, 2 * kStreams + lane % 16), a.iters, a.hc_eps);
    if (lane < 16) a.comb[row * 16 + lane] = entry;
    return;
  }
  if (warp == kNormWarp) {
    shared.products_box.Wait();  // all parts' products are there; and nobody reads the streams any more
    const float sigmoid = Sigmoid(MixLogit<D>(shared, a, mix_weights, parts, lane));
    if (lane < kStreams) shared.pre[lane] = sigmoid + a.hc_eps;
    SyncWithNorm();  // pre is there
    if (part == 0 && lane >= kStreams && lane < 2 * kStreams)
      a.post[row * kStreams + lane - kStreams] = 2.0f * sigmoid;
    shared.collapsed_box.Wait();  // the row is there
    const float sum = LaneSquares(shared.collapsed, a.d, lane);
    if (lane == 0) shared.inverse_rms = InverseRmsOfShare(sum, a.of_row, a.rms_eps);
    SyncWithNorm();  // all see the norm
    return;
  }
  SyncWithNorm();  // pre is there
  constexpr int kOwnPitch = LanePitch(kOwnColumns);
  float collapsed = 0;
  if (owns) {
#pragma unroll
    for (int h = 0; h < kStreams; ++h) collapsed = fmaf(shared.pre[h], own[h], collapsed);
    shared.part[thread % 16 * kOwnPitch + thread % kOwnColumns / 16] = collapsed;
  }
  SyncWorkers();       // all that this block collapses is there
  if (warp < parts) {  // a block a warp
    const int from = (begin + own_stream * kOwnColumns) / 16;
#pragma unroll
    for (int i = 0; i < kOwnColumns / 128; ++i) {
      const int at = 4 * (lane / 16 + 2 * i);
      shared.collapsed_box.Send(warp, shared.collapsed + lane % 16 * LanePitch(a.d) + from + at,
                                *reinterpret_cast<const float4*>(shared.part + lane % 16 * kOwnPitch + at));
    }
  }
  if (mixes) {
#pragma unroll
    for (int i = 0; i < kBlocksOfWarp; ++i) streams[first + i * kWorkers + thread] = x[i];
  }
  SyncWithNorm();  // the norm is there
  if (!owns) return;
  const float y = (collapsed * shared.inverse_rms) * norm_weight;
  a.x[row * a.d + own_column] = y;
  if (a.digits.digits != nullptr) StoreRounded(a.digits, row, own_column / 32, lane, y);
}

// False: not on this device.
template <class D>
bool Launch(const StepContext& c, const HcFusedArgs& args) {
  const int parts = kStreams * args.d / kPartColumns;
  const dim3 grid(static_cast<unsigned>(parts), static_cast<unsigned>(c.rows));
  return LaunchInClusters(c, parts, grid, kHcThreads, HcFusedKernel<D>, args);
}

using Launcher = bool (*)(const StepContext&, const HcFusedArgs&);
template <class... D>
Launcher FindAmong(quant::Type type) {
  Launcher found = nullptr;
  ((found = D::kType == type ? &Launch<D> : found), ...);
  return found;
}
// Null: a float format, or one without kernels.
Launcher FindLauncher(quant::Type type) {
  return FindAmong<Q8_0Tile, Q4_0Tile, Q4_1Tile, Q5_0Tile, Q5_1Tile, IQ4_NLTile, MXFP4Tile, Q2_KTile,
                   Q3_KTile, Q4_KTile, Q5_KTile, Q6_KTile, TQ2_0Tile, IQ4_XSTile, IQ3_STile, IQ3_XXSTile,
                   IQ2_STile, IQ2_XSTile, IQ2_XXSTile, IQ1_STile, IQ1_MTile>(type);
}

bool TryLaunch(const StepContext& c, const model::HcSite& site, model::Vector norm, From begin) {
  const int64_t d = c.hp.hidden;
  const Matrix fn = c.On(site.fn);
  const Launcher launch = FindLauncher(fn.type);
  const bool is_size = d == kMostColumns || d == kMostColumns / 2 || d == kMostColumns / 4;
  if (launch == nullptr || c.hp.hc_mult != kStreams || !is_size || c.rows > kMostFusedRows) return false;
  if (begin == From::kCombine && c.hp.experts_used > kMostUsed) return false;
  HcFusedArgs args{};
  args.streams = c.Floats(plan::Slot::kStreams);
  args.branch = args.experts = args.expert_weights = args.shared_out = args.streams;  // where not used
  args.begin = begin;
  if (begin == From::kPost) args.branch = c.Floats(plan::Slot::kBranch);
  if (begin == From::kCombine) {
    args.experts = c.Floats(plan::Slot::kExpertOut);
    args.expert_weights = c.Floats(plan::Slot::kExpertWeights);
    args.shared_out = c.Floats(plan::Slot::kSharedOut);
    args.used = static_cast<int>(c.hp.experts_used);
  }
  args.fn = fn.data, args.fn_scales = fn.scales, args.table = fn.spread;  // Codes reads it where it lies
  args.tiles = (fn.columns + FindTileLayout(fn.type)->columns - 1) / FindTileLayout(fn.type)->columns;
  args.scale = c.On(site.scale), args.base = c.On(site.base), args.norm = c.On(norm);
  args.x = c.Floats(plan::Slot::kX);
  args.post = c.Floats(plan::Slot::kPost), args.comb = c.Floats(plan::Slot::kComb);
  args.digits = c.MakeDigits(plan::Slot::kX);
  args.d = static_cast<int>(d), args.iters = c.hp.sinkhorn_iters;
  args.rms_eps = c.hp.rms_eps, args.hc_eps = c.hp.hc_eps;
  args.of_row = 1.0f / static_cast<float>(d), args.of_streams = args.of_row / kStreams;
  if (launch(c, args)) return true;
  if (c.digits != nullptr) c.digits->Forget(plan::Slot::kX);
  return false;
}

// hc.pre of a site and the norm behind it, and what comes before them. Shapes and devices that the kernel is not for have the canonical
// launches.
Status HcPreAndNorm(const StepContext& c, const model::HcSite& site, model::Vector norm, From begin) {
  if (TryLaunch(c, site, norm, begin)) return c.Launched();
  const int64_t d = c.hp.hidden;
  if (begin != From::kPre) {
    float* branch = c.Floats(plan::Slot::kBranch);
    if (begin == From::kCombine) {  // nobody behind this step reads the slot
      branch = c.scratch.Take<float>(c.rows * d);
      if (branch == nullptr) return NoScratch(c);
      if (Status status = MoeCombineOf(c, branch); !status.ok()) return status;
    }
    if (Status status = HcPostOf(c, branch); !status.ok()) return status;
  }
  float* const collapsed = c.scratch.Take<float>(c.rows * d);
  if (collapsed == nullptr) return NoScratch(c);
  if (Status status = HcPreOf(c, site, collapsed); !status.ok()) return status;
  return RmsNormRows(c, collapsed, norm, c.hp.rms_eps, c.Floats(plan::Slot::kX), c.rows, d);
}

// The site behind an ffn: the next layer begins.
Status AttnOfNext(const StepContext& c, From begin) {
  const model::Layer& next = c.weights.layers[static_cast<size_t>(c.step.layer) + 1];
  return HcPreAndNorm(c, next.hc_attn, next.attn_norm, begin);
}

}  // namespace

Status HcFused(const StepContext& c) {
  const bool attn = c.step.site == plan::Step::Site::kAttn;
  return HcPreAndNorm(c, attn ? c.layer->hc_attn : c.layer->hc_ffn,
                      attn ? c.layer->attn_norm : c.layer->ffn_norm, From::kPre);
}

Status HcBlock(const StepContext& c) {
  // The step's layer and site are those of hc.post.
  if (c.step.site == plan::Step::Site::kAttn)
    return HcPreAndNorm(c, c.layer->hc_ffn, c.layer->ffn_norm, From::kPost);
  return AttnOfNext(c, From::kPost);
}

Status HcMoe(const StepContext& c) { return AttnOfNext(c, From::kCombine); }

}  // namespace glint::cuda
