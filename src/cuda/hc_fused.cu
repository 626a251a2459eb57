// Levers hc.fused (hc.pre and the sublayer's norm in one launch) and hc.block (hc.post before them as well), for few rows: the
// canonical kernels are four or five launches whose blocks are few, and all of them wait for memory and for one another.
//
// A block takes one part of 1,024 columns of a row's streams and one tile of 16 of the 24 rows of fn: 32 blocks a row. It rounds the
// part, multiplies, takes the part's Dot16 and counts itself in; the block that comes last for a row adds up the parts in order and
// finishes the row. In microseconds on an H200 (1.98 GHz; D = 4,096, four streams), from the start of the kernel:
//   0.0  a warp asks for its tile of fn (17 KB a block, from DRAM: 0.6 and 0.2 for the bytes), all warps for the part's columns
//   0.9  rounding (a warp has two blocks of 32 columns)                                                        0.1
//   1.0  integer sums by dp4a, operands of the chains to shared memory; Dot16 of the part beside it (64 fmas)  0.15
//   1.2  the 16 chains of a part, 32 units of 4 cycles                                                         0.1
//   1.3  partial results to L2, fence, count                                                                   0.6
//   1.9  the last block: 24 lanes fetch 16 partial products and squares each, while 512 threads fetch the streams (64 KB, from L2:
//        0.3 and 0.5)                                                                                          0.3
//   2.2  logits, sigmoids                                                                                      0.15
//   2.4  one warp does the Sinkhorn steps: 40 times shuffles (24 cycles), sum (16) and division (some 55)      2.0
//        beside it: collapse (once the streams are there, 2.7), its Dot16 (256 fmas: 0.5), x (0.2)
//   4.4  the end.
// So nothing but the Sinkhorn steps is worth sharing out in the tail: collapse and norm by one block are hidden behind them. A second
// launch for the collapse would cost 1.5 and gain nothing; a third of the time is the way from block to block, which it has too.
#include <cuda_runtime.h>

#include <algorithm>

#include "cuda/async.cuh"
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
constexpr int kRowTiles = (kMix + kTileRows - 1) / kTileRows;
constexpr int kWorkers = 512, kWorkWarps = kWorkers / 32;  // of columns
constexpr int kHcThreads = kWorkers + 32;                  // and a warp for what is no work on columns
constexpr int kHeld = 8, kMostColumns = kWorkers * kHeld;  // of D: what a thread of the tail holds
constexpr int kMostParts = kStreams * kMostColumns / kPartColumns;
constexpr int kPartBlocks = kPartColumns / 32, kBlocksOfWarp = kPartBlocks / kWorkWarps;

struct HcFusedArgs {
  float* streams;       // [rows][4][D]
  const float* branch;  // [rows][D]: hc.post comes first; null: it does not
  const uint8_t* fn;
  int64_t tiles;           // column tiles of fn
  const float* fn_scales;  // [1], or null
  const uint8_t* table;
  const float *scale, *base, *norm;  // [3], [24], [D]
  float *x, *post, *comb;            // [rows][D], [rows][4], [rows][4][4]: those of the sublayer that begins
  float *z, *squares;                // [rows][parts][24], [rows][parts]
  unsigned* arrivals;                // [rows][kArrivalsOfRow], all zero before and after
  int d, parts;
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
  __align__(16) int8_t digits[kPartBlocks][2][32];
  float scales[kPartBlocks];
  int sums[kPartBlocks][2];
  float part[kPartColumns];
  Operands operands[kPartBlocks * kOfBlock][kTileRows];
  float collapsed[kMostColumns];
  float pre[kStreams];
  float sum;
  bool last, last_of_columns;
};

// Barrier of the threads that work on columns; the other warp goes its own way.
__device__ inline void SyncWorkers() { asm volatile("bar.sync 1, %0;" ::"n"(kWorkers) : "memory"); }

// Everything of the block that was written is seen by whoever is told; true for the one that comes last of `all`, which may then read
// what the others have written (and the counter is zero again). One thread calls, after a barrier of those who wrote.
__device__ inline bool ArriveLast(unsigned* counter, unsigned all) {
  __threadfence();
  const bool last = atomicInc(counter, all - 1) == all - 1;
  __threadfence();
  return last;
}

