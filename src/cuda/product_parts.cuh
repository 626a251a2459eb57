// What the kernels of products with quantised weights share, over any format's decoder (cuda/decoders.cuh): which rows go together, and
// the arithmetic of a block.
//
// A warp takes 16 weight rows and one part of 1,024 columns at a time and 4 N activation rows; the parts of a row are added in order
// at the end. Each lane carries the sums of weight rows g and g + 8 with activation rows t, 4 + t, ...: exactly one fma a unit and
// entry, in the order of the columns, whatever N and whoever shares the block.
#pragma once
#include <cstdint>

#include "cuda/async.cuh"
#include "cuda/decoders.cuh"
#include "cuda/product_args.h"

namespace glint::cuda {

inline constexpr int kPartColumns = 1024;

// Which rows a group of activation rows are: entry a of the group is row `first + a * step` of y.
struct RowGroup {
  int slice, first, step, count;
};
template <int N>
__device__ inline RowGroup GroupAt(const ProductArgs& p, int index) {
  constexpr int kMost = 4 * N;
  if (N > 1 && p.order != nullptr) {  // the kernel of four rows, which decodes, need not ask
    if (index >= *p.group_count) return {0, 0, 1, 0};
    const PairGroup g = p.pair_groups[index];
    return {g.expert, g.first, 1, g.count};
  }
  const auto out_rows = static_cast<int>(p.out_rows), slices = static_cast<int>(p.slices);
  switch (p.pairs) {
    case Pairs::Kind::kSame: {
      const int first = index * kMost;
      return {0, first, 1, min(kMost, out_rows - first)};
    }
    case Pairs::Kind::kHeads: {
      const int head = index % slices, first = index / slices * kMost, rows = out_rows / slices;
      return {head, first * slices + head, slices, min(kMost, rows - first)};
    }
    default:
      return {__ldcg(p.ids + index), index, 1, 1};  // from L2: they may be younger than what L1 has
  }
}
// Row of y that entry a of a group is.
template <int N>
__device__ inline int RowAt(const ProductArgs& p, const RowGroup& group, int a) {
  const int at = group.first + a * group.step;
  return N > 1 && p.order != nullptr ? p.order[at] : at;
}

__device__ inline void Mma32(int (&c)[4], const uint4& a, uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%10,%10,%10,%10};"
      : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1), "r"(0));
}
__device__ inline void Mma16(int (&c)[4], uint32_t a0, uint32_t a1, uint32_t b0) {
  asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%7,%7,%7,%7};"
      : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
      : "r"(a0), "r"(a1), "r"(b0), "r"(0));
}

// A lane's digits for one block of 32 columns and four activation rows: column n = lane / 4 of the B fragment is digit n % 2 (0: high)
// of row n / 2.
struct DigitLane {
  uint32_t b0, b1;
};

// Integer sums of unit `unit` of a block: c[0] of rows (g, activation t), c[1] of (g + 8, activation t).
template <class D>
__device__ inline void UnitSums(const uint4& code, const DigitLane& digits, int unit, int t, int (&sum)[2]) {
  int c[4];
  if constexpr (D::kUnits == 1) {
    Mma32(c, code, digits.b0, digits.b1);
  } else if constexpr (D::kOrder == Order::kNatural) {
    unit == 0 ? Mma16(c, code.x, code.y, digits.b0) : Mma16(c, code.z, code.w, digits.b1);
  } else {  // the unit's columns are those of half of the lanes
    const bool mine = t / 2 == unit;
    Mma32(c, code, mine ? digits.b0 : 0u, mine ? digits.b1 : 0u);
  }
  sum[0] = c[0] * 256 + c[1];
  sum[1] = c[2] * 256 + c[3];
}

// Sums over the four lanes of a row.
__device__ inline int QuadSum(int v) {
  v += __shfl_xor_sync(0xffffffffu, v, 1);
  return v + __shfl_xor_sync(0xffffffffu, v, 2);
}
// The same sums without tensor cores, for one activation row whose digits all lanes have: high and low bytes of their columns.
template <class D>
__device__ inline void PlainUnitSums(const uint4& code, const DigitLane& high, const DigitLane& low, int unit,
                                     int t, int (&sum)[2]) {
  const auto dot = [&](uint32_t first, uint32_t second) {
    const auto part = [&](uint32_t c, uint32_t h, uint32_t l) {
      return __dp4a(static_cast<int>(c), static_cast<int>(h), 0) * 256 +
             __dp4a(static_cast<int>(c), static_cast<int>(l), 0);
    };
    if constexpr (D::kUnits == 1) return part(first, high.b0, low.b0) + part(second, high.b1, low.b1);
    if constexpr (D::kOrder == Order::kNatural)
      return unit == 0 ? part(first, high.b0, low.b0) : part(second, high.b1, low.b1);
    return t / 2 == unit ? part(first, high.b0, low.b0) + part(second, high.b1, low.b1) : 0;
  };
  sum[0] = QuadSum(dot(code.x, code.z));
  sum[1] = QuadSum(dot(code.y, code.w));
}

// The digits (of `digit`: 0 high, 1 low) of this lane's columns of a block.
template <class D>
__device__ inline DigitLane DigitsAt(const ProductArgs& p, int64_t x_row, int64_t block, int digit, int t) {
  const int8_t* const at = p.digits + ((x_row * p.x_blocks + block) * 2 + digit) * 32;
  if constexpr (D::kOrder == Order::kWide) {
    const uint2 v = *reinterpret_cast<const uint2*>(at + 8 * t);
    return {v.x, v.y};
  } else {
    return {*reinterpret_cast<const uint32_t*>(at + 4 * t),
            *reinterpret_cast<const uint32_t*>(at + 16 + 4 * t)};
  }
}

// Scale and minimum of a unit times the activations' scale, and the two fmas of the definition.
template <class D>
__device__ inline float Add(float sum, int product, float scale, float d) {
  return fmaf(__int2float_rn(product), scale * d, sum);
}
template <class D>
__device__ inline float AddMinimum(float sum, const int2& digits, int unit, float minimum, float d) {
  const int n = D::kUnits == 1 ? digits.x + digits.y : unit == 0 ? digits.x : digits.y;
  return fmaf(__int2float_rn(n), minimum * d, sum);
}

// The table of a grid, from global to shared memory; all threads of the block take part.
template <class D, class Args>
__device__ inline const uint8_t* ShareTable(const Args& p, uint8_t* shared) {
  if constexpr (D::kTableBytes > 0) {
    D::FillTable(shared, p.table, static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x));
    __syncthreads();
  }
  return shared;
}

__device__ inline const ProductTarget& TargetOf(const ProductArgs& p, int row_tile) {
  int i = 0;
  while (i + 1 < p.targets && static_cast<int>(p.target[i + 1].first_tile) <= row_tile) ++i;
  return p.target[i];
}

}  // namespace glint::cuda
