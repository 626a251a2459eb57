// What the product kernels are given, and the table of the formats' launches.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/pair_groups.h"
#include "cuda/product.h"

namespace glint::cuda {

// Matrices of one type and width that one launch serves: gate and up, or what kda.fused multiplies with x.
inline constexpr int kMostTargets = 6;
struct ProductTarget {
  const uint8_t* data;
  uint64_t slice_bytes;
  int64_t rows;         // weight rows
  const float* scales;  // [slices], or null
  float* y;
  int64_t y_stride;
  int64_t first_tile;  // row tiles of the targets before it
  int64_t x_block;     // of the activations, that the weights' first block meets
};

// Gate and up of a launch for groups of one row that ends with SwiGLU; h null: no such launch. Gate is the only target.
struct ProductGate {
  float* h;  // [rows of y][h_stride]
  int64_t h_stride;
  float limit;
  Digits digits;  // of h, none or with rows of as many blocks as h has
  int64_t to_up;  // bytes from gate's data to up's, of the same shape
  const float* up_scales;
};

struct ProductArgs {
  ProductTarget target[kMostTargets];
  ProductGate gate;
  int32_t targets;
  int64_t row_tiles;      // of all targets
  int64_t tiles, blocks;  // tiles and blocks of 32 columns of a row
  int32_t parts;          // of 1,024 columns
  const uint8_t* table;   // the format's grid, or null
  const uint8_t* spread;  // what D::FillTable makes of it (cuda/tables.h), or null

  const int8_t* digits;   // [x rows][x_blocks][2][32]
  const float* x_scales;  // [x rows][x_blocks]
  const int32_t* sums;    // [x rows][x_blocks][2]
  int64_t x_blocks;       // blocks of a row of activations, rounded up to 8

  int64_t out_rows;
  Pairs::Kind pairs;
  const int32_t* ids;
  bool chosen;  // as in Pairs
  int64_t per_row, slices, groups;
  // Null, or the pairs of kExperts sorted by expert: groups are then these, *group_count of them.
  const int32_t* order;
  const PairGroup* pair_groups;
  const int32_t* group_count;
  bool overlap;                           // the device can begin a launch early
  int32_t multiprocessors, shared_bytes;  // of the device; shared memory that a block can have

  // How the kernels of few rows and of one share the work (few_rows.cuh, one_row.cuh): decided at the launch.
  int32_t all_tiles;                // row_tiles, or bundles of them
  int32_t row_tile_bytes;           // of 16 whole weight rows
  int32_t of_tile;                  // warps of a team
  int32_t stages;                   // of a warp's ring
  int32_t step_tiles, step_groups;  // from a team's task to its next: so many groups, and so many of those
};
inline constexpr int kMostFewRowsThreads = 512;

struct DecodeArgs {
  const uint8_t* data;
  int64_t columns, tiles;
  const float* scales;
  const uint8_t* table;
  const RowView* rows;
  float* out;
  int64_t out_stride;
  bool overlap;
};

struct FormatLaunches {
  quant::Type type;
  // group_rows: 1, 4 or 8, the most activation rows of a group (the groups of p are counted so).
  void (*product)(const ProductArgs& p, int group_rows, bool tensor, cudaStream_t stream);
  bool (*gates)(
      const ProductArgs& p);  // whether it serves this launch, which has p.gate, for groups of one row
  void (*decode)(const DecodeArgs& p, int64_t rows, cudaStream_t stream);
  // What the decoder's FillTable makes of the grid: its bytes, and a launch that makes it in global memory.
  int table_bytes;
  void (*spread)(const uint8_t* grid, uint8_t* table, cudaStream_t stream);
};
// Null: no kernels for that type.
const FormatLaunches* FindLaunches(quant::Type type);

// The tables of product_blocks.cu, product_super.cu, product_points4.cu and product_points8.cu.
struct LaunchList {
  const FormatLaunches* first;
  int count;
};
LaunchList BlockLaunches();
LaunchList SuperLaunches();
LaunchList Points4Launches();
LaunchList Points8Launches();

}  // namespace glint::cuda
