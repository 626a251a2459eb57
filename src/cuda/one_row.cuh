// Products with one row of activations (a decoded token, a row of an expert) and weights that are much work to decode: the IQ formats with
// grids, in blocks of 256 columns.
//
// few_rows.cuh has room for four rows in its tensor-core products; with one, three lanes of four convert, scale and add for nothing. Here
// a warp takes a bundle of T row tiles (2 or 4) at once. Columns n of the product's right side belong to tile n / 2 % T: they hold the
// digits (n % 2: high, low) while that tile's codes are on the left, and zeros while another's are, so that the T tiles' integer sums
// add up side by side in one accumulator, and lane t of four goes on with those of tile t alone. The same sums in the same order.
//
// Where a block has two units, two tiles at a time: columns n belong to unit n / 2 % 2 of tile n / 4, and have zeros for the columns of the
// other unit as well. Lane t then has both rows' sums of unit t % 2 of tile t / 2, and changes one for its neighbour's, so that each goes on
// with both units of one row.
//
// Codes with signs may come split (SplitCodes): codes times digits, less masks times digits, that is masks times the digits of the negated
// activations, all in the same accumulators.
//
// As there, warps form teams, each warp has every team-th part of 1,024 columns, and its weights come through shared memory, a stage a row
// tile. Stages are small: all lanes copy 16 bytes at a time, which takes fewer instructions than a bulk copy.
//
// A gated launch (ProductGate) has gate and up of the same 32 rows in a bundle, and ends with SwiGLU and its digits.
#pragma once
#include <algorithm>

#include "cuda/few_rows.cuh"
#include "cuda/math.cuh"
#include "cuda/round.cuh"

namespace glint::cuda {

// c += codes times digits, of one unit of a block.
__device__ inline void AddMma32(int (&c)[4], const uint4& a, uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}
// A warp's activations of eight blocks in shared memory: digits [8][2][4 lanes][8], after each lane's those of the negated activations
// where the codes come split; scales [8].
template <class D>
struct ChunkDigits {
  static constexpr int kDigit = D::kSplit ? 64 : 32, kStride = 2 * kDigit, kDigits = 8 * kStride,
                       kBytes = kDigits + 32;
  // As many zeros, for the columns of the other tiles: in the banks that a block's digits leave free, where they leave any.
  static constexpr int kZerosAt = D::kSplit ? 0 : 64, kZeroArea = kDigits + 256;

  struct Piece {  // of a lane
    uint4 digits;
    float scale;
  };
  // The blocks from `first` on of all activations, on their way.
  __device__ static Piece Read(const ProductArgs& p, int64_t first, int lane) {
    Piece piece{reinterpret_cast<const uint4*>(p.digits + first * 64)[lane], 0};
    if (lane < 8) piece.scale = p.x_scales[first + lane];
    return piece;
  }
  __device__ static void Store(uint8_t* memory, const Piece& piece, int lane) {
    __syncwarp();  // nobody reads those before them any more
    auto* const at = reinterpret_cast<uint4*>(memory + lane / 4 * kStride + lane % 4 * (kDigit / 2));
    if constexpr (D::kSplit) {
      const uint4 &v = piece.digits, negated = Negated(v, lane);
      at[0] = {v.x, v.y, negated.x, negated.y};
      at[1] = {v.z, v.w, negated.z, negated.w};
    } else {
      at[0] = piece.digits;
    }
    if (lane < 8) reinterpret_cast<float*>(memory + kDigits)[lane] = piece.scale;
    __syncwarp();
  }
  __device__ static const float4* Scales(const uint8_t* memory) {
    return reinterpret_cast<const float4*>(memory + kDigits);
  }

