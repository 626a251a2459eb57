// Products with few rows of activations (decode, a verify of drafts), near the bandwidth of the memory.
//
// One or two blocks a multiprocessor. Their warps form teams: a team takes one tile of 16 weight rows after another, each warp of it every
// team-th part of 1,024 columns, and the parts are added at the end. A warp's weights come through a ring in shared memory, asked for
// stages ahead and across the borders of row tiles; the first of them before the launches that make the activations have ended.
#pragma once
#include "cuda/product_parts.cuh"
#include "cuda/tile_ring.cuh"

namespace glint::cuda {

// Row tile `tile` (of all targets) with group `group` of activation rows.
struct Task {
  int tile, group;
  __device__ void Next(const ProductArgs& p) {
    tile += p.step_tiles, group += p.step_groups;
    if (tile >= p.all_tiles) tile -= p.all_tiles, ++group;
  }
};

// Stages of a row tile: 256 columns each.
template <class D>
inline constexpr int kStageTiles = 8 / D::kBlocks;
template <class D>
inline constexpr int kStageBytes = kStageTiles<D>* D::kTileBytes;
template <class D>
inline constexpr int kPartTiles = kPartColumns / (32 * D::kBlocks);

// What a warp asks for next.
template <class D, int N>
struct Feed {
  Task task;
  int part, left;       // tiles that are left of the part
  const uint8_t* from;  // of the matrix

  __device__ void Enter(const ProductArgs& p) {
    const ProductTarget& target = TargetOf(p, task.tile);
    const int begin = part * kPartTiles<D>;
    from = target.data + int64_t{task.tile - static_cast<int>(target.first_tile)} * p.row_tile_bytes +
           begin * D::kTileBytes;
    if (p.pairs != Pairs::Kind::kSame)
      from += static_cast<uint64_t>(GroupAt<N>(p, task.group).slice) * target.slice_bytes;
    left = min(kPartTiles<D>, static_cast<int>(p.tiles) - begin);
  }
  // One stage into the ring, if there is any left before group `groups`. `first_part`: of the warp.
  __device__ void Ask(const ProductArgs& p, TileRing& ring, int groups, int first_part) {
    if (task.group >= groups) return ring.AskNothing();
    ring.Ask(from, min(left, kStageTiles<D>) * D::kTileBytes);
    from += kStageBytes<D>;
    left -= kStageTiles<D>;
    if (left > 0) return;
    part += p.of_tile;
    if (part >= p.parts) part = first_part, task.Next(p);
    if (task.group < groups) Enter(p);
  }
};

// Where a lane reads the activations of a group: digits for the B fragment, scales and sums for its own entries. Entries that a group
// does not have are read from its first row, and never stored.
template <class D, int N>
struct LaneRows {
  const int8_t* digits[N];
  const float* scales[N];
  const int2* sums[N];

  __device__ void Enter(const ProductArgs& p, const RowGroup& group, int lane) {
    const int n = lane / 4, t = lane % 4;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const int64_t b = int64_t{Row(p, group, 4 * i + n / 2)} * static_cast<int>(p.x_blocks),
                    c = int64_t{Row(p, group, 4 * i + t)} * static_cast<int>(p.x_blocks);
      digits[i] = p.digits + b * 64 + (n % 2 * 32 + t * (D::kOrder == Order::kWide ? 8 : 4));
      scales[i] = p.x_scales + c;
      if constexpr (D::kMinima) sums[i] = reinterpret_cast<const int2*>(p.sums) + c;
    }
  }
  __device__ static int Row(const ProductArgs& p, const RowGroup& group, int a) {
    const int row = RowAt<N>(p, group, a < group.count ? a : 0), per_row = static_cast<int>(p.per_row);
    return per_row == 1 ? row : row / per_row;
  }
  // The same rows from another block on.
  __device__ LaneRows At(int block) const {
    LaneRows r;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      r.digits[i] = digits[i] + block * 64;
      r.scales[i] = scales[i] + block;
      if constexpr (D::kMinima) r.sums[i] = sums[i] + block;
    }
    return r;
  }
  // Asks for the digits of a part, which begins here, so that they are in L1 when their stage comes.
  __device__ void Touch(int lane, int blocks) const {
    const int mine = lane / 4 % 2 * 4 + lane % 4;
#pragma unroll
    for (int i = 0; i < N; ++i) {
#pragma unroll
      for (int turn = 0; turn < 2; ++turn) {
        const int block = mine * 4 + turn * 2;
        uint32_t unused;
        if (block < blocks)
          asm volatile("ld.global.u32 %0, [%1];" : "=r"(unused) : "l"(digits[i] + block * 64) : "memory");
      }
    }
  }
};

