// Products of many rows with the K-quants and the ternary format that lies like them.
#include "cuda/product_rows_wide.cuh"

namespace glint::cuda {

RowsLaunchList SuperRowsLaunches() {
  static constexpr RowsLaunch kLaunches[] = {
      {Q2_KTile::kType, LaunchRows<Q2_KTile>}, {Q3_KTile::kType, LaunchRows<Q3_KTile>},
      {Q4_KTile::kType, LaunchRows<Q4_KTile>}, {Q5_KTile::kType, LaunchRows<Q5_KTile>},
      {Q6_KTile::kType, LaunchRows<Q6_KTile>}, {TQ2_0Tile::kType, LaunchRows<TQ2_0Tile>},
  };
  return {kLaunches, sizeof(kLaunches) / sizeof(kLaunches[0])};
}

}  // namespace glint::cuda
