// Products with the formats of 32 weights a block.
#include "cuda/product_kernels.cuh"

namespace glint::cuda {

LaunchList BlockLaunches() {
  static constexpr FormatLaunches kLaunches[] = {
      {Q8_0Tile::kType, Launch<Q8_0Tile>::Run, Launch<Q8_0Tile>::Decode},
      {Q4_0Tile::kType, Launch<Q4_0Tile>::Run, Launch<Q4_0Tile>::Decode},
      {Q4_1Tile::kType, Launch<Q4_1Tile>::Run, Launch<Q4_1Tile>::Decode},
      {Q5_0Tile::kType, Launch<Q5_0Tile>::Run, Launch<Q5_0Tile>::Decode},
      {Q5_1Tile::kType, Launch<Q5_1Tile>::Run, Launch<Q5_1Tile>::Decode},
      {IQ4_NLTile::kType, Launch<IQ4_NLTile>::Run, Launch<IQ4_NLTile>::Decode},
      {MXFP4Tile::kType, Launch<MXFP4Tile>::Run, Launch<MXFP4Tile>::Decode},
  };
  return {kLaunches, sizeof(kLaunches) / sizeof(kLaunches[0])};
}

}  // namespace glint::cuda
