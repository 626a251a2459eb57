// The table of the kernels for many activation rows (cuda/product_rows.cuh).
#pragma once
#include "cuda/product_args.h"
#include "cuda/tiles.h"

namespace glint::cuda {

inline constexpr int kRowsWarps = 6;  // of a block
inline constexpr int kWarpTiles = 2,
                     kBlockTiles = kWarpTiles * kRowsWarps;  // row tiles of a warp; and of the block's
inline constexpr int kRowsOfWarp = 64;                       // activation rows of a warp

// Blocks of weight rows that a launch has for a matrix of so many.
__host__ __device__ inline int RowsBlocks(int64_t weight_rows, int act_warps) {
  const int64_t rows = int64_t{kBlockTiles} / act_warps * kTileRows;
  return static_cast<int>((weight_rows + rows - 1) / rows);
}

struct RowsLaunch {
  quant::Type type;
  // act_warps: 1 or 2, of 64 activation rows each; the groups of p are counted so.
  void (*product)(const ProductArgs& p, int act_warps, cudaStream_t stream);
};
// Null: no kernel for that type.
const RowsLaunch* FindRowsLaunch(quant::Type type);

// The tables of product_rows_blocks.cu, product_rows_super.cu, product_rows_points4.cu and product_rows_points8.cu.
struct RowsLaunchList {
  const RowsLaunch* first;
  int count;
};
RowsLaunchList BlockRowsLaunches();
RowsLaunchList SuperRowsLaunches();
RowsLaunchList Points4RowsLaunches();
RowsLaunchList Points8RowsLaunches();

}  // namespace glint::cuda
