// Products of one row of activations (a decoded token) with formats in blocks of 256 columns whose codes are plain numbers above an
// offset, in natural order and with two units a block.
//
// few_rows.cuh has room for four rows in its tensor-core products; with one, all four lanes of a weight row convert, scale and add the
// same. Here a warp takes two parts of 1,024 columns of a row tile at once. Columns n of the product's right side belong to part
// n / 2 % 2: they hold the digits (n % 2: high, low) while that part's codes are on the left, and zeros while the other's are, so that
// both parts' integer sums add up side by side in one accumulator. Lane t of four goes on with part t % 2 of row t / 2 of its two. The
// same sums in the same order.
//
// Codes go into the products without their offset: what that makes too much, the offset times the sum of the unit's digits, is taken from
// the integer sum. The row of activations is in shared memory, for all of a block's warps.
#pragma once
#include "cuda/few_rows.cuh"
#include "cuda/launch.h"

namespace glint::cuda {

inline constexpr int kMostPartsThreads = 256;

__device__ inline void AddMma16(int (&c)[4], uint32_t a0, uint32_t a1, uint32_t b0) {
  asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a0), "r"(a1), "r"(b0));
}

// The row of activations in shared memory: digits [blocks][2][32], where word t of the first 16 columns stands before word t of the
// second; zeros to read in their place, in the banks that a block's digits leave free; then scales [blocks], and
// what sums are less: kOffset times those of the digits [blocks][2].
template <class D>
struct SharedRow {
  static constexpr int kZeros = 8 * 64 + 64;
  const uint8_t *digits, *zeros;
  float* scales;
  int2* less;
  __host__ __device__ static constexpr int Bytes(int blocks) { return blocks * (64 + 4 + 8) + kZeros; }
  __device__ SharedRow(uint8_t* memory, int blocks)
      : digits(memory),
        zeros(memory + blocks * 64),
        scales(reinterpret_cast<float*>(memory + blocks * 64 + kZeros)),
        less(reinterpret_cast<int2*>(memory + blocks * (64 + 4) + kZeros)) {}
  // By all threads: of the activations' blocks from `first` on so many.
  __device__ void Fill(uint8_t* memory, const ProductArgs& p, int first, int blocks, int thread,
                       int threads) const {
    for (int i = thread; i < blocks * 2; i += threads) {
      const auto* const from = reinterpret_cast<const uint4*>(p.digits + (int64_t{first} * 2 + i) * 32);
      const uint4 v = from[0], w = from[1];
      auto* const to = reinterpret_cast<uint4*>(memory + i * 32);
      to[0] = {v.x, w.x, v.y, w.y};
      to[1] = {v.z, w.z, v.w, w.w};
    }
    for (int i = thread; i < blocks; i += threads) {
      scales[i] = p.x_scales[first + i];
      const int2 sums = reinterpret_cast<const int2*>(p.sums)[first + i];
      less[i] = {D::kOffset * sums.x, D::kOffset * sums.y};
    }
  }
};

// What a warp asks for next: of row tile `tile`, 256 columns of the first and of the second of two parts in turn.
template <class D>
struct PartsFeed {
  int tile, part, stage = 0, second = 0;
  const uint8_t* row = nullptr;

  __device__ void Enter(const ProductArgs& p) {
    const ProductTarget& target = TargetOf(p, tile);
    row = target.data + int64_t{tile - static_cast<int>(target.first_tile)} * p.row_tile_bytes;
  }
  __device__ void Ask(const ProductArgs& p, TileRing& ring, int first_part) {
    if (tile >= p.all_tiles) return ring.AskNothing();
    const int at = (part + second) * kPartTiles<D> + stage, tiles = static_cast<int>(p.tiles);
    ring.Ask(row + at * D::kTileBytes, D::kTileBytes);
    if (second == 0 && at + kPartTiles<D> < tiles) return static_cast<void>(second = 1);
    second = 0;
    if (++stage < kPartTiles<D> && part * kPartTiles<D> + stage < tiles) return;
    stage = 0, part += 2 * p.of_tile;
    if (part < p.parts) return;
    part = first_part, tile += p.step_tiles;
    if (tile < p.all_tiles) Enter(p);
  }
};

