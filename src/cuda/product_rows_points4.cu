// Products of many rows with IQ4_XS and the grids of four dimensions.
#include "cuda/grid_decoders.cuh"
#include "cuda/product_rows_wide.cuh"

namespace glint::cuda {

RowsLaunchList Points4RowsLaunches() {
  static constexpr RowsLaunch kLaunches[] = {
      {IQ4_XSTile::kType, LaunchRows<IQ4_XSTile>},
      {IQ3_STile::kType, LaunchRows<IQ3_STile>},
      {IQ3_XXSTile::kType, LaunchRows<IQ3_XXSTile>},
  };
  return {kLaunches, sizeof(kLaunches) / sizeof(kLaunches[0])};
}

}  // namespace glint::cuda
