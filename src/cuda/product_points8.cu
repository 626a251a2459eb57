// Products with the grids of eight dimensions.
#include "cuda/product_kernels.cuh"

namespace glint::cuda {

LaunchList Points8Launches() {
  static constexpr FormatLaunches kLaunches[] = {
      {IQ2_STile::kType, Launch<IQ2_STile>::Run, Launch<IQ2_STile>::Decode},
      {IQ2_XSTile::kType, Launch<IQ2_XSTile>::Run, Launch<IQ2_XSTile>::Decode},
      {IQ2_XXSTile::kType, Launch<IQ2_XXSTile>::Run, Launch<IQ2_XXSTile>::Decode},
      {IQ1_STile::kType, Launch<IQ1_STile>::Run, Launch<IQ1_STile>::Decode},
      {IQ1_MTile::kType, Launch<IQ1_MTile>::Run, Launch<IQ1_MTile>::Decode},
  };
  return {kLaunches, sizeof(kLaunches) / sizeof(kLaunches[0])};
}

}  // namespace glint::cuda
