// Levers hc.fused (hc.pre and the sublayer's norm in one launch) and hc.block (hc.post before them as well), for few rows: the
// canonical kernels are four or five launches whose blocks are few, and all of them wait for memory and for one another.
//
// A row has a cluster of 4 D / 1,024 blocks. A block takes one part of 1,024 columns of the streams and all of fn's columns there; it
// mixes the part (reading the same columns of all streams, whose new values it thus has all), rounds it, multiplies, and sends the
// part's products and sum of squares to the whole cluster. Then each block has all it needs to collapse a quarter of its columns,
// sends those to all, takes the norm's sum like all others, and writes its quarter; one warp of the first block does the Sinkhorn
// steps meanwhile. In microseconds from the moment the launches before have ended, on an H200, expected (D = 4,096; fn and all other
// weights are there already; a kernel by itself, events of a profiler included, took 8.1 us on 2026-11-30):
//   0.0  the part's columns from L2                                                                            0.5
//   0.5  mixing and rounding (a warp has two blocks of 32 columns)                                             0.2
//   0.7  integer sums on tensor cores, operands of the chains to shared memory; Dot16 of the part beside it            0.3
//   1.0  the chains of a part, 32 units of 4 cycles                                                            0.2
//   1.2  sending                                                                                               0.2
//   1.4  logits, sigmoids                                                                                      0.3
//   1.7  collapse, sending                                            0.3       Sinkhorn: 40 times shuffles,
//   2.0  Dot16 of the collapsed row: 256 fmas of 4 cycles             0.7       sum and division, 85 cycles
//   2.7  norm, rounding                                               0.2       each: 1.9, or less where
//   3.6  the end.                                                               nothing changes any more
// By counters in global memory in place of clusters, the last block to arrive finishing the row, it took 8 to 9 us (2026-11-30).
#include <cuda_runtime.h>

#include <algorithm>

#include "cuda/async.cuh"
#include "cuda/cluster.cuh"
#include "cuda/context.h"
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
constexpr int kHcThreads = kWorkers + 32;                  // and a warp for what is no work on columns
constexpr int kPartBlocks = kPartColumns / 32, kBlocksOfWarp = kPartBlocks / kWorkWarps;
constexpr int kMostParts = 16, kMostColumns = kMostParts * kPartColumns / kStreams;  // of D
constexpr int kOwnColumns = kPartColumns / kStreams;  // of D, that a block collapses

struct HcFusedArgs {
  float* streams;       // [rows][4][D]
  const float* branch;  // [rows][D]: hc.post comes first; null: it does not
  const uint8_t* fn;
  int64_t tiles;           // column tiles of fn
  const float* fn_scales;  // [1], or null
  const uint8_t* table;
  const float *scale, *base, *norm;  // [3], [24], [D]
  float *x, *post, *comb;            // [rows][D], [rows][4], [rows][4][4]: those of the sublayer that begins
  Digits digits;                     // of x; or none
  int d;
  int64_t iters;
  float rms_eps, hc_eps;
};

// One fma of a chain of the product.
struct Operands {
  float product, scale;
};

template <class D>
struct HcShared {
  static constexpr int kOfBlock = D::kUnits * (D::kMinima ? 2 : 1);
  union __align__(16) {
    Operands operands[kPartBlocks * kOfBlock][kMixRows];  // until the cluster's first exchange
    float collapsed[kMostColumns];                        // from all blocks, in the second
  };
  __align__(16) int8_t digits[kPartBlocks][2][32];
  float scales[kPartBlocks];
  int sums[kPartBlocks][2];
  __align__(16) float part[kPartColumns];       // later the columns that this block collapsed
  __align__(16) float z[kMostParts][kMixRows];  // from all blocks, in the first exchange
  float squares[kMostParts];                    // like z
  Mailbox products_box, collapsed_box;          // of the first and the second exchange
  float pre[kStreams];
  float sum;
};

// Barrier of the threads that work on columns; the other warp goes its own way.
__device__ inline void SyncWorkers() { asm volatile("bar.sync 1, %0;" ::"n"(kWorkers) : "memory"); }

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

