// The codebooks of the IQ formats: published constants, from the ggml project (MIT licence). A grid is a list of points; a format
// stores a point's number in the place of its 4 or 8 coordinates.
#pragma once
#include <cstddef>
#include <cstdint>

namespace glint::quant {

// The coordinates as integers. Plain arrays: kernels built for an instruction set read them too (cpu/kernels.h).
template <size_t kPoints, size_t kColumns>
struct Grid {
  alignas(64) int8_t point[kPoints][kColumns];
};

extern const Grid<256, 8> kIq2XxsGrid;  // coordinates 8, 25, 43
extern const Grid<512, 8> kIq2XsGrid;   // the same
extern const Grid<1024, 8> kIq2SGrid;   // the same
extern const Grid<256, 4> kIq3XxsGrid;  // 4, 12, 20, 28, 36, 44, 52, 62
extern const Grid<512, 4> kIq3SGrid;    // 1, 3, ... 15
extern const Grid<2048, 8> kIq1Grid;    // -1, 0, 1

// The 16 values of IQ4_NL and IQ4_XS.
inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};

}  // namespace glint::quant