// What a lane needs of the activations of one stage; of the blocks that there are, if that is not all eight.
template <class D, int N>
struct StageDigits {
  DigitLane b[N][8];
  float d[N][8];
  int2 sums[D::kMinima ? N : 1][D::kMinima ? 8 : 1];

  __device__ static DigitLane ReadWide(const int8_t* from) {
    const uint2 v = *reinterpret_cast<const uint2*>(from);
    return {v.x, v.y};
  }
  __device__ static DigitLane ReadNatural(const int8_t* from) {
    return {*reinterpret_cast<const uint32_t*>(from), *reinterpret_cast<const uint32_t*>(from + 16)};
  }
  template <bool kWhole>
  __device__ void Read(const LaneRows<D, N>& rows, int blocks, bool aligned) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
#pragma unroll
      for (int at = 0; at < 8; ++at) {
        const int block = kWhole ? at : min(at, blocks - 1);
        const int8_t* const from = rows.digits[i] + block * 64;
        constexpr bool kWide = D::kOrder == Order::kWide;
        b[i][at] = kWide ? ReadWide(from) : ReadNatural(from);
        if constexpr (D::kMinima) sums[i][at] = rows.sums[i][block];
        if (!kWhole || !aligned) d[i][at] = rows.scales[i][block];
      }
      if (kWhole && aligned) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float4 v = reinterpret_cast<const float4*>(rows.scales[i])[half];
          d[i][4 * half] = v.x, d[i][4 * half + 1] = v.y, d[i][4 * half + 2] = v.z, d[i][4 * half + 3] = v.w;
        }
      }
    }
  }
};

// Block b of the stage: its units, in the order of the columns.
template <class D, int N>
__device__ inline void AddBlock(const typename D::Regs& w, const StageDigits<D, N>& x, int b, int t,
                                const uint8_t* table, float (&sum)[N][2]) {
  const int inside = b % D::kBlocks;
  const uint4 code = D::Codes(w, inside, t, table);
#pragma unroll
  for (int unit = 0; unit < D::kUnits; ++unit) {
    const float scale[2] = {D::Scale(w, 0, inside, unit), D::Scale(w, 1, inside, unit)};
    float minimum[2] = {0, 0};
    if constexpr (D::kMinima)
      minimum[0] = D::Minimum(w, 0, inside, unit), minimum[1] = D::Minimum(w, 1, inside, unit);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      int product[2];
      UnitSums<D>(code, x.b[i][b], unit, t, product);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        sum[i][half] = Add<D>(sum[i][half], product[half], scale[half], x.d[i][b]);
        if constexpr (D::kMinima)
          sum[i][half] = AddMinimum<D>(sum[i][half], x.sums[i][b], unit, minimum[half], x.d[i][b]);
      }
    }
  }
}