// What the warp that mixes wants of the weights: a mix a lane.
struct MixWeights {
  float scale, base, of_fn;
  __device__ MixWeights(const HcFusedArgs& a, int lane) {
    const int mix = lane < kMix ? lane : kMix - 1;
    scale = __ldg(a.scale + (mix < kStreams ? 0 : mix < 2 * kStreams ? 1 : 2));
    base = __ldg(a.base + mix);
    of_fn = a.fn_scales != nullptr ? __ldg(a.fn_scales) : 1.0f;
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
  const float rms = InverseRms(sum, int64_t{kStreams} * a.d, a.rms_eps);
  return fmaf(total * rms, w.scale, w.base);
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
  const MixWeights mix_weights(a, lane);
  const float norm_weight = owns ? __ldg(a.norm + own_column) : 0.0f;
  WaitForLaunchesBefore();

  const bool mixes = a.branch != nullptr;
  float* const streams = a.streams + row * kStreams * a.d;
  float x[kBlocksOfWarp], own[kStreams];  // of the part; of all streams in the own column
  if (works) {
    // All loads first: a trip to L2 takes as long as all that follows here.
    const Shares shares(a.post + row * kStreams, a.comb + row * kStreams * kStreams);
    float source[kBlocksOfWarp][kStreams], branch[kBlocksOfWarp];
#pragma unroll
    for (int i = 0; i < kBlocksOfWarp; ++i) {
      const int k = begin + i * kWorkers + thread;
      branch[i] = mixes ? __ldcg(a.branch + row * a.d + k) : 0.0f;
#pragma unroll
      for (int j = 0; j < kStreams; ++j) source[i][j] = __ldcg(streams + j * a.d + k);
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
      shared.part[k] = x[i];
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
  if (!works) {
    const float sum = SharedSquares(shared.part, kPartColumns, lane);
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

  if (!works) {
    shared.products_box.Wait();  // all parts' products are there; and nobody reads the streams any more
    const float logit = MixLogit<D>(shared, a, mix_weights, parts, lane), sigmoid = Sigmoid(logit);
    if (lane < kStreams) shared.pre[lane] = sigmoid + a.hc_eps;
    __syncthreads();  // pre is there
    if (part == 0) {
      if (lane >= kStreams && lane < 2 * kStreams) a.post[row * kStreams + lane - kStreams] = 2.0f * sigmoid;
      const float entry =
          SinkhornOfFour(__shfl_sync(0xffffffffu, logit, 2 * kStreams + lane % 16), a.iters, a.hc_eps);
      if (lane < 16) a.comb[row * 16 + lane] = entry;
    }
    return;
  }
  __syncthreads();  // pre is there
  float collapsed = 0;
  if (owns) {
#pragma unroll
    for (int h = 0; h < kStreams; ++h) collapsed = fmaf(shared.pre[h], own[h], collapsed);
    shared.part[thread % kOwnColumns] = collapsed;
  }
  SyncWorkers();       // all that this block collapses is there
  if (warp < parts) {  // a block a warp
    const int from = begin + own_stream * kOwnColumns;
#pragma unroll
    for (int i = 0; i < kOwnColumns / 128; ++i) {
      const int at = 128 * i + 4 * lane;
      shared.collapsed_box.Send(warp, shared.collapsed + from + at,
                                *reinterpret_cast<const float4*>(shared.part + at));
    }
  }
  if (mixes) {
#pragma unroll
    for (int i = 0; i < kBlocksOfWarp; ++i) streams[first + i * kWorkers + thread] = x[i];
  }
  if (warp == 0) {
    shared.collapsed_box.Wait();  // the row is there
    const float sum = SharedSquares(shared.collapsed, a.d, lane);
    if (lane == 0) shared.sum = sum;
  }
  SyncWorkers();  // all see the sum
  if (!owns) return;
  const float y = (collapsed * InverseRms(shared.sum, a.d, a.rms_eps)) * norm_weight;
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

bool TryLaunch(const StepContext& c, const model::HcSite& site, model::Vector norm, bool after_post) {
  const int64_t d = c.hp.hidden;
  const Matrix fn = c.On(site.fn);
  const Launcher launch = FindLauncher(fn.type);
  const bool is_size = d == kMostColumns || d == kMostColumns / 2 || d == kMostColumns / 4;
  if (launch == nullptr || c.hp.hc_mult != kStreams || !is_size || c.rows > kMostFusedRows) return false;
  HcFusedArgs args{};
  args.streams = c.Floats(plan::Slot::kStreams);
  args.branch = after_post ? c.Floats(plan::Slot::kBranch) : nullptr;
  args.fn = fn.data, args.fn_scales = fn.scales, args.table = fn.spread;  // Codes reads it where it lies
  args.tiles = (fn.columns + FindTileLayout(fn.type)->columns - 1) / FindTileLayout(fn.type)->columns;
  args.scale = c.On(site.scale), args.base = c.On(site.base), args.norm = c.On(norm);
  args.x = c.Floats(plan::Slot::kX);
  args.post = c.Floats(plan::Slot::kPost), args.comb = c.Floats(plan::Slot::kComb);
  args.digits = c.MakeDigits(plan::Slot::kX);
  args.d = static_cast<int>(d), args.iters = c.hp.sinkhorn_iters;
  args.rms_eps = c.hp.rms_eps, args.hc_eps = c.hp.hc_eps;
  if (launch(c, args)) return true;
  if (c.digits != nullptr) c.digits->Forget(plan::Slot::kX);
  return false;
}

// hc.pre of a site and the norm behind it, `after_post` with the hc.post before it. Shapes and devices that the kernel is not for have
// the canonical launches.
Status HcPreAndNorm(const StepContext& c, const model::HcSite& site, model::Vector norm, bool after_post) {
  if (TryLaunch(c, site, norm, after_post)) return c.Launched();
  if (after_post) {
    if (Status status = HcPost(c); !status.ok()) return status;
  }
  const int64_t d = c.hp.hidden;
  float* const collapsed = c.scratch.Take<float>(c.rows * d);
  if (collapsed == nullptr) return NoScratch(c);
  if (Status status = HcPreOf(c, site, collapsed); !status.ok()) return status;
  return RmsNormRows(c, collapsed, norm, c.hp.rms_eps, c.Floats(plan::Slot::kX), c.rows, d);
}

}  // namespace

Status HcFused(const StepContext& c) {
  const bool attn = c.step.site == plan::Step::Site::kAttn;
  return HcPreAndNorm(c, attn ? c.layer->hc_attn : c.layer->hc_ffn,
                      attn ? c.layer->attn_norm : c.layer->ffn_norm, false);
}

Status HcBlock(const StepContext& c) {
  // The step's layer and site are those of hc.post; behind an ffn the next layer begins.
  if (c.step.site == plan::Step::Site::kAttn)
    return HcPreAndNorm(c, c.layer->hc_ffn, c.layer->ffn_norm, true);
  const model::Layer& next = c.weights.layers[static_cast<size_t>(c.step.layer) + 1];
  return HcPreAndNorm(c, next.hc_attn, next.attn_norm, true);
}

}  // namespace glint::cuda
