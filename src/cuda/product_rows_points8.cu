// Products of many rows with the grids of eight dimensions.
#include "cuda/grid_decoders.cuh"
#include "cuda/product_rows_wide.cuh"

namespace glint::cuda {

RowsLaunchList Points8RowsLaunches() {
  static constexpr RowsLaunch kLaunches[] = {
      {IQ2_STile::kType, LaunchRows<IQ2_STile>},     {IQ2_XSTile::kType, LaunchRows<IQ2_XSTile>},
      {IQ2_XXSTile::kType, LaunchRows<IQ2_XXSTile>}, {IQ1_STile::kType, LaunchRows<IQ1_STile>},
      {IQ1_MTile::kType, LaunchRows<IQ1_MTile>},
  };
  return {kLaunches, sizeof(kLaunches) / sizeof(kLaunches[0])};
}

}  // namespace glint::cuda