// Grid: blocks of teams of p.of_tile warps. Dynamic shared memory: a ring for each warp, the row of activations, the parts' sums of two
// tasks for each team: [parts][16 rows].
template <class D>
__global__ void __launch_bounds__(kMostPartsThreads, 2)
    RowPartsKernel(const __grid_constant__ ProductArgs p) {
  static_assert(D::kBlocks == 8 && D::kUnits == 2 && D::kOrder == Order::kNatural && !D::kMinima);
  extern __shared__ __align__(1024) uint8_t shared[];
  LetNextLaunchBegin();
  const auto thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int lane = thread % 32, warp = thread / 32, warps = threads / 32, t = lane % 4, n = lane / 4;
  const int team = warp / p.of_tile, place = warp % p.of_tile;
  const int ring_bytes = TileRing::Bytes(p.stages, D::kTileBytes), blocks = p.parts * (kPartColumns / 32);
  TileRing ring(shared + warp * ring_bytes, p.stages, D::kTileBytes, lane);
  uint8_t* const memory = shared + warps * ring_bytes;
  const SharedRow<D> x(memory, blocks);
  float* const parts =
      reinterpret_cast<float*>(memory + SharedRow<D>::Bytes(blocks)) + team * 2 * p.parts * kTileRows;

  int tile = team * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x);
  PartsFeed<D> feed{tile, 2 * place};
  if (tile < p.all_tiles) feed.Enter(p);
  for (int i = 0; i < p.stages; ++i) feed.Ask(p, ring, 2 * place);
  for (int i = thread; i < SharedRow<D>::kZeros / 4; i += threads)
    reinterpret_cast<uint32_t*>(memory + blocks * 64)[i] = 0;
  WaitForLaunchesBefore();
  x.Fill(memory, p, static_cast<int>(p.target[0].x_block), static_cast<int>(p.blocks), thread, threads);
  __syncthreads();  // the row of activations is there

  const int mine = t % 2, half = t / 2, inside = n % 2 * 32 + t * 8;
  for (int turn = 0; tile < p.all_tiles; tile += p.step_tiles, turn ^= 1) {
    float* const sums = parts + turn * p.parts * kTileRows;
    for (int part = 2 * place; part < p.parts; part += 2 * p.of_tile) {
      float sum = 0;
      const int own = min(part + mine, p.parts - 1), left = static_cast<int>(p.tiles) - part * kPartTiles<D>;
      for (int stage = 0; stage < min(kPartTiles<D>, left); ++stage) {
        int c[8][2][4];
        const int own_block = own * (kPartColumns / 32) + stage * 8;
        typename D::RowScales scales{};
#pragma unroll
        for (int second = 0; second < 2; ++second) {
          if (second == 1 && stage + kPartTiles<D> >= left) break;
          const int block = (part + second) * (kPartColumns / 32) + stage * 8;
          const uint8_t* const digits = (n / 2 % 2 == second ? x.digits + block * 64 : x.zeros + 64) + inside;
          const uint8_t* const weights = ring.Next();
          const typename D::CodeRegs w = D::template ReadCodes<SharedMemory>(weights, lane);
          if (mine == second) scales = D::template ReadScales<SharedMemory>(weights, lane / 4 + 8 * half);
#pragma unroll
          for (int b = 0; b < 8; ++b) {
            const uint4 code = D::PlainCodes(w, b);
            const uint2 of_lane = *reinterpret_cast<const uint2*>(digits + b * 64);
            if (second == 0) {
              Mma16(c[b][0], code.x, code.y, of_lane.x);
              Mma16(c[b][1], code.z, code.w, of_lane.y);
            } else {
              AddMma16(c[b][0], code.x, code.y, of_lane.x);
              AddMma16(c[b][1], code.z, code.w, of_lane.y);
            }
          }
          ring.Free();
          feed.Ask(p, ring, 2 * place);
        }
        const bool there = stage + mine * kPartTiles<D> < left;
#pragma unroll
        for (int b = 0; b < 8; ++b) {
          const float d = x.scales[own_block + b];
          const int2 less = x.less[own_block + b];
#pragma unroll
          for (int unit = 0; unit < 2; ++unit) {
            const int(&of)[4] = c[b][unit];
            const int high = half != 0 ? of[2] : of[0], low = half != 0 ? of[3] : of[1];
            const float more =
                Add<D>(sum, high * 256 + low - (unit == 0 ? less.x : less.y), scales.Of(2 * b + unit), d);
            sum = there ? more : sum;
          }
        }
      }
      if (part + mine < p.parts) sums[(part + mine) * kTileRows + half * 8 + lane / 4] = sum;
    }
    MeetTeam(team, p.of_tile * 32);
    // Sums of the next task go to the other half, and nobody comes to the one after it before all have left this one.
    const ProductTarget& target = TargetOf(p, tile);
    const int o = (tile - static_cast<int>(target.first_tile)) * kTileRows + lane;
    if (place == 0 && lane < kTileRows && o < static_cast<int>(target.rows)) {
      float total = sums[lane];
      for (int i = 1; i < p.parts; ++i) total += sums[i * kTileRows + lane];
      target.y[o] = target.scales == nullptr ? total : total * target.scales[0];
    }
  }
}

