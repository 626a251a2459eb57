#include "cuda/float_product.h"

#include <type_traits>

#include "cuda/async.cuh"
#include "cuda/dots.cuh"
#include "cuda/float_rows.cuh"
#include "cuda/float_weights.cuh"
#include "cuda/launch.h"
#include "cuda/math.cuh"

namespace glint::cuda {
namespace {

constexpr int kThreads = 256;

// Dot16 of one weight row and one activation row a half warp. Loads of a stretch are all under way before the sum, whose order is
// fixed, waits for them.
template <class T>
__global__ void __launch_bounds__(kThreads) FloatProductKernel(const FloatArgs p) {
  LetNextLaunchBegin();
  WaitForLaunchesBefore();
  constexpr int kAhead = 16;
  const int lane = static_cast<int>(threadIdx.x) % 16;
  const int64_t o = int64_t{blockIdx.x} * (kThreads / 16) + threadIdx.x / 16;
  for (int64_t r = blockIdx.y; r < p.out_rows; r += gridDim.y) {
    const int64_t slice = p.pairs == Pairs::Kind::kSame    ? 0
                          : p.pairs == Pairs::Kind::kHeads ? r % p.slices
                                                           : p.ids[r];
    const T* const w = reinterpret_cast<const T*>(p.data + slice * p.slice_bytes) + o * p.columns;
    const float* const x = p.x + r / p.per_row * p.x_stride;
    const int64_t n = o < p.rows ? p.columns : 0;
    float sum = 0;
    int64_t k = lane;
    for (; k + 16 * (kAhead - 1) < n; k += 16 * kAhead) {
      float a[kAhead], b[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) a[i] = Weight(w, k + 16 * i), b[i] = x[k + 16 * i];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) sum = fmaf(a[i], b[i], sum);
    }
    for (; k < n; k += 16) sum = fmaf(Weight(w, k), x[k], sum);
    sum = SumLanes16(sum);
    if (lane == 0 && o < p.rows) p.y[r * p.y_stride + o] = p.scales != nullptr ? sum * p.scales[slice] : sum;
  }
}

// Many rows with F32 weights, by tiles of 32 weight rows and 32 activation rows (the router of a prompt): the kernel above reads two
// operands for a multiply-add.
constexpr int kTileWeights = 32;
using ManyTiles = DotTiles<kTileWeights>;
constexpr int kFewestTiles = 64;  // fewer leave multiprocessors idle

__global__ void __launch_bounds__(ManyTiles::kThreads, 2) ManyRowsKernel(const FloatArgs p) {
  extern __shared__ __align__(16) float tiles_shared[];
  LetNextLaunchBegin();
  WaitForLaunchesBefore();
  const int64_t w0 = int64_t{blockIdx.x} * kTileWeights, x0 = int64_t{blockIdx.y} * ManyTiles::kKeys;
  const auto* const w = reinterpret_cast<const float*>(p.data);
  const float scale = p.scales != nullptr ? p.scales[0] : 1.0f;
  const ManyTiles tiles;
  tiles.Run(
      tiles_shared, 2, 1, 1, p.columns,
      [&](int, int i) { return w + (w0 + i < p.rows ? w0 + i : p.rows - 1) * p.columns; },
      [&](int, int i) { return p.x + (x0 + i < p.out_rows ? x0 + i : p.out_rows - 1) * p.x_stride; },
      [&](int, int, const float(&sums)[4]) {
        const int64_t r = x0 + tiles.key, o = w0 + tiles.first_query;
        if (r >= p.out_rows) return;
        for (int i = 0; i < 4; ++i)
          if (o + i < p.rows) p.y[r * p.y_stride + o + i] = p.scales != nullptr ? sums[i] * scale : sums[i];
      });
}

// False: not for this product.
bool RunManyRows(const FloatArgs& p, cudaStream_t stream) {
  const int64_t blocks_w = (p.rows + kTileWeights - 1) / kTileWeights,
                blocks_x = (p.out_rows + ManyTiles::kKeys - 1) / ManyTiles::kKeys;
  // Copies of 16 bytes where rows are as long as multiples of them.
  const bool aligned =
      p.columns % 4 != 0 || (p.x_stride % 4 == 0 && reinterpret_cast<uintptr_t>(p.x) % 16 == 0 &&
                             reinterpret_cast<uintptr_t>(p.data) % 16 == 0);
  constexpr int kShared = ManyTiles::SharedBytes(2);
  if (p.pairs != Pairs::Kind::kSame || p.per_row != 1 || p.columns == 0 || !aligned || blocks_x > 65535 ||
      blocks_w * blocks_x < kFewestTiles || !AllowShared(ManyRowsKernel, kShared))
    return false;
  LaunchEarly(p.overlap, dim3(static_cast<unsigned>(blocks_w), static_cast<unsigned>(blocks_x)),
              ManyTiles::kThreads, size_t{kShared}, stream, ManyRowsKernel, p);
  return true;
}

template <class T>
__global__ void FloatDecodeKernel(const DecodeArgs p) {
  LetNextLaunchBegin();
  WaitForLaunchesBefore();
  const int64_t column = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (column >= p.columns) return;
  const T* const row = reinterpret_cast<const T*>(p.data) + int64_t{p.rows[blockIdx.y].token} * p.columns;
  const float value = Weight(row, column);
  p.out[int64_t{blockIdx.y} * p.out_stride + column] = p.scales != nullptr ? value * p.scales[0] : value;
}

template <class T, int kX>
__global__ void __launch_bounds__(32 * kRowWarps * kX)
    FewRowsKernel(const FloatArgs p, const int block_rows, const int tile) {
  extern __shared__ __align__(16) std::byte shared[];
  LetNextLaunchBegin();
  FewRowsProduct<T, kX>(p, block_rows, tile, shared);
}

template <class T, int kX>
void RunFewRows(const FloatArgs& p, const FewRowsCut& cut, cudaStream_t stream) {
  const auto kernel = FewRowsKernel<T, kX>;
  if (!AllowShared(kernel, cut.shared_bytes)) return;
  LaunchEarly(p.overlap, cut.grid, cut.threads, static_cast<size_t>(cut.shared_bytes), stream, kernel, p,
              cut.block_rows, cut.tile);
}

template <class T>
void RunFloats(const FloatArgs& p, cudaStream_t stream) {
  if (IsFewRows(p)) {
    const FewRowsCut cut = CutFewRows(p, sizeof(T));
    return cut.block_x == 1 ? RunFewRows<T, 1>(p, cut, stream) : RunFewRows<T, 2>(p, cut, stream);
  }
  if constexpr (std::is_same_v<T, float>) {
    if (RunManyRows(p, stream)) return;
  }
  const dim3 grid(static_cast<unsigned>((p.rows + kThreads / 16 - 1) / (kThreads / 16)),
                  static_cast<unsigned>(p.out_rows < 65535 ? p.out_rows : 65535));
  LaunchEarly(p.overlap, grid, kThreads, 0, stream, FloatProductKernel<T>, p);
}

template <class T>
void RunDecode(const DecodeArgs& p, int64_t rows, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>((p.columns + kThreads - 1) / kThreads), static_cast<unsigned>(rows));
  LaunchEarly(p.overlap, grid, kThreads, 0, stream, FloatDecodeKernel<T>, p);
}

}  // namespace

bool IsFloat(quant::Type type) {
  return type == quant::Type::kF32 || type == quant::Type::kF16 || type == quant::Type::kBF16;
}

void LaunchFloatProduct(quant::Type type, const FloatArgs& p, cudaStream_t stream) {
  if (type == quant::Type::kF32) RunFloats<float>(p, stream);
  if (type == quant::Type::kF16) RunFloats<__half>(p, stream);
  if (type == quant::Type::kBF16) RunFloats<BFloat>(p, stream);
}

void LaunchFloatDecode(quant::Type type, const DecodeArgs& p, int64_t rows, cudaStream_t stream) {
  if (type == quant::Type::kF32) RunDecode<float>(p, rows, stream);
  if (type == quant::Type::kF16) RunDecode<__half>(p, rows, stream);
  if (type == quant::Type::kBF16) RunDecode<BFloat>(p, rows, stream);
}

}  // namespace glint::cuda
