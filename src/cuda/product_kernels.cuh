// The kernels of products with quantised weights, over any format's decoder (cuda/decoders.cuh). Instantiated format by format in
// product_*.cu, so that they compile side by side.
//
// A warp takes 16 weight rows and one part of 1,024 columns at a time and 4 N activation rows; the parts of a row are added in order
// at the end. Each lane carries the sums of weight rows g and g + 8 with activation rows t, 4 + t, ...: exactly one fma a unit and
// entry, in the order of the columns, whatever N and whoever shares the block.
#pragma once
#include <cstdint>

#include "cuda/async.cuh"
#include "cuda/decoders.cuh"
#include "cuda/product_args.h"

namespace glint::cuda {

inline constexpr int kPartColumns = 1024;

// Which rows a group of activation rows are: entry a of the group is row `first + a * step` of y.
struct RowGroup {
  int64_t slice, first, step;
  int count;
};
template <int N>
__device__ inline RowGroup GroupAt(const ProductArgs& p, int64_t index) {
  constexpr int kMost = 4 * N;
  if (N > 1 && p.order != nullptr) {  // the kernel of few rows, which decodes, need not ask
    if (index >= *p.group_count) return {0, 0, 1, 0};
    const PairGroup g = p.pair_groups[index];
    return {g.expert, g.first, 1, g.count};
  }
  switch (p.pairs) {
    case Pairs::Kind::kSame: {
      const int64_t first = index * kMost;
      return {0, first, 1, static_cast<int>(min(int64_t{kMost}, p.out_rows - first))};
    }
    case Pairs::Kind::kHeads: {
      const int64_t head = index % p.slices, first = index / p.slices * kMost, rows = p.out_rows / p.slices;
      return {head, first * p.slices + head, p.slices, static_cast<int>(min(int64_t{kMost}, rows - first))};
    }
    default:
      return {p.ids[index], index, 1, 1};
  }
}
// Row of y that entry a of a group is.
template <int N>
__device__ inline int64_t RowAt(const ProductArgs& p, const RowGroup& group, int a) {
  const int64_t at = group.first + a * group.step;
  return N > 1 && p.order != nullptr ? p.order[at] : at;
}

__device__ inline void Mma32(int (&c)[4], const uint4& a, uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%10,%10,%10,%10};"
      : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1), "r"(0));
}
__device__ inline void Mma16(int (&c)[4], uint32_t a0, uint32_t a1, uint32_t b0) {
  asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%7,%7,%7,%7};"
      : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
      : "r"(a0), "r"(a1), "r"(b0), "r"(0));
}

// A lane's digits for one block of 32 columns and four activation rows: column n = lane / 4 of the B fragment is digit n % 2 (0: high)
// of row n / 2.
struct DigitLane {
  uint32_t b0, b1;
};

// Integer sums of unit `unit` of a block: c[0] of rows (g, activation t), c[1] of (g + 8, activation t).
template <class D>
__device__ inline void UnitSums(const uint4& code, const DigitLane& digits, int unit, int t, int (&sum)[2]) {
  int c[4];
  if constexpr (D::kUnits == 1) {
    Mma32(c, code, digits.b0, digits.b1);
  } else if constexpr (D::kOrder == Order::kNatural) {
    unit == 0 ? Mma16(c, code.x, code.y, digits.b0) : Mma16(c, code.z, code.w, digits.b1);
  } else {  // the unit's columns are those of half of the lanes
    const bool mine = t / 2 == unit;
    Mma32(c, code, mine ? digits.b0 : 0u, mine ? digits.b1 : 0u);
  }
  sum[0] = c[0] * 256 + c[1];
  sum[1] = c[2] * 256 + c[3];
}

