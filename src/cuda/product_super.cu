// Products with the K-quants and the ternary format that lies like them.
#include "cuda/product_kernels.cuh"
#include "cuda/row_parts.cuh"

namespace glint::cuda {

LaunchList SuperLaunches() {
  static constexpr FormatLaunches kLaunches[] = {
      Launch<Q2_KTile>::kAll, Launch<Q3_KTile>::kAll, Launch<Q4_KTile>::kAll,
      Launch<Q5_KTile>::kAll, Launch<Q6_KTile>::kAll, Launch<TQ2_0Tile>::kAll,
  };
  return {kLaunches, sizeof(kLaunches) / sizeof(kLaunches[0])};
}

}  // namespace glint::cuda
