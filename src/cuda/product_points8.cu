// Products with the grids of eight dimensions.
#include "cuda/grid_decoders.cuh"
#include "cuda/product_kernels.cuh"

namespace glint::cuda {

LaunchList Points8Launches() {
  static constexpr FormatLaunches kLaunches[] = {
      Launch<IQ2_STile>::kAll, Launch<IQ2_XSTile>::kAll, Launch<IQ2_XXSTile>::kAll,
      Launch<IQ1_STile>::kAll, Launch<IQ1_MTile>::kAll,
  };
  return {kLaunches, sizeof(kLaunches) / sizeof(kLaunches[0])};
}

}  // namespace glint::cuda