// What one destination stream of hc.post takes of the sublayer's output and of each source stream.
struct Shares {
  float of_branch, of_stream[kStreams];
};
__device__ inline Shares SharesOf(const float* post, const float* comb, int to) {
  Shares s;
  s.of_branch = post[to];
#pragma unroll
  for (int j = 0; j < kStreams; ++j) s.of_stream[j] = comb[j * kStreams + to];
  return s;
}
__device__ inline float Mixed(const Shares& shares, float branch, const float (&source)[kStreams]) {
  float next = shares.of_branch * branch;
#pragma unroll
  for (int j = 0; j < kStreams; ++j) next = fmaf(shares.of_stream[j], source[j], next);
  return next;
}

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

// The operands of all units of a tile, whose first block is `first_block` of the part.
template <class D>
__device__ inline void TileOperands(HcShared<D>& shared, const typename D::Regs& w, int first_block,
                                    int blocks, const uint8_t* table, int lane) {
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int b = 0; b < D::kBlocks; ++b) {
    const int block = first_block + b;
    if (block >= blocks) break;  // the same for the whole warp
    const uint4 code = D::Codes(w, b, t, table);
    const DigitLane high = SharedDigits<D>(shared.digits[block][0], t),
                    low = SharedDigits<D>(shared.digits[block][1], t);
    const float d = shared.scales[block];
#pragma unroll
    for (int unit = 0; unit < D::kUnits; ++unit) {
      int product[2];
      PlainUnitSums<D>(code, high, low, unit, t, product);
      if (t > 1) continue;  // lanes 0 and 1 of four keep one row each
      Operands* const out = shared.operands[block * HcShared<D>::kOfBlock + unit * (D::kMinima ? 2 : 1)];
      const int of_row = g + 8 * t;
      const float scale = t == 0 ? D::Scale(w, 0, b, unit) : D::Scale(w, 1, b, unit);
      out[of_row] = {__int2float_rn(t == 0 ? product[0] : product[1]), scale * d};
      if constexpr (D::kMinima) {
        const float minimum = t == 0 ? D::Minimum(w, 0, b, unit) : D::Minimum(w, 1, b, unit);
        const int* const sums = shared.sums[block];
        const int n = D::kUnits == 1 ? sums[0] + sums[1] : sums[unit];
        out[kTileRows + of_row] = {__int2float_rn(n), minimum * d};
      }
    }
  }
}

// The last block of a row: the warp beside the workers.
__device__ inline void FinishMixes(const HcFusedArgs& a, int64_t row, int lane, float* pre) {
  const int mix = lane < kMix ? lane : kMix - 1;
  const float* const z = a.z + row * a.parts * kMix + mix;
  const float* const squares = a.squares + row * a.parts;
  float of_z[kMostParts], of_squares[kMostParts];
#pragma unroll
  for (int i = 0; i < kMostParts; ++i) {  // none from L1, which other blocks do not write
    of_z[i] = i < a.parts ? __ldcg(z + i * kMix) : 0.0f;
    of_squares[i] = i < a.parts ? __ldcg(squares + i) : 0.0f;
  }
  const float scale = __ldg(a.scale + (mix < kStreams       ? 0
                                       : mix < 2 * kStreams ? 1
                                                            : 2)),
              base = __ldg(a.base + mix);
  const float whole = a.fn_scales != nullptr ? __ldg(a.fn_scales) : 1.0f;
  float total = of_z[0], sum = of_squares[0];
#pragma unroll
  for (int i = 1; i < kMostParts; ++i) {
    if (i >= a.parts) break;
    total += of_z[i];
    sum += of_squares[i];
  }
  if (a.fn_scales != nullptr) total *= whole;
  const float rms = InverseRms(sum, int64_t{kStreams} * a.d, a.rms_eps);
  const float logit = fmaf(total * rms, scale, base), sigmoid = Sigmoid(logit);
  if (lane < kStreams) pre[lane] = sigmoid + a.hc_eps;
  __syncthreads();  // pre is there
  if (lane >= kStreams && lane < 2 * kStreams) a.post[row * kStreams + lane - kStreams] = 2.0f * sigmoid;
  const float entry =
      SinkhornOfFour(__shfl_sync(0xffffffffu, logit, 2 * kStreams + lane % 16), a.iters, a.hc_eps);
  if (lane < 16) a.comb[row * 16 + lane] = entry;
}