// Sums over the four lanes of a row.
__device__ inline int QuadSum(int v) {
  v += __shfl_xor_sync(0xffffffffu, v, 1);
  return v + __shfl_xor_sync(0xffffffffu, v, 2);
}
// The same sums without tensor cores, for one activation row whose digits all lanes have: high and low bytes of their columns.
template <class D>
__device__ inline void PlainUnitSums(const uint4& code, const DigitLane& high, const DigitLane& low, int unit,
                                     int t, int (&sum)[2]) {
  const auto dot = [&](uint32_t first, uint32_t second) {
    const auto part = [&](uint32_t c, uint32_t h, uint32_t l) {
      return __dp4a(static_cast<int>(c), static_cast<int>(h), 0) * 256 +
             __dp4a(static_cast<int>(c), static_cast<int>(l), 0);
    };
    if constexpr (D::kUnits == 1) return part(first, high.b0, low.b0) + part(second, high.b1, low.b1);
    if constexpr (D::kOrder == Order::kNatural)
      return unit == 0 ? part(first, high.b0, low.b0) : part(second, high.b1, low.b1);
    return t / 2 == unit ? part(first, high.b0, low.b0) + part(second, high.b1, low.b1) : 0;
  };
  sum[0] = QuadSum(dot(code.x, code.z));
  sum[1] = QuadSum(dot(code.y, code.w));
}

// The digits (of `digit`: 0 high, 1 low) of this lane's columns of a block.
template <class D>
__device__ inline DigitLane DigitsAt(const ProductArgs& p, int64_t x_row, int64_t block, int digit, int t) {
  const int8_t* const at = p.digits + ((x_row * p.x_blocks + block) * 2 + digit) * 32;
  if constexpr (D::kOrder == Order::kWide) {
    const uint2 v = __ldg(reinterpret_cast<const uint2*>(at + 8 * t));
    return {v.x, v.y};
  } else {
    return {__ldg(reinterpret_cast<const uint32_t*>(at + 4 * t)),
            __ldg(reinterpret_cast<const uint32_t*>(at + 16 + 4 * t))};
  }
}

// Scale and minimum of a unit times the activations' scale, and the two fmas of the definition.
template <class D>
__device__ inline float Add(float sum, int product, float scale, float d) {
  return fmaf(__int2float_rn(product), scale * d, sum);
}
template <class D>
__device__ inline float AddMinimum(float sum, const int2& digits, int unit, float minimum, float d) {
  const int n = D::kUnits == 1 ? digits.x + digits.y : unit == 0 ? digits.x : digits.y;
  return fmaf(__int2float_rn(n), minimum * d, sum);
}

// What a lane needs of the activations of one tile.
template <class D, int N>
struct TileDigits {
  DigitLane b[N][D::kBlocks];
  float d[N][D::kBlocks];
  int2 sums[D::kMinima ? N : 1][D::kMinima ? D::kBlocks : 1];
};

template <class D, int N>
__device__ inline TileDigits<D, N> ReadDigits(const ProductArgs& p, const RowGroup& group,
                                              int64_t first_block, int lane) {
  TileDigits<D, N> r;
  const int n = lane / 4, t = lane % 4;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int of_b = 4 * i + n / 2, of_c = 4 * i + t;
    const bool has_b = of_b < group.count, has_c = of_c < group.count;
    const int64_t row_b = RowAt<N>(p, group, has_b ? of_b : 0) / p.per_row,
                  row_c = RowAt<N>(p, group, has_c ? of_c : 0) / p.per_row;
#pragma unroll
    for (int b = 0; b < D::kBlocks; ++b) {
      const int64_t block = first_block + b;
      r.b[i][b] = {0, 0};
      r.d[i][b] = 0;
      if (has_b) r.b[i][b] = DigitsAt<D>(p, row_b, block, n % 2, t);
      if (has_c) r.d[i][b] = __ldg(p.x_scales + row_c * p.x_blocks + block);
      if constexpr (D::kMinima) {
        r.sums[i][b] = {0, 0};
        if (has_c) r.sums[i][b] = __ldg(reinterpret_cast<const int2*>(p.sums) + row_c * p.x_blocks + block);
      }
    }
  }
  return r;
}

