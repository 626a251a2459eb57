// Products with IQ4_XS and the grids of four dimensions.
#include "cuda/grid_decoders.cuh"
#include "cuda/product_kernels.cuh"

namespace glint::cuda {

LaunchList Points4Launches() {
  static constexpr FormatLaunches kLaunches[] = {
      Launch<IQ4_XSTile>::kAll,
      Launch<IQ3_STile>::kAll,
      Launch<IQ3_XXSTile>::kAll,
  };
  return {kLaunches, sizeof(kLaunches) / sizeof(kLaunches[0])};
}

}  // namespace glint::cuda