// The last block of a row: the workers. Collapse and norm.
template <class D>
__device__ inline void FinishColumns(HcShared<D>& shared, const HcFusedArgs& a, int64_t row, int thread) {
  const float* const streams = a.streams + row * kStreams * a.d;
  float held[kHeld][kStreams], weight[kHeld], out[kHeld];
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int k = i * kWorkers + thread;
#pragma unroll
    for (int h = 0; h < kStreams; ++h) held[i][h] = k < a.d ? __ldcg(streams + h * a.d + k) : 0.0f;
  }
  __syncthreads();  // pre is there
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int k = i * kWorkers + thread;
    out[i] = 0;
#pragma unroll
    for (int h = 0; h < kStreams; ++h) out[i] = fmaf(shared.pre[h], held[i][h], out[i]);
    shared.collapsed[k] = k < a.d ? out[i] : 0.0f;
  }
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {  // on their way while the sum is taken
    const int k = i * kWorkers + thread;
    weight[i] = k < a.d ? __ldg(a.norm + k) : 0.0f;
  }
  SyncWorkers();  // all columns are collapsed
  if (thread < 32) {
    const int lane = thread % 16, steps = (a.d + 15) / 16;  // both halves of the warp do the same
    float sum = 0;
#pragma unroll 16
    for (int i = 0; i < steps; ++i) {
      const float v = shared.collapsed[i * 16 + lane];
      sum = fmaf(v, v, sum);
    }
    sum = SumLanes16(sum);
    if (thread == 0) shared.sum = sum;
  }
  SyncWorkers();  // all see the sum
  const float r = InverseRms(shared.sum, a.d, a.rms_eps);
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int k = i * kWorkers + thread;
    if (k < a.d) a.x[row * a.d + k] = (out[i] * r) * weight[i];
  }
}