// One block of a tile: its units, in the order of the columns.
template <class D, int N>
__device__ inline void AddBlock(const typename D::Regs& w, const TileDigits<D, N>& x, int b, int t,
                                const uint8_t* table, float (&sum)[N][2]) {
  const uint4 code = D::Codes(w, b, t, table);
#pragma unroll
  for (int unit = 0; unit < D::kUnits; ++unit) {
    const float scale[2] = {D::Scale(w, 0, b, unit), D::Scale(w, 1, b, unit)};
    float minimum[2] = {0, 0};
    if constexpr (D::kMinima) minimum[0] = D::Minimum(w, 0, b, unit), minimum[1] = D::Minimum(w, 1, b, unit);
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

// One tile of `blocks` blocks. A whole one has no branches inside, so that the blocks' work overlaps.
template <class D, int N>
__device__ inline void AddTile(const typename D::Regs& w, const TileDigits<D, N>& x, int blocks, int t,
                               const uint8_t* table, float (&sum)[N][2]) {
  if (D::kBlocks == 8 || blocks >= D::kBlocks) {
#pragma unroll
    for (int b = 0; b < D::kBlocks; ++b) AddBlock<D, N>(w, x, b, t, table, sum);
  } else {
#pragma unroll
    for (int b = 0; b < D::kBlocks; ++b)
      if (b < blocks) AddBlock<D, N>(w, x, b, t, table, sum);
  }
}

// The table of a grid, from global to shared memory; all threads of the block take part.
template <class D>
__device__ inline const uint8_t* ShareTable(const ProductArgs& p, uint8_t* shared) {
  if constexpr (D::kTableBytes > 0) {
    for (int i = static_cast<int>(threadIdx.x) * 16; i < D::kTableBytes;
         i += static_cast<int>(blockDim.x) * 16)
      *reinterpret_cast<uint4*>(shared + i) = __ldg(reinterpret_cast<const uint4*>(p.table + i));
    __syncthreads();
  }
  return shared;
}

// Sums of the parts for all of a row tile: [parts][4 N activations][16 rows] in shared memory, added in order.
template <int N>
__device__ inline void StoreTotals(const ProductArgs& p, const ProductTarget& target, const RowGroup& group,
                                   const float* parts, int count, int64_t row_tile, int lane) {
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int a = 4 * i + t;
    if (a >= group.count) continue;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t o = row_tile * kTileRows + g + 8 * half;
      if (o >= target.rows) continue;
      const float* const at = parts + a * kTileRows + g + 8 * half;
      float total = at[0];
      for (int part = 1; part < count; ++part) total += at[part * 4 * N * kTileRows];
      if (target.scales != nullptr) total *= target.scales[group.slice];
      target.y[RowAt<N>(p, group, a) * target.y_stride + o] = total;
    }
  }
}

__device__ inline const ProductTarget& TargetOf(const ProductArgs& p, int64_t row_tile) {
  int i = 0;
  while (i + 1 < p.targets && p.target[i + 1].first_tile <= row_tile) ++i;
  return p.target[i];
}

// How a block divides its warps: `of_tile` on one row tile, each on every of_tile-th part.
struct Division {
  int of_tile, tiles;
  __host__ __device__ explicit Division(int parts)
      : of_tile(parts <= kMostWarpsOfTile ? parts : kMostWarpsOfTile),
        tiles(of_tile >= kLeastWarps ? 1 : kLeastWarps / of_tile) {}
  static constexpr int kMostWarpsOfTile = 16, kLeastWarps = 4;
  __host__ __device__ int threads() const { return of_tile * tiles * 32; }
};

// A ring of tiles in shared memory for each warp, filled ahead of its use.
template <class D>
struct Ring {
  static constexpr int kStages = D::kBlocks == 4 ? 4 : 3;
  static constexpr int kBytes = kStages * D::kTileBytes;
};

template <class D>
__device__ inline void FetchTile(uint8_t* to, const uint8_t* from, int lane) {
#pragma unroll
  for (int at = 0; at < D::kTileBytes; at += 512) {
    if (at + lane * 16 < D::kTileBytes) CopyAsync16(to + at + lane * 16, from + at + lane * 16);
  }
}

