// The grids of the IQ formats (quant/iq_grids.h) as two bytes a point, for kernels that look 64 points up at once with byte permutations:
// coordinates are stored as their place among the grid's values, in ascending order.
#pragma once
#include <cstddef>
#include <cstdint>

namespace glint::cpu {

// Plane 0 holds the first half of a point's coordinates, plane 1 the second; two bits each of an 8-dimensional grid, three of a
// 4-dimensional one, the first coordinate lowest.
template <size_t kPoints>
struct GridPlanes {
  alignas(64) uint8_t plane[2][kPoints];
};

// Filled before main.
extern const GridPlanes<256> kIq2XxsPlanes, kIq3XxsPlanes;
extern const GridPlanes<512> kIq2XsPlanes, kIq3SPlanes;
extern const GridPlanes<1024> kIq2SPlanes;
extern const GridPlanes<2048> kIq1Planes;

// The values of the coordinates.
inline constexpr int8_t kIq2Values[] = {8, 25, 43};
inline constexpr int8_t kIq3XxsValues[] = {4, 12, 20, 28, 36, 44, 52, 62};
inline constexpr int8_t kIq3SValues[] = {1, 3, 5, 7, 9, 11, 13, 15};
inline constexpr int8_t kIq1Values[] = {-1, 0, 1};

}  // namespace glint::cpu
