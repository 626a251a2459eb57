// Products with IQ4_XS and the grids of four dimensions.
#include "cuda/product_kernels.cuh"

namespace glint::cuda {

LaunchList Points4Launches() {
  static constexpr FormatLaunches kLaunches[] = {
      {IQ4_XSTile::kType, Launch<IQ4_XSTile>::Run, Launch<IQ4_XSTile>::Decode},
      {IQ3_STile::kType, Launch<IQ3_STile>::Run, Launch<IQ3_STile>::Decode},
      {IQ3_XXSTile::kType, Launch<IQ3_XXSTile>::Run, Launch<IQ3_XXSTile>::Decode},
  };
  return {kLaunches, sizeof(kLaunches) / sizeof(kLaunches[0])};
}

}  // namespace glint::cuda
