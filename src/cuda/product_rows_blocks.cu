// Products of many rows with the formats of 32 weights a block.
#include "cuda/product_rows_wide.cuh"

namespace glint::cuda {

RowsLaunchList BlockRowsLaunches() {
  static constexpr RowsLaunch kLaunches[] = {
      {Q8_0Tile::kType, LaunchRows<Q8_0Tile>},   {Q4_0Tile::kType, LaunchRows<Q4_0Tile>},
      {Q4_1Tile::kType, LaunchRows<Q4_1Tile>},   {Q5_0Tile::kType, LaunchRows<Q5_0Tile>},
      {Q5_1Tile::kType, LaunchRows<Q5_1Tile>},   {IQ4_NLTile::kType, LaunchRows<IQ4_NLTile>},
      {MXFP4Tile::kType, LaunchRows<MXFP4Tile>},
  };
  return {kLaunches, sizeof(kLaunches) / sizeof(kLaunches[0])};
}

}  // namespace glint::cuda