 private:
  // Digits of -n, where n = 256 high + low: -high and -low, but a low one of -128 stays, and the high one makes up for it. Lanes
  // 4 b, 4 b + 1 have the high ones, 4 b + 2, 4 b + 3 the low ones of the same columns.
  __device__ static uint4 Negated(const uint4& v, int lane) {
    const auto negated = [&](uint32_t word) {
      const uint32_t low = __shfl_xor_sync(0xffffffffu, word, 2),
                     carry = lane % 4 < 2 ? __vcmpeq4(low, 0x80808080u) : 0u;  // -1 where the low one stays
      return __vsub4(__vsub4(0u, word), carry);
    };
    return {negated(v.x), negated(v.y), negated(v.z), negated(v.w)};
  }
};

// What a warp asks for next, 256 columns of each row tile of its bundle: stage r is row tile r's.
template <class D, int T>
struct BundleFeed {
  static_assert(D::kBlocks == 8 && D::kOrder == Order::kWide && !D::kMinima);
  static constexpr int kBytes = T * D::kTileBytes;
  Task task;               // its tile is a bundle
  int part, left;          // chunks that are left of the part
  const uint8_t* from[T];  // of the row tiles, a lane's first 16 bytes
  // A lane's first 16 bytes of stage 0 in shared memory. By a shuffle, so that the compiler can't take the address apart: where ptxas
  // 13.0 makes it a sum with a uniform register, the policy's comes out odd, which the GPU refuses as illegal (tools/gpu-check looks for
  // such).
  uint32_t to;
  uint64_t policy = ReadOncePolicy();
  __device__ void Enter(const ProductArgs& p, int lane) {
    const ProductTarget& target = TargetOf(p, task.tile);
    const bool gated = p.gate.h != nullptr;
    const int begin = part * kPartTiles<D>,
              first = (task.tile - static_cast<int>(target.first_tile)) * (gated ? T / 2 : T),
              last = static_cast<int>((target.rows - 1) / kTileRows) - first;  // that the matrix has
    const uint8_t* at = target.data + int64_t{first} * p.row_tile_bytes + begin * D::kTileBytes + lane * 16;
    if (p.pairs != Pairs::Kind::kSame)
      at += static_cast<uint64_t>(GroupAt<1>(p, task.group).slice) * target.slice_bytes;
#pragma unroll
    for (int r = 0; r < T; ++r)
      from[r] = gated ? at + int64_t{r % (T / 2)} * p.row_tile_bytes + (r < T / 2 ? 0 : p.gate.to_up)
                      : at + int64_t{min(r, last)} * p.row_tile_bytes;
    left = min(kPartTiles<D>, static_cast<int>(p.tiles) - begin);
  }
  // Stage r, which nobody reads any more; or nothing, where all is asked for.
  __device__ void Ask(int r, int groups, int lane) {
    if (task.group < groups) {
#pragma unroll
      for (int at = 0; at < D::kTileBytes; at += 512)
        if (at + 512 <= D::kTileBytes || at + lane * 16 < D::kTileBytes)
          CopyOnceAsync16(to + static_cast<uint32_t>(r * D::kTileBytes + at), from[r] + at, policy);
      from[r] += D::kTileBytes;
    }
    CommitCopies();
  }
  // After all T were asked for. `first_part`: of the warp.
  __device__ void Advance(const ProductArgs& p, int groups, int first_part, int lane) {
    if (--left > 0 || task.group >= groups) return;
    part += p.of_tile;
    if (part >= p.parts) part = first_part, task.Next(p);
    if (task.group < groups) Enter(p, lane);
  }
};

// Which rows of a bundle a lane goes on with, kRows of each kTogether tiles whose integer sums add up side by side.
template <class D, int T>
struct BundleSums {
  static constexpr bool kRowsApart = requires {
    typename D::RowRaw;
  };  // the decoder reads the scales of a row by themselves
  static constexpr bool kTwoUnits = D::kUnits == 2;
  static constexpr int kTogether = kTwoUnits ? 2 : T, kRows = kTogether == 2 && kRowsApart ? 1 : 2;
  static constexpr int kSums = T / kTogether * kRows;
  // Lane t's tile of those together, and which half of it, where it has one row alone.
  __device__ static int Tile(int t) { return kTwoUnits ? t / 2 : t % kTogether; }
  __device__ static int Half(int t) { return kTwoUnits ? t % 2 : t / 2; }
  // Row of the bundle that sum i is.
  __device__ static int Entry(int i, int lane) {
    const int t = lane % 4, half = kRows == 1 ? Half(t) : i % 2;
    return (i / kRows * kTogether + Tile(t)) * kTileRows + half * 8 + lane / 4;
  }
  __device__ static bool Stores(int lane) { return kRows == 1 || lane % 4 < T; }
  // Whether columns n of the right side are those of tile r, as far as lane t's columns of a block go.
  __device__ static bool Mine(int n, int t, int r) {
    return kTwoUnits ? n / 4 == r % 2 && n / 2 % 2 == t / 2 : n / 2 % T == r;
  }
};

// What of a tile's registers a lane keeps for the scales of its rows: as they lie in the tile, where the decoder has that.
template <class D, int T>
struct LaneScales {
  typename D::Regs regs;
  __device__ void Read(const uint8_t*, int, const typename D::Regs& w) { regs = w; }
  __device__ void Finish() {}
  __device__ float Of(int row, int b, int unit) const { return D::Scale(regs, row, b, unit); }
};
template <class D, int T>
requires(BundleSums<D, T>::kRowsApart) struct LaneScales<D, T> {
  static constexpr int kRows = BundleSums<D, T>::kRows;
  typename D::RowRaw raw[kRows];
  typename D::RowScales scales[kRows];
  __device__ void Read(const uint8_t* tile, int lane, const typename D::Regs&) {
    const int first = lane / 4 + (kRows == 1 ? BundleSums<D, T>::Half(lane % 4) * 8 : 0);
#pragma unroll
    for (int i = 0; i < kRows; ++i) raw[i] = D::template ReadRow<SharedMemory>(tile, first + 8 * i);
  }
  __device__ void Finish() {
#pragma unroll
    for (int i = 0; i < kRows; ++i) scales[i] = D::Scales(raw[i]);
  }
  __device__ float Of(int row, int b, int unit) const { return scales[row].Of(D::kUnits * b + unit); }
};

// Eight blocks of a bundle, whose digits are at x. Asks for the next ones.
template <class D, int T>
__device__ inline void AddChunk(const uint8_t* stages, BundleFeed<D, T>& feed, int groups, const uint8_t* x,
                                const uint8_t* zeros, int lane, const uint8_t* table,
                                float (&sum)[BundleSums<D, T>::kSums]) {
  using Chunk = ChunkDigits<D>;
  using Sums = BundleSums<D, T>;
  const int t = lane % 4, n = lane / 4;
#pragma unroll
  for (int first = 0; first < T; first += Sums::kTogether) {
    int c[8][4] = {};
    LaneScales<D, T> scales;
#pragma unroll
    for (int r = first; r < first + Sums::kTogether; ++r) {
      const uint8_t* const digits =
          (Sums::Mine(n, t, r) ? x : zeros) + n % 2 * Chunk::kDigit + t * (Chunk::kDigit / 4);
      WaitForCopies<T - 1>();
      __syncwarp();
      const uint8_t* const stage = stages + r * D::kTileBytes;
      const typename D::Regs w = D::template Read<SharedMemory>(stage, lane);
      if (Sums::Tile(t) == r - first) scales.Read(stage, lane, w);
#pragma unroll
      for (int b = 0; b < 8; ++b) {
        if constexpr (D::kSplit) {
          const SplitCodes code = D::CodesSplit(w, b, lane, table);
          const uint4 of_lane = *reinterpret_cast<const uint4*>(digits + b * Chunk::kStride);
          AddMma32(c[b], code.codes, of_lane.x, of_lane.y);
          AddMma32(c[b], code.masks, of_lane.z, of_lane.w);
        } else {
          const uint2 of_lane = *reinterpret_cast<const uint2*>(digits + b * Chunk::kStride);
          AddMma32(c[b], D::Codes(w, b, t, table), of_lane.x, of_lane.y);
        }
      }
      __syncwarp();
      feed.Ask(r, groups, lane);
    }
    scales.Finish();
    float* const own = sum + first / Sums::kTogether * Sums::kRows;
    const bool is_lower = Sums::Half(t) == 1;
#pragma unroll
    for (int b = 0; b < 8; ++b) {
      const float4 four = Chunk::Scales(x)[b / 4];
      const float d = b % 4 == 0 ? four.x : b % 4 == 1 ? four.y : b % 4 == 2 ? four.z : four.w;
      const int upper = c[b][0] * 256 + c[b][1], lower = c[b][2] * 256 + c[b][3];
      if constexpr (Sums::kTwoUnits) {
        // Lanes of even t have unit 0 of both rows, those of odd t unit 1: each gets the other unit of its own row.
        const int other = __shfl_xor_sync(0xffffffffu, is_lower ? upper : lower, 1);
        own[0] = Add<D>(own[0], is_lower ? other : upper, scales.Of(0, b, 0), d);
        own[0] = Add<D>(own[0], is_lower ? lower : other, scales.Of(0, b, 1), d);
      } else if constexpr (Sums::kRows == 1) {
        own[0] = Add<D>(own[0], is_lower ? lower : upper, scales.Of(0, b, 0), d);
      } else {
        own[0] = Add<D>(own[0], upper, scales.Of(0, b, 0), d);
        own[1] = Add<D>(own[1], lower, scales.Of(1, b, 0), d);
      }
    }
  }
}

// SwiGLU of an entry of a row of the pairs, and the digits of its block; by a whole warp, which has the block.
__device__ inline void StoreGated(const ProductGate& gate, int64_t row, int64_t column, int64_t block,
                                  int lane, float of_gate, float of_up) {
  const float h = SwiGlu(of_gate, of_up, gate.limit);
  gate.h[row * gate.h_stride + column] = h;
  if (gate.digits.digits != nullptr) StoreRounded(gate.digits, row, block, lane, h);
}

// Grid: blocks of teams of p.of_tile warps. Dynamic shared memory: the grid's table, zeros, for each warp its stages and its
// activations, for each team the parts' sums of two tasks: [parts][T tiles][16 rows].
template <class D, int T>
__global__ void __launch_bounds__(kMostFewRowsThreads, 1)
    OneRowKernel(const __grid_constant__ ProductArgs p) {
  extern __shared__ __align__(1024) uint8_t shared[];
  // The launch after gate and up of experts may ask for weights of these experts at once, so it must not begin before they are known.
  const bool experts = p.pairs == Pairs::Kind::kExperts, first_of_experts = experts && p.gate.h != nullptr;
  if (!first_of_experts) LetNextLaunchBegin();
  using Chunk = ChunkDigits<D>;
  using Feed = BundleFeed<D, T>;
  const auto thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int lane = thread % 32, warp = thread / 32, warps = threads / 32;
  const int team = warp / p.of_tile, place = warp % p.of_tile, team_threads = p.of_tile * 32;
  constexpr int kEntries = T * kTileRows;
  uint8_t *const zeros = shared + D::kTableBytes, *const all_stages = zeros + Chunk::kZeroArea,
                 *const stages = all_stages + warp * Feed::kBytes,
                 *const activations = all_stages + warps * Feed::kBytes,
                 *const x = activations + warp * Chunk::kBytes;
  float* const parts =
      reinterpret_cast<float*>(activations + warps * Chunk::kBytes) + team * 2 * p.parts * kEntries;

  const unsigned first = static_cast<unsigned>(team) * gridDim.x + blockIdx.x;
  Task task{static_cast<int>(first % static_cast<unsigned>(p.all_tiles)),
            static_cast<int>(first / static_cast<unsigned>(p.all_tiles))};
  const auto groups = static_cast<int>(p.groups);
  Feed feed{task, place, 0, {}, __shfl_sync(0xffffffffu, AddressInShared(stages + lane * 16), lane)};
  const auto begin = [&] {
    if (task.group < groups) feed.Enter(p, lane);
#pragma unroll
    for (int r = 0; r < T; ++r) feed.Ask(r, groups, lane);
    feed.Advance(p, groups, place, lane);
  };
  // The first block of activations that a task's part meets. Which slice it is, an expert's id, need not be known.
  const auto first_block = [&](int part) {
    const int row = p.pairs == Pairs::Kind::kSame ? 0 : task.group;
    return int64_t{p.per_row == 1 ? row : row / static_cast<int>(p.per_row)} * p.x_blocks +
           TargetOf(p, task.tile).x_block + part * (kPartColumns / 32);
  };
  // Which experts are wanted is known only when the router has ended.
  const bool must_wait = experts && !p.chosen;
  if (!must_wait) begin();
  if constexpr (D::kSplit)
    D::FillSingles(shared, p.table, thread, threads);
  else
    D::FillTable(shared, p.table, thread, threads);
  for (int at = thread * 16; at < Chunk::kZeroArea; at += threads * 16)
    *reinterpret_cast<uint4*>(zeros + at) = uint4{};
  WaitForLaunchesBefore();
  if (first_of_experts) LetNextLaunchBegin();
  typename Chunk::Piece piece{};
  if (task.group < groups) piece = Chunk::Read(p, first_block(place), lane);
  if (must_wait) begin();
  __syncthreads();

  for (int turn = 0; task.group < groups; turn ^= 1) {
    const ProductTarget& target = TargetOf(p, task.tile);
    float* const sums = parts + turn * p.parts * kEntries;
    const RowGroup group = GroupAt<1>(p, task.group);
    for (int part = place; part < p.parts; part += p.of_tile) {
      float sum[BundleSums<D, T>::kSums] = {};
      const int chunks = min(kPartTiles<D>, static_cast<int>(p.tiles) - part * kPartTiles<D>);
      const int64_t of_x = first_block(part);
      if (part != place) piece = Chunk::Read(p, of_x, lane);
      for (int chunk = 0; chunk < chunks; ++chunk) {
        Chunk::Store(x, piece, lane);
        if (chunk + 1 < chunks) piece = Chunk::Read(p, of_x + 8 * (chunk + 1), lane);
        AddChunk<D, T>(stages, feed, groups, x, zeros + Chunk::kZerosAt, lane, shared, sum);
        feed.Advance(p, groups, place, lane);
      }
      if (BundleSums<D, T>::Stores(lane)) {
#pragma unroll
        for (int i = 0; i < BundleSums<D, T>::kSums; ++i)
          sums[part * kEntries + BundleSums<D, T>::Entry(i, lane)] = sum[i];
      }
    }
    const int bundle = task.tile - static_cast<int>(target.first_tile);
    task.Next(p);
    if (task.group < groups) piece = Chunk::Read(p, first_block(place), lane);
    MeetTeam(team, team_threads);
    // Sums of the next task go to the other half, and nobody comes to the one after it before all have left this one.
    const auto total = [&](int entry, const float* scales) {
      float all = sums[entry];
      for (int part = 1; part < p.parts; ++part) all += sums[part * kEntries + entry];
      return scales == nullptr ? all : all * scales[group.slice];
    };
    if (T == 4 && p.gate.h != nullptr) {
      if (place == 0)
        StoreGated(p.gate, group.first, bundle * 32 + lane, bundle, lane, total(lane, target.scales),
                   total(32 + lane, p.gate.up_scales));
      continue;
    }
    for (int entry = place * 32 + lane; entry < kEntries; entry += team_threads) {
      const int o = bundle * kEntries + entry;
      if (o < static_cast<int>(target.rows))
        target.y[group.first * target.y_stride + o] = total(entry, target.scales);
    }
  }
}

// How the work of a launch is shared by one block a multiprocessor, for bundles of T tiles: fills in p, and tells what it takes.
struct OneRowPlan {
  int64_t bytes, cost;  // of shared memory; tiles that the slowest warp goes through
  bool fits;            // in the shared memory that there is
  dim3 grid;
  int threads;
};
template <class D, int T>
inline OneRowPlan PlanOneRow(ProductArgs& p) {
  constexpr int kWarps = kMostFewRowsThreads / 32;
  constexpr int64_t kOfTeam = 2 * T * kTileRows * int64_t{sizeof(float)};  // a part's sums
  int64_t bundles = 0;
  for (int i = 0; i < p.targets; ++i) {
    ProductTarget& target = p.target[i];
    target.first_tile = bundles;
    const int64_t tiles = (target.rows + kTileRows - 1) / kTileRows,
                  of_bundle = p.gate.h != nullptr ? T / 2 : T;
    bundles += (tiles + of_bundle - 1) / of_bundle;
  }
  p.all_tiles = static_cast<int32_t>(bundles);
  p.row_tile_bytes = static_cast<int32_t>(p.tiles * D::kTileBytes);
  const int64_t tasks = bundles * p.groups;
  p.of_tile = p.parts < kWarps ? p.parts : kWarps;
  int64_t teams = std::min<int64_t>(kWarps / p.of_tile, (tasks + p.multiprocessors - 1) / p.multiprocessors);
  const auto bytes = [&] {
    return D::kTableBytes + ChunkDigits<D>::kZeroArea +
           teams * (p.of_tile * (BundleFeed<D, T>::kBytes + ChunkDigits<D>::kBytes) + p.parts * kOfTeam);
  };
  while (teams > 1 && bytes() > p.shared_bytes) --teams;
  while (p.of_tile > 1 && bytes() > p.shared_bytes) --p.of_tile;
  OneRowPlan plan{};
  plan.grid = dim3(static_cast<unsigned>(std::min<int64_t>(tasks, p.multiprocessors)));
  plan.threads = static_cast<int>(teams) * p.of_tile * 32;
  plan.bytes = bytes();
  plan.fits = plan.bytes <= p.shared_bytes;
  const int64_t step = teams * plan.grid.x;
  plan.cost = (tasks + step - 1) / step * ((p.parts + p.of_tile - 1) / p.of_tile) * T;
  p.step_tiles = static_cast<int32_t>(step % bundles);
  p.step_groups = static_cast<int32_t>(step / bundles);
  return plan;
}

}  // namespace glint::cuda