// Grid: x over tiles of weight rows (Division::tiles a block), y over groups of 4 N activation rows. Dynamic shared memory: the grid,
// the rings, the parts' sums. The weights are asked for before the launches that make the activations have ended.
template <class D, int N>
__global__ void __launch_bounds__(512) TensorProductKernel(const ProductArgs p) {
  extern __shared__ __align__(16) uint8_t shared[];
  LetNextLaunchBegin();
  const Division division(p.parts);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32,
            t = lane % 4;
  const int tile_here = warp / division.of_tile, first_part = warp % division.of_tile;
  const int64_t row_tile = static_cast<int64_t>(blockIdx.x) * division.tiles + tile_here;
  const bool works = row_tile < p.row_tiles;
  const ProductTarget& target = TargetOf(p, works ? row_tile : 0);
  const int64_t tile_of_target = row_tile - target.first_tile;
  uint8_t* const ring = shared + D::kTableBytes + warp * Ring<D>::kBytes;
  float* const my_parts = reinterpret_cast<float*>(shared + D::kTableBytes +
                                                   division.of_tile * division.tiles * Ring<D>::kBytes) +
                          static_cast<int64_t>(tile_here) * p.parts * 4 * N * kTileRows;
  constexpr int kTilesOfPart = kPartColumns / (32 * D::kBlocks), kStages = Ring<D>::kStages;
  const auto rows_of = [&](int64_t slice) {
    return target.data + slice * target.slice_bytes + tile_of_target * p.tiles * D::kTileBytes;
  };
  const auto prefetch = [&](const uint8_t* from, int count) {
#pragma unroll
    for (int s = 0; s < kStages; ++s) {
      if (s < count) FetchTile<D>(ring + s * D::kTileBytes, from + s * D::kTileBytes, lane);
      CommitCopies();
    }
  };
  const auto tiles_of = [&](int part) {
    return min(kTilesOfPart, static_cast<int>(p.tiles) - part * kTilesOfPart);
  };
  if constexpr (D::kTableBytes > 0) {
    for (int i = static_cast<int>(threadIdx.x) * 16; i < D::kTableBytes;
         i += static_cast<int>(blockDim.x) * 16)
      CopyAsync16(shared + i, p.table + i);
  }
  // Which experts are wanted is known only when the router has ended.
  if (p.pairs == Pairs::Kind::kExperts) WaitForLaunchesBefore();
  const RowGroup first_group = GroupAt<N>(p, blockIdx.y);
  prefetch(rows_of(first_group.slice) + int64_t{first_part} * kTilesOfPart * D::kTileBytes,
           works && (N == 1 || first_group.count > 0) ? tiles_of(first_part) : 0);
  bool fetched = true;
  if (p.pairs != Pairs::Kind::kExperts) WaitForLaunchesBefore();
  if constexpr (D::kTableBytes > 0) {
    WaitForCopies<kStages - 1>();
    __syncthreads();  // every thread's piece of the grid is there
  }

  for (int64_t index = blockIdx.y; index < p.groups; index += gridDim.y) {
    const RowGroup group = GroupAt<N>(p, index);
    if (N > 1 && group.count == 0) break;  // the whole block: there are no more
    for (int part = first_part; works && part < p.parts; part += division.of_tile) {
      const int begin = part * kTilesOfPart, count = tiles_of(part);
      const uint8_t* const from = rows_of(group.slice) + static_cast<int64_t>(begin) * D::kTileBytes;
      if (!fetched) prefetch(from, count);
      fetched = false;
      float sum[N][2] = {};
      for (int i = 0; i < count; ++i) {
        const TileDigits<D, N> x =
            ReadDigits<D, N>(p, group, target.x_block + int64_t{begin + i} * D::kBlocks, lane);
        WaitForCopies<kStages - 1>();
        __syncwarp();  // all lanes' copies of the tile are there
        const typename D::Regs w = D::template Read<SharedMemory>(ring + i % kStages * D::kTileBytes, lane);
        AddTile<D, N>(w, x, static_cast<int>(p.blocks - int64_t{begin + i} * D::kBlocks), t, shared, sum);
        __syncwarp();  // nobody reads the tile any more
        if (i + kStages < count)
          FetchTile<D>(ring + i % kStages * D::kTileBytes, from + (i + kStages) * D::kTileBytes, lane);
        CommitCopies();
      }
      float* const out = my_parts + static_cast<int64_t>(part) * 4 * N * kTileRows;
#pragma unroll
      for (int i = 0; i < N; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          out[(4 * i + t) * kTileRows + lane / 4 + 8 * half] = sum[i][half];
    }
    __syncthreads();
    if (works && first_part == 0) StoreTotals<N>(p, target, group, my_parts, p.parts, tile_of_target, lane);
    __syncthreads();
  }
}

// The canonical kernel: the same sums without tensor cores, four activation rows a group.
template <class D>
__global__ void __launch_bounds__(512) PlainProductKernel(const ProductArgs p) {
  extern __shared__ __align__(16) uint8_t shared[];
  LetNextLaunchBegin();
  WaitForLaunchesBefore();
  const uint8_t* const table = ShareTable<D>(p, shared);
  const Division division(p.parts);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32,
            t = lane % 4;
  const int tile_here = warp / division.of_tile, first_part = warp % division.of_tile;
  const int64_t row_tile = static_cast<int64_t>(blockIdx.x) * division.tiles + tile_here;
  const bool works = row_tile < p.row_tiles;
  const ProductTarget& target = TargetOf(p, works ? row_tile : 0);
  const int64_t tile_of_target = row_tile - target.first_tile;
  float* const my_parts = reinterpret_cast<float*>(shared + D::kTableBytes) +
                          static_cast<int64_t>(tile_here) * p.parts * 4 * kTileRows;
  constexpr int kTilesOfPart = kPartColumns / (32 * D::kBlocks);

  for (int64_t index = blockIdx.y; index < p.groups; index += gridDim.y) {
    const RowGroup group = GroupAt<1>(p, index);
    const uint8_t* const row =
        target.data + group.slice * target.slice_bytes + tile_of_target * p.tiles * D::kTileBytes;
    for (int part = first_part; works && part < p.parts; part += division.of_tile) {
      const int begin = part * kTilesOfPart, end = min(begin + kTilesOfPart, static_cast<int>(p.tiles));
      float sum[2] = {};
      for (int tile = begin; tile < end; ++tile) {
        const auto w = D::template Read<GlobalMemory>(row + static_cast<int64_t>(tile) * D::kTileBytes, lane);
        for (int b = 0; b < D::kBlocks && int64_t{tile} * D::kBlocks + b < p.blocks; ++b) {
          const int64_t block = int64_t{tile} * D::kBlocks + b;
          const int64_t x_block = target.x_block + block;
          const uint4 code = D::Codes(w, b, t, table);
          for (int a = 0; a < group.count; ++a) {
            const int64_t x_row = (group.first + a * group.step) / p.per_row;
            const DigitLane high = DigitsAt<D>(p, x_row, x_block, 0, t),
                            low = DigitsAt<D>(p, x_row, x_block, 1, t);
            const float d = p.x_scales[x_row * p.x_blocks + x_block];
            for (int unit = 0; unit < D::kUnits; ++unit) {
              int product[2];
              PlainUnitSums<D>(code, high, low, unit, t, product);
              for (int half = 0; half < 2 && t == a; ++half) {
                sum[half] = Add<D>(sum[half], product[half], D::Scale(w, half, b, unit), d);
                if constexpr (D::kMinima) {
                  const int2 digits = reinterpret_cast<const int2*>(p.sums)[x_row * p.x_blocks + x_block];
                  sum[half] = AddMinimum<D>(sum[half], digits, unit, D::Minimum(w, half, b, unit), d);
                }
              }
            }
          }
        }
      }
      float* const out = my_parts + static_cast<int64_t>(part) * 4 * kTileRows;
      for (int half = 0; half < 2; ++half) out[t * kTileRows + lane / 4 + 8 * half] = sum[half];
    }
    __syncthreads();
    if (works && first_part == 0) StoreTotals<1>(p, target, group, my_parts, p.parts, tile_of_target, lane);
    __syncthreads();
  }
}

template <class D>
__global__ void DecodeRowsKernel(const DecodeArgs p) {
  extern __shared__ __align__(16) uint8_t shared[];
  const uint8_t* table = shared;
  if constexpr (D::kTableBytes > 0) {
    for (int i = static_cast<int>(threadIdx.x) * 16; i < D::kTableBytes;
         i += static_cast<int>(blockDim.x) * 16)
      *reinterpret_cast<uint4*>(shared + i) = __ldg(reinterpret_cast<const uint4*>(p.table + i));
    __syncthreads();
  }
  const int lane = static_cast<int>(threadIdx.x) % 32, t = lane % 4;
  const int64_t tile = int64_t{blockIdx.x} * (blockDim.x / 32) + threadIdx.x / 32;
  if (tile >= p.tiles) return;
  const int64_t row = p.rows[blockIdx.y].token, half = row % kTileRows / 8;
  if (lane / 4 != row % 8) return;
  const uint8_t* const at = p.data + (row / kTileRows * p.tiles + tile) * D::kTileBytes;
  const typename D::Regs w = D::template Read<GlobalMemory>(at, lane);
  for (int b = 0; b < D::kBlocks; ++b) {
    const int64_t column = (tile * D::kBlocks + b) * 32;
    if (column >= p.columns) break;
    const uint4 code = D::Codes(w, b, t, table);
    const uint32_t words[2] = {half != 0 ? code.y : code.x, half != 0 ? code.w : code.z};
    for (int i = 0; i < 8; ++i) {
      const int inside = D::kOrder == Order::kWide ? 8 * t + i : i / 4 * 16 + 4 * t + i % 4;
      const int unit = D::kUnits == 2 ? inside / 16 : 0;
      const auto value = static_cast<int8_t>(Byte(words[i / 4], i % 4));
      float out = D::Scale(w, static_cast<int>(half), b, unit) * static_cast<float>(value);
      if constexpr (D::kMinima) out = out + D::Minimum(w, static_cast<int>(half), b, unit);
      if (p.scales != nullptr) out = out * p.scales[0];
      p.out[int64_t{blockIdx.y} * p.out_stride + column + inside] = out;
    }
  }
}

// The launches of one format.
template <class D>
struct Launch {
  template <class Kernel>
  static void Product(Kernel kernel, int activation_tiles, int ring_bytes, const ProductArgs& p,
                      cudaStream_t stream) {
    const Division division(p.parts);
    const int warps = division.of_tile * division.tiles;
    const dim3 grid(static_cast<unsigned>((p.row_tiles + division.tiles - 1) / division.tiles),
                    static_cast<unsigned>(p.groups < 65535 ? p.groups : 65535));
    const size_t shared =
        static_cast<size_t>(D::kTableBytes + warps * ring_bytes) +
        sizeof(float) * static_cast<size_t>(division.tiles * p.parts * 4 * activation_tiles * kTileRows);
    if (shared > 48 * 1024)
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
    LaunchEarly(p.overlap, grid, division.threads(), shared, stream, kernel, p);
  }
  static void Run(const ProductArgs& p, int activation_tiles, bool tensor, cudaStream_t stream) {
    if (!tensor) return Product(PlainProductKernel<D>, 1, 0, p, stream);
    if (activation_tiles == 1) return Product(TensorProductKernel<D, 1>, 1, Ring<D>::kBytes, p, stream);
    Product(TensorProductKernel<D, 2>, 2, Ring<D>::kBytes, p, stream);
  }
  static void Decode(const DecodeArgs& p, int64_t rows, cudaStream_t stream) {
    constexpr int kWarps = 4;
    const dim3 grid(static_cast<unsigned>((p.tiles + kWarps - 1) / kWarps), static_cast<unsigned>(rows));
    DecodeRowsKernel<D><<<grid, kWarps * 32, D::kTableBytes, stream>>>(p);
  }
};

}  // namespace glint::cuda
