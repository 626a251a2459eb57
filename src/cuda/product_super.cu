// Products with the K-quants and the ternary format that lies like them.
#include "cuda/product_kernels.cuh"

namespace glint::cuda {

LaunchList SuperLaunches() {
  static constexpr FormatLaunches kLaunches[] = {
      {Q2_KTile::kType, Launch<Q2_KTile>::Run, Launch<Q2_KTile>::Decode},
      {Q3_KTile::kType, Launch<Q3_KTile>::Run, Launch<Q3_KTile>::Decode},
      {Q4_KTile::kType, Launch<Q4_KTile>::Run, Launch<Q4_KTile>::Decode},
      {Q5_KTile::kType, Launch<Q5_KTile>::Run, Launch<Q5_KTile>::Decode},
      {Q6_KTile::kType, Launch<Q6_KTile>::Run, Launch<Q6_KTile>::Decode},
      {TQ2_0Tile::kType, Launch<TQ2_0Tile>::Run, Launch<TQ2_0Tile>::Decode},
  };
  return {kLaunches, sizeof(kLaunches) / sizeof(kLaunches[0])};
}

}  // namespace glint::cuda
