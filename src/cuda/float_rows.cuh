// Dot16 of plain weights with a few rows (decoding), made for latency: a block has one or two weight rows and one or two activation
// rows. All it needs is asked of memory at once and lands in shared memory; then one warp an activation row takes the sums, whose order is
// fixed and whose every step waits for the one before (256 steps of 4 clocks for 4,096 columns), and fetches the operands of the next 16
// steps meanwhile.
#pragma once
#include <cstddef>
#include <cstdint>

#include "cuda/ahead.cuh"
#include "cuda/async.cuh"
#include "cuda/float_product.h"
#include "cuda/float_weights.cuh"
#include "cuda/math.cuh"

namespace glint::cuda {

inline constexpr int kFewRows = 8;  // of activations; more go to the kernel for many
inline constexpr int kFewWeightRows =
    1024;                            // beyond, bandwidth counts, and a block a pair would read x too often
inline constexpr int kRowWarps = 4;  // of an activation row: all copy, one adds up
inline constexpr int kStepColumns =
    512;  // columns come in multiples of these, filled up with what changes no sum
inline constexpr int kTileColumns = 4096;  // in shared memory at once
inline constexpr int kRowGap = 16;  // entries between weight rows there: the two half warps meet other banks

inline bool IsFewRows(const FloatArgs& p) {
  return p.pairs == Pairs::Kind::kSame && p.per_row == 1 && p.columns > 0 && p.out_rows <= kFewRows &&
         p.rows <= kFewWeightRows;
}

// How a product is cut into blocks.
struct FewRowsCut {
  int block_rows;  // weight rows of a block: 1 or 2
  int block_x;     // activation rows of a block: 1 or 2
  int tile;        // columns in shared memory at once
  dim3 grid;
  int threads;
  int shared_bytes;
};

// Of weights of `bytes` bytes each.
inline FewRowsCut CutFewRows(const FloatArgs& p, int bytes) {
  FewRowsCut cut{};
  cut.block_rows = p.rows > 128 ? 2 : 1;  // as many blocks as there are multiprocessors or so
  cut.block_x = p.out_rows > 1 ? 2 : 1;
  const int64_t columns = (p.columns + kStepColumns - 1) / kStepColumns * kStepColumns;
  cut.tile = static_cast<int>(columns < kTileColumns ? columns : kTileColumns);
  cut.grid = dim3(static_cast<unsigned>((p.rows + cut.block_rows - 1) / cut.block_rows),
                  static_cast<unsigned>((p.out_rows + cut.block_x - 1) / cut.block_x));
  cut.threads = 32 * kRowWarps * cut.block_x;
  cut.shared_bytes = cut.block_x * cut.tile * static_cast<int>(sizeof(float)) +
                     cut.block_rows * (cut.tile + kRowGap) * bytes;
  return cut;
}

// Copies of row[0 .. n) to shared memory are under way afterwards; `neutral` fills up to `padded`. kOnce: of weights.
template <bool kOnce, class T>
__device__ void FetchRow(T* to, const T* row, int n, int padded, T neutral) {
  constexpr int kPiece = 16 / sizeof(T);
  const bool aligned = reinterpret_cast<uintptr_t>(row) % 16 == 0;
  const uint64_t once = ReadOncePolicy();
  const auto copy = [&](int k) {
    kOnce ? CopyOnceAsync16(to + k, row + k, once) : CopyAsync16(to + k, row + k);
  };
  if (aligned && n == padded) {  // as nearly always
    const int step = static_cast<int>(blockDim.x) * kPiece;
#pragma unroll 8
    for (int k = static_cast<int>(threadIdx.x) * kPiece; k < n; k += step) copy(k);
    return;
  }
  for (int k = static_cast<int>(threadIdx.x) * kPiece; k < padded;
       k += static_cast<int>(blockDim.x) * kPiece) {
    if (aligned && k + kPiece <= n) {
      copy(k);
      continue;
    }
    for (int i = k; i < k + kPiece; ++i) to[i] = i < n ? row[i] : neutral;
  }
}

// sum after `steps` (a multiple of 32) more of a lane's steps.
template <class T>
__device__ inline float AddSteps(float sum, const T* w, const float* x, int steps) {
  constexpr int kAhead = 16;
  struct Operands {
    float w[kAhead], x[kAhead];
  };
  const auto fetch = [&](Operands& to, int first) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      to.w[i] = Weight(w, 16 * (first + i));
      to.x[i] = x[16 * (first + i)];
    }
  };
  const auto add = [&](const Operands& a) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) sum = fmaf(a.w[i], a.x[i], sum);
  };
  TakeInOrder<Operands, kAhead>(steps, fetch, add);
  return sum;
}

// The product of a block: kSame pairs, grid and shared memory as cut. Entries of y are written by threads of the block. Waits for the
// launches before when the first weights are on their way.
template <class T, int kX>
__device__ void FewRowsProduct(const FloatArgs& p, int block_rows, int tile, std::byte* shared) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int which = warp / kRowWarps;
  const bool adds = warp % kRowWarps == 0;
  const int64_t first_o = int64_t{blockIdx.x} * block_rows, first_r = int64_t{blockIdx.y} * kX;
  const int weight_rows = static_cast<int>(p.rows - first_o < block_rows ? p.rows - first_o : block_rows);
  const int x_rows = static_cast<int>(p.out_rows - first_r < kX ? p.out_rows - first_r : kX);
  // Where there is no second row, the upper half warp repeats the first.
  const int own = weight_rows == 2 ? lane / 16 : 0;

  auto* const x_shared = reinterpret_cast<float*>(shared);            // [kX][tile]
  auto* const w_shared = reinterpret_cast<T*>(x_shared + kX * tile);  // [block_rows][tile + kRowGap]
  const float* const x_lane = x_shared + which * tile + lane % 16;
  const T* const w_lane = w_shared + own * (tile + kRowGap) + lane % 16;
  float sum = 0;
  for (int64_t first = 0; first < p.columns; first += tile) {
    const int n = static_cast<int>(p.columns - first < tile ? p.columns - first : tile);
    const int padded = (n + kStepColumns - 1) / kStepColumns * kStepColumns;
    // 0 * -0 is -0, and adding that changes no sum, not even -0.
    for (int i = 0; i < weight_rows; ++i) {
      const T* const row = reinterpret_cast<const T*>(p.data) + (first_o + i) * p.columns + first;
      FetchRow<true>(w_shared + i * (tile + kRowGap), row, n, padded, T{});
    }
    if (first == 0) WaitForLaunchesBefore();
    for (int i = 0; i < x_rows; ++i)
      FetchRow<false>(x_shared + i * tile, p.x + (first_r + i) * p.x_stride + first, n, padded, -0.0f);
    CommitCopies();
    WaitForCopies<0>();
    __syncthreads();  // everybody's copies have landed
    if (adds) sum = AddSteps(sum, w_lane, x_lane, padded / 16);
    if (first + tile < p.columns) __syncthreads();  // the tile may be overwritten
  }
  if (!adds) return;
  sum = SumLanes16(sum);
  if (lane % 16 == 0 && lane / 16 < weight_rows && which < x_rows) {
    p.y[(first_r + which) * p.y_stride + first_o + own] = p.scales != nullptr ? sum * p.scales[0] : sum;
  }
}

}  // namespace glint::cuda