// One stage of `blocks` blocks. A whole one has no branches inside, so that the blocks' work overlaps.
template <class D, int N, bool kWhole>
__device__ inline void AddStage(const LaneRows<D, N>& rows, TileRing& ring, int blocks, bool aligned,
                                int lane, const uint8_t* table, float (&sum)[N][2]) {
  StageDigits<D, N> x;
  x.template Read<kWhole>(rows, blocks, aligned);
  const uint8_t* const tiles = ring.Next();
#pragma unroll
  for (int tile = 0; tile < kStageTiles<D>; ++tile) {
    if (!kWhole && tile * D::kBlocks >= blocks) break;
    const typename D::Regs w = D::template Read<SharedMemory>(tiles + tile * D::kTileBytes, lane);
#pragma unroll
    for (int b = 0; b < D::kBlocks; ++b)
      if (kWhole || tile * D::kBlocks + b < blocks)
        AddBlock<D, N>(w, x, tile * D::kBlocks + b, lane % 4, table, sum);
  }
}

// Until all `threads` threads of the team have come.
__device__ inline void MeetTeam(int team, int threads) {
  if (threads == 32) return __syncwarp();  // more teams than there are barriers
  asm volatile("bar.sync %0, %1;" ::"r"(team + 1), "r"(threads) : "memory");
}

// Grid: blocks of teams of p.of_tile warps. Dynamic shared memory: the grid's table, a ring for each warp, the parts' sums of
// two tasks for each team: [parts][4 N activations][16 rows].
template <class D, int N>
__global__ void __launch_bounds__(kMostFewRowsThreads, 1)
    FewRowsKernel(const __grid_constant__ ProductArgs p) {
  extern __shared__ __align__(1024) uint8_t shared[];
  LetNextLaunchBegin();
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int team = warp / p.of_tile, place = warp % p.of_tile, team_threads = p.of_tile * 32;
  const int warps = static_cast<int>(blockDim.x) / 32;
  const int ring_bytes = TileRing::Bytes(p.stages, kStageBytes<D>);
  TileRing ring(shared + D::kTableBytes + warp * ring_bytes, p.stages, kStageBytes<D>, lane);
  constexpr int kEntries = 4 * N * kTileRows;
  float* parts =
      reinterpret_cast<float*>(shared + D::kTableBytes + warps * ring_bytes) + team * 2 * p.parts * kEntries;
  const int other_parts = p.parts * kEntries;

  const unsigned first = static_cast<unsigned>(team) * gridDim.x + blockIdx.x;
  Task task{static_cast<int>(first % static_cast<unsigned>(p.all_tiles)),
            static_cast<int>(first / static_cast<unsigned>(p.all_tiles))};
  int groups = static_cast<int>(p.groups);
  Feed<D, N> feed{task, place, 0, nullptr};
  const auto begin = [&] {
    if (task.group < groups) feed.Enter(p);
    for (int i = 0; i < p.stages; ++i) feed.Ask(p, ring, groups, place);
  };
  // Which experts are wanted is known only when the router has ended.
  const bool experts = p.pairs == Pairs::Kind::kExperts;
  if (!experts) begin();
  if constexpr (D::kTableBytes > 0)
    D::FillTable(shared, p.table, static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x));
  WaitForLaunchesBefore();
  if (experts) {
    if (N > 1 && p.order != nullptr) groups = min(groups, *p.group_count);
    begin();
  }
  if constexpr (D::kTableBytes > 0) __syncthreads();

  LaneRows<D, N> of_group;
  RowGroup group{};
  int entered = -1;
  for (int turn = 0; task.group < groups; task.Next(p), turn ^= 1) {
    const ProductTarget& target = TargetOf(p, task.tile);
    float* const sums = parts + turn * other_parts;
    const bool fresh = task.group != entered;
    if (fresh) {
      entered = task.group;
      group = GroupAt<N>(p, task.group);
      of_group.Enter(p, group, lane);
    }
    for (int part = place; part < p.parts; part += p.of_tile) {
      float sum[N][2] = {};
      int block = static_cast<int>(target.x_block) + part * (kPartColumns / 32),
          blocks = min(kPartColumns / 32, static_cast<int>(p.blocks) - part * (kPartColumns / 32));
      const bool aligned = static_cast<int>(target.x_block) % 4 == 0;
      if (fresh) of_group.At(block).Touch(lane, blocks);
      for (; blocks > 0; blocks -= 8, block += 8) {
        const LaneRows<D, N> rows = of_group.At(block);
        if (D::kBlocks == 8 || blocks >= 8)
          AddStage<D, N, true>(rows, ring, blocks, aligned, lane, shared, sum);
        else
          AddStage<D, N, false>(rows, ring, blocks, aligned, lane, shared, sum);
        ring.Free();
        feed.Ask(p, ring, groups, place);
      }
      float* const out = sums + part * kEntries + lane % 4 * kTileRows + lane / 4;
#pragma unroll
      for (int i = 0; i < N; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) out[4 * i * kTileRows + 8 * half] = sum[i][half];
    }
    MeetTeam(team, team_threads);
    // Sums of the next task go to the other half, and nobody comes to the one after it before all have left this one.
    const int first_row = (task.tile - static_cast<int>(target.first_tile)) * kTileRows;
    for (int entry = place * 32 + lane; entry < group.count * kTileRows; entry += team_threads) {
      const int a = entry / kTileRows, o = first_row + entry % kTileRows;
      if (o >= static_cast<int>(target.rows)) continue;
      float total = sums[entry];
      for (int part = 1; part < p.parts; ++part) total += sums[part * kEntries + entry];
      if (target.scales != nullptr) total *= target.scales[group.slice];
      target.y[RowAt<N>(p, group, a) * target.y_stride + o] = total;
    }
  }
}

