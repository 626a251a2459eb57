// The kernels of products with quantised weights, over any format's decoder (cuda/decoders.cuh). Instantiated format by format in
// product_*.cu, so that they compile side by side.
#pragma once
#include <cstdint>

#include "cuda/few_rows.cuh"
#include "cuda/launch.h"
#include "cuda/one_row.cuh"

namespace glint::cuda {

// Sums of the parts for all of a row tile: [parts][4 activations][16 rows] in shared memory, added in order.
__device__ inline void StoreTotals(const ProductArgs& p, const ProductTarget& target, const RowGroup& group,
                                   const float* parts, int count, int64_t row_tile, int lane) {
  const int g = lane / 4, t = lane % 4;
  if (t >= group.count) return;
  for (int half = 0; half < 2; ++half) {
    const int64_t o = row_tile * kTileRows + g + 8 * half;
    if (o >= target.rows) continue;
    const float* const at = parts + t * kTileRows + g + 8 * half;
    float total = at[0];
    for (int part = 1; part < count; ++part) total += at[part * 4 * kTileRows];
    if (target.scales != nullptr) total *= target.scales[group.slice];
    target.y[RowAt<1>(p, group, t) * target.y_stride + o] = total;
  }
}

// How a block of the canonical kernel divides its warps: `of_tile` on one row tile, each on every of_tile-th part.
struct Division {
  int of_tile, tiles;
  __host__ __device__ explicit Division(int parts)
      : of_tile(parts <= kMostWarpsOfTile ? parts : kMostWarpsOfTile),
        tiles(of_tile >= kLeastWarps ? 1 : kLeastWarps / of_tile) {}
  static constexpr int kMostWarpsOfTile = 16, kLeastWarps = 4;
  __host__ __device__ int threads() const { return of_tile * tiles * 32; }
};

// The canonical kernel: the same sums without tensor cores, four activation rows a group. It is plain rather than fast: where a tile's
// registers are picked by a number known only at run time, they lie in local memory (up to 144 bytes a thread).
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
  const ProductTarget& target = TargetOf(p, works ? static_cast<int>(row_tile) : 0);
  const int64_t tile_of_target = row_tile - target.first_tile;
  float* const my_parts = reinterpret_cast<float*>(shared + D::kTableBytes) +
                          static_cast<int64_t>(tile_here) * p.parts * 4 * kTileRows;
  constexpr int kTilesOfPart = kPartColumns / (32 * D::kBlocks);

  for (int64_t index = blockIdx.y; index < p.groups; index += gridDim.y) {
    const RowGroup group = GroupAt<1>(p, static_cast<int>(index));
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
            const int64_t x_row = int64_t{group.first + a * group.step} / p.per_row;
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
    if (works && first_part == 0) StoreTotals(p, target, group, my_parts, p.parts, tile_of_target, lane);
    __syncthreads();
  }
}

template <class D>
__global__ void DecodeRowsKernel(const DecodeArgs p) {
  extern __shared__ __align__(16) uint8_t shared[];
  const uint8_t* const table = ShareTable<D>(p, shared);
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

template <class D>
__global__ void SpreadTableKernel(const uint8_t* grid, uint8_t* table) {
  D::FillTable(table, grid, static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x));
}

// Of one row of activations, where D::kRowParts (cuda/row_parts.cuh). False: it is not for this launch.
template <class D>
bool LaunchRowParts(ProductArgs p, cudaStream_t stream);

// The launches of one format.
template <class D>
struct Launch {
  // A kernel with so many bytes of shared memory; where the device has not got them, the caller finds cudaGetLastError.
  static void Early(void (*kernel)(ProductArgs), const ProductArgs& p, dim3 grid, int threads, int64_t shared,
                    cudaStream_t stream) {
    if (AllowShared(kernel, static_cast<int>(shared)))
      LaunchEarly(p.overlap, grid, threads, static_cast<size_t>(shared), stream, kernel, p);
  }
  static void Plain(const ProductArgs& p, cudaStream_t stream) {
    const Division division(p.parts);
    const dim3 grid(static_cast<unsigned>((p.row_tiles + division.tiles - 1) / division.tiles),
                    static_cast<unsigned>(p.groups < 65535 ? p.groups : 65535));
    const int64_t shared = D::kTableBytes + int64_t{sizeof(float)} * division.tiles * p.parts * 4 * kTileRows;
    Early(PlainProductKernel<D>, p, grid, division.threads(), shared, stream);
  }
  template <int N>
  static void FewRows(ProductArgs p, cudaStream_t stream) {
    dim3 grid;
    int threads = 0;
    const int64_t shared = PlanFewRows<D, N>(p, grid, threads);
    Early(FewRowsKernel<D, N>, p, grid, threads, shared, stream);
  }
  template <int T>
  static void OneRow(const ProductArgs& p, const OneRowPlan& plan, cudaStream_t stream) {
    Early(OneRowKernel<D, T>, p, plan.grid, plan.threads, plan.bytes, stream);
  }
  static void OneRow(const ProductArgs& p, cudaStream_t stream) {
    ProductArgs of_four = p, of_two = p;
    const OneRowPlan four = PlanOneRow<D, 4>(of_four);
    if (p.gate.h != nullptr) return OneRow<4>(of_four, four, stream);
    const OneRowPlan two = PlanOneRow<D, 2>(of_two);
    if (!four.fits && !two.fits) return FewRows<1>(p, stream);
    two.fits && (!four.fits || two.cost < four.cost) ? OneRow<2>(of_two, two, stream)
                                                     : OneRow<4>(of_four, four, stream);
  }
  static bool Gates(const ProductArgs& p) {
    if constexpr (D::kOneRow) {
      ProductArgs args = p;
      return PlanOneRow<D, 4>(args).fits;
    } else {
      return false;
    }
  }
  static void Run(const ProductArgs& p, int group_rows, bool tensor, cudaStream_t stream) {
    if (!tensor) return Plain(p, stream);
    if constexpr (D::kOneRow)
      if (group_rows == 1) return OneRow(p, stream);
    if constexpr (D::kRowParts)
      if (group_rows == 1 && p.pairs == Pairs::Kind::kSame && LaunchRowParts<D>(p, stream)) return;
    group_rows <= 4 ? FewRows<1>(p, stream) : FewRows<2>(p, stream);
  }
  static void Decode(const DecodeArgs& p, int64_t rows, cudaStream_t stream) {
    constexpr int kWarps = 4;
    const dim3 grid(static_cast<unsigned>((p.tiles + kWarps - 1) / kWarps), static_cast<unsigned>(rows));
    if (AllowShared(DecodeRowsKernel<D>, D::kTableBytes))
      DecodeRowsKernel<D><<<grid, kWarps * 32, D::kTableBytes, stream>>>(p);
  }
  static void Spread(const uint8_t* grid, uint8_t* table, cudaStream_t stream) {
    SpreadTableKernel<D><<<1, 256, 0, stream>>>(grid, table);
  }
  static constexpr FormatLaunches kAll{D::kType, Run, Gates, Decode, D::kTableBytes, Spread};
};

}  // namespace glint::cuda