// How the work of a launch is shared: fills in p, and tells what it takes.
struct RowPartsPlan {
  int64_t bytes;
  bool fits;
  dim3 grid;
  int threads;
};
template <class D>
inline RowPartsPlan PlanRowParts(ProductArgs& p) {
  constexpr int kWarps = kMostPartsThreads / 32, kMostStages = 4;
  const int64_t tiles = p.row_tiles, most_blocks = 2 * int64_t{p.multiprocessors},
                half = p.shared_bytes / 2 - 1024;
  const int pairs = (p.parts + 1) / 2;
  p.all_tiles = static_cast<int32_t>(tiles);
  p.row_tile_bytes = static_cast<int32_t>(p.tiles * D::kTileBytes);
  p.of_tile = pairs < kWarps ? pairs : kWarps;
  // As few teams as take no more rounds than all that a block has room for.
  const int64_t most = kWarps / p.of_tile, rounds = (tiles + most_blocks * most - 1) / (most_blocks * most);
  const int64_t teams = (tiles + most_blocks * rounds - 1) / (most_blocks * rounds);
  RowPartsPlan plan{};
  const auto bytes = [&] {
    return teams * p.of_tile * TileRing::Bytes(p.stages, D::kTileBytes) +
           SharedRow<D>::Bytes(p.parts * (kPartColumns / 32)) +
           teams * 2 * p.parts * kTileRows * int64_t{sizeof(float)};
  };
  p.stages = kMostStages;
  while (p.stages > 2 && bytes() > half) --p.stages;
  plan.bytes = bytes();
  plan.fits = plan.bytes <= p.shared_bytes;
  for (int i = 1; i < p.targets; ++i) plan.fits = plan.fits && p.target[i].x_block == p.target[0].x_block;
  const int64_t blocks = (tiles + teams - 1) / teams;
  plan.grid = dim3(static_cast<unsigned>(blocks < most_blocks ? blocks : most_blocks));
  plan.threads = static_cast<int>(teams) * p.of_tile * 32;
  p.step_tiles = static_cast<int32_t>(teams * plan.grid.x);
  return plan;
}

template <class D>
bool LaunchRowParts(ProductArgs p, cudaStream_t stream) {
  const RowPartsPlan plan = PlanRowParts<D>(p);
  if (plan.fits && AllowShared(RowPartsKernel<D>, static_cast<int>(plan.bytes)))
    LaunchEarly(p.overlap, plan.grid, plan.threads, static_cast<size_t>(plan.bytes), stream,
                RowPartsKernel<D>, p);
  return plan.fits;
}

}  // namespace glint::cuda