// What the host decides for a launch: how the work is shared (in p), and the bytes of shared memory. With work for all multiprocessors
// two blocks of 8 warps share one, and two stages a warp are best (with more, the first stages of all warps come later, behind those
// that are wanted later); with less, a block is one team of up to 16 warps that asks for all it can.
template <class D, int N>
inline int64_t PlanFewRows(ProductArgs& p, dim3& grid, int& threads) {
  constexpr int kEntries = 4 * N * kTileRows;
  const int64_t tasks = p.row_tiles * p.groups;
  p.all_tiles = static_cast<int32_t>(p.row_tiles);
  p.row_tile_bytes = static_cast<int32_t>(p.tiles * D::kTileBytes);
  int64_t teams = 1;
  const auto bytes = [&] {
    return D::kTableBytes + teams * (p.of_tile * TileRing::Bytes(p.stages, kStageBytes<D>) +
                                     2 * p.parts * kEntries * int64_t{sizeof(float)});
  };
  int64_t most_blocks = p.multiprocessors;
  p.of_tile = p.parts < 16 ? p.parts : 16, p.stages = 4;
  if (tasks > p.multiprocessors) {
    p.of_tile = p.parts < 8 ? p.parts : 8, p.stages = 2;
    teams = 8 / p.of_tile;
    while (teams > 1 && bytes() > p.shared_bytes) --teams;
    const int64_t half = p.shared_bytes / 2 - 1024;  // a block takes 1 KB more than it asks for
    if (bytes() <= half) most_blocks *= 2;
    const int64_t wanted = (tasks + most_blocks - 1) / most_blocks;
    if (teams > wanted) teams = wanted;
    // A block that has one task asks for all of it, where two such blocks have room.
    if (wanted == 1) {
      p.stages = 4;
      if (bytes() > half) p.stages = 2;
    }
  }
  while (p.stages > 2 && bytes() > p.shared_bytes) --p.stages;
  while (p.of_tile > 1 && bytes() > p.shared_bytes) --p.of_tile;
  const int64_t blocks = (tasks + teams - 1) / teams;
  grid = dim3(static_cast<unsigned>(blocks < most_blocks ? blocks : most_blocks));
  threads = static_cast<int>(teams * p.of_tile * 32);
  const int64_t step = teams * grid.x;
  p.step_tiles = static_cast<int32_t>(step % p.row_tiles);
  p.step_groups = static_cast<int32_t>(step / p.row_tiles);
  return bytes();
}

}  // namespace glint::cuda
