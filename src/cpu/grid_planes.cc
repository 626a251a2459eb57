// Built without an instruction set's flags: this runs on any machine, whether its kernels do or not.
#include "cpu/grid_planes.h"

#include <algorithm>
#include <iterator>

#include "quant/iq_grids.h"

namespace glint::cpu {
namespace {

template <size_t kPoints, size_t kColumns, size_t kValues>
GridPlanes<kPoints> Planes(const quant::Grid<kPoints, kColumns>& grid, const int8_t (&values)[kValues]) {
  constexpr size_t kHalf = kColumns / 2;
  constexpr unsigned kBits = kColumns == 8 ? 2 : 3;
  GridPlanes<kPoints> planes{};
  for (size_t p = 0; p < kPoints; ++p) {
    for (size_t i = 0; i < kColumns; ++i) {
      const auto place = std::lower_bound(std::begin(values), std::end(values), grid.point[p][i]) - values;
      uint8_t& byte = planes.plane[i / kHalf][p];
      byte = static_cast<uint8_t>(byte | static_cast<unsigned>(place) << (i % kHalf * kBits));
    }
  }
  return planes;
}

}  // namespace

const GridPlanes<256> kIq2XxsPlanes = Planes(quant::kIq2XxsGrid, kIq2Values);
const GridPlanes<512> kIq2XsPlanes = Planes(quant::kIq2XsGrid, kIq2Values);
const GridPlanes<1024> kIq2SPlanes = Planes(quant::kIq2SGrid, kIq2Values);
const GridPlanes<256> kIq3XxsPlanes = Planes(quant::kIq3XxsGrid, kIq3XxsValues);
const GridPlanes<512> kIq3SPlanes = Planes(quant::kIq3SGrid, kIq3SValues);
const GridPlanes<2048> kIq1Planes = Planes(quant::kIq1Grid, kIq1Values);

}  // namespace glint::cpu
