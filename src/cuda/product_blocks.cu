// Products with the formats of 32 weights a block.
#include "cuda/product_kernels.cuh"

namespace glint::cuda {

LaunchList BlockLaunches() {
  static constexpr FormatLaunches kLaunches[] = {
      Launch<Q8_0Tile>::kAll, Launch<Q4_0Tile>::kAll,   Launch<Q4_1Tile>::kAll,  Launch<Q5_0Tile>::kAll,
      Launch<Q5_1Tile>::kAll, Launch<IQ4_NLTile>::kAll, Launch<MXFP4Tile>::kAll,
  };
  return {kLaunches, sizeof(kLaunches) / sizeof(kLaunches[0])};
}

}  // namespace glint::cuda