// Grid: parts x row tiles of fn x rows. With hc.post, D is a multiple of 1,024, so that a part is of one stream; the blocks of the same
// columns all read the streams there before the last of them writes their successors.
template <class D>
__global__ void __launch_bounds__(kHcThreads, 2) HcFusedKernel(const HcFusedArgs a) {
  __shared__ HcShared<D> shared;
  LetNextLaunchBegin();
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int part = static_cast<int>(blockIdx.x), row_tile = static_cast<int>(blockIdx.y);
  const int64_t row = blockIdx.z;
  const int first = part * kPartColumns, columns = min(kStreams * a.d - first, kPartColumns),
            blocks = columns / 32;
  constexpr int kTilesOfPart = kPartBlocks / D::kBlocks;
  unsigned* const arrivals = a.arrivals + row * kArrivalsOfRow;

  const bool has_tile = warp < kTilesOfPart && part * kTilesOfPart + warp < a.tiles;
  typename D::Regs w;
  if (has_tile)
    w = D::template Read<GlobalMemory>(
        a.fn + (row_tile * a.tiles + part * kTilesOfPart + warp) * D::kTileBytes, lane);
  WaitForLaunchesBefore();

  const bool mixes = a.branch != nullptr;
  float* const streams = a.streams + row * kStreams * a.d;
  const int begin = mixes ? first % a.d : 0;  // the part's first column in its stream
  const float *const post = a.post + row * kStreams, *const comb = a.comb + row * kStreams * kStreams;
  Shares shares{};
  if (mixes) shares = SharesOf(post, comb, first / a.d);
  float source[kBlocksOfWarp][kStreams], branch[kBlocksOfWarp];
  if (warp < kWorkWarps) {
    float x[kBlocksOfWarp];
#pragma unroll
    for (int i = 0; i < kBlocksOfWarp; ++i) {
      const int k = i * kWorkers + thread;
      if (mixes) {
        branch[i] = __ldcg(a.branch + row * a.d + begin + k);
#pragma unroll
        for (int j = 0; j < kStreams; ++j) source[i][j] = __ldcg(streams + j * a.d + begin + k);
      } else {
        x[i] = k < columns ? __ldcg(streams + first + k) : 0.0f;
      }
    }
#pragma unroll
    for (int i = 0; i < kBlocksOfWarp; ++i) {
      const int k = i * kWorkers + thread, block = k / 32;
      if (mixes) x[i] = Mixed(shares, branch[i], source[i]);
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
  __syncthreads();  // the part is there, and its digits

  if (has_tile) TileOperands<D>(shared, w, warp * D::kBlocks, blocks, a.table, lane);
  if (mixes && warp == kWorkWarps - 1 && lane == 0)
    shared.last_of_columns = ArriveLast(arrivals + 1 + begin / kPartColumns, kStreams * kRowTiles);
  if (warp == kWorkWarps && row_tile == 0) {
    float sum = 0;  // zeros past the end change no sum of squares
#pragma unroll 16
    for (int i = 0; i < kPartColumns / 16; ++i) {
      const float v = shared.part[i * 16 + lane % 16];
      sum = fmaf(v, v, sum);
    }
    sum = SumLanes16(sum);
    if (lane == 0) a.squares[row * a.parts + part] = sum;
  }
  __syncthreads();  // the operands are there

  if (mixes && shared.last_of_columns) {
    if (warp < kWorkWarps) {
#pragma unroll
      for (int to = 0; to < kStreams; ++to) {
        const Shares of_stream = SharesOf(post, comb, to);
#pragma unroll
        for (int i = 0; i < kBlocksOfWarp; ++i)
          streams[to * a.d + begin + i * kWorkers + thread] = Mixed(of_stream, branch[i], source[i]);
      }
    }
    __syncthreads();  // the block has written the streams before it counts
  }
  if (warp == 0) {
    const int of_row = lane % kTileRows, mix = row_tile * kTileRows + of_row;
    float sum = 0;
#pragma unroll 8
    for (int i = 0; i < blocks * HcShared<D>::kOfBlock; ++i) {
      const Operands o = shared.operands[i][of_row];
      sum = fmaf(o.product, o.scale, sum);
    }
    if (lane < kTileRows && mix < kMix) a.z[(row * a.parts + part) * kMix + mix] = sum;
    __syncwarp();  // the partial products are written
    if (lane == 0) shared.last = ArriveLast(arrivals, static_cast<unsigned>(a.parts * kRowTiles));
  }
  __syncthreads();  // whether this block is the last one
  if (!shared.last) return;
  warp == kWorkWarps ? FinishMixes(a, row, lane, shared.pre) : FinishColumns<D>(shared, a, row, thread);
}

template <class D>
void Launch(const HcFusedArgs& args, const StepContext& c) {
  const dim3 grid(static_cast<unsigned>(args.parts), kRowTiles, static_cast<unsigned>(c.rows));
  LaunchEarly(c, grid, kHcThreads, 0, HcFusedKernel<D>, args);
}

using Launcher = void (*)(const HcFusedArgs&, const StepContext&);
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

// hc.pre of a site and the norm behind it, `after_post` with the hc.post before it.
Status HcPreAndNorm(const StepContext& c, const model::HcSite& site, model::Vector norm, bool after_post) {
  const int64_t d = c.hp.hidden;
  const Matrix fn = c.On(site.fn);
  const Launcher launch = FindLauncher(fn.type);
  const bool fits =
      launch != nullptr && c.hp.hc_mult == kStreams && d <= kMostColumns && c.rows <= kMostFusedRows;
  if (after_post && (!fits || d % kPartColumns != 0)) {
    if (Status status = HcPost(c); !status.ok()) return status;
    after_post = false;
  }
  float* const x = c.Floats(plan::Slot::kX);
  if (!fits) {
    float* const collapsed = c.scratch.Take<float>(c.rows * d);
    if (collapsed == nullptr) return NoScratch(c);
    if (Status status = HcPreOf(c, site, collapsed); !status.ok()) return status;
    return RmsNormRows(c, collapsed, norm, c.hp.rms_eps, x, c.rows, d);
  }
  HcFusedArgs args{};
  args.streams = c.Floats(plan::Slot::kStreams);
  args.branch = after_post ? c.Floats(plan::Slot::kBranch) : nullptr;
  args.fn = fn.data, args.fn_scales = fn.scales, args.table = fn.table;
  args.tiles = (fn.columns + FindTileLayout(fn.type)->columns - 1) / FindTileLayout(fn.type)->columns;
  args.scale = c.On(site.scale), args.base = c.On(site.base), args.norm = c.On(norm);
  args.x = x, args.post = c.Floats(plan::Slot::kPost), args.comb = c.Floats(plan::Slot::kComb);
  args.parts = static_cast<int>((fn.columns + kPartColumns - 1) / kPartColumns);
  args.z = c.scratch.Take<float>(c.rows * args.parts * kMix);
  args.squares = c.scratch.Take<float>(c.rows * args.parts);
  if (args.squares == nullptr) return NoScratch(c);
  args.arrivals = c.arrivals;
  args.d = static_cast<int>(d), args.iters = c.hp.sinkhorn_iters;
  args.rms_eps = c.hp.rms_eps, args.hc_eps = c.hp.hc_eps;
  launch(args, c);
  return c.Launched();
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
