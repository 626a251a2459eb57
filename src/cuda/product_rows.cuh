// Products of many activation rows (prompts) with quantised weights, over any format's decoder: the sums of cuda/product_kernels.cuh in
// the same order, so the same bits, from tiles large enough that a weight is decoded once for 64 or 128 activation rows.
//
// A block has 6 warps, kActWarps of them side by side over the activations, the others over the weights: 12 / kActWarps row tiles by
// 64 kActWarps activation rows; a warp has two row tiles by 64. It goes through the columns in stages of two blocks of 32:
//   raw     the row tiles as they lie in memory (one column tile), copied ahead; each warp decodes those that it fetched
//   codes   a stage's A fragments and scales, decoded once for all warps            (two buffers)
//   digits  a stage's digits, scales and sums of the activations, copied ahead      (two buffers)
// with one barrier a stage. At the end of each part of 1,024 columns the part's sums are added to y: parts are added in order, and y
// needs no place in the block. Bound by issue: 2 multiply-adds of integers (mma), and for each sum an IMAD, a conversion, an FMUL and an
// FFMA.
#pragma once
#include <cstdint>
#include <type_traits>

#include "cuda/async.cuh"
#include "cuda/product_parts.cuh"
#include "cuda/product_rows.h"

namespace glint::cuda {

inline constexpr int kRowsThreads = 32 * kRowsWarps;
inline constexpr int kStageBlocks = 2, kStagesOfPart = kPartColumns / (32 * kStageBlocks);
inline constexpr int kWarpQuads = kRowsOfWarp / 4;   // activation tiles of a warp
inline constexpr int kScaleStride = kWarpQuads + 4;  // floats apart of lanes t: no two in one bank
inline constexpr int kSumStride = kWarpQuads + 1;    // pairs of sums, likewise
inline constexpr int kDigitBytes = 2 * 2 * 32;       // of an activation row in two blocks: 8 chunks of 16

// Where things lie in the block's shared memory.
template <class D, int kActWarps>
struct RowsShared {
  static constexpr int kScales = 2 * D::kUnits * (D::kMinima ? 2 : 1);  // of a lane's two rows in a block
  static constexpr int kTiles = kBlockTiles / kActWarps, kRows = kRowsOfWarp * kActWarps;
  // Of a row tile in a stage; of one of the two buffers.
  static constexpr int kCodeBytes = kStageBlocks * 512, kScaleBytes = kStageBlocks * 8 * kScales * 4;
  static constexpr int kDigitsBytes = kStageBlocks / 2 * kRows * kDigitBytes,
                       kCodesBytes = kTiles * kCodeBytes, kScalesBytes = kTiles * kScaleBytes,
                       kRowScalesBytes = kStageBlocks * kActWarps * 4 * kScaleStride * 4,
                       kRowSumsBytes = D::kMinima ? kStageBlocks * kActWarps * 4 * kSumStride * 8 : 0;
  static constexpr int kDigits = 0, kCodes = kDigits + 2 * kDigitsBytes, kScale = kCodes + 2 * kCodesBytes,
                       kRowScales = kScale + 2 * kScalesBytes, kRowSums = kRowScales + 2 * kRowScalesBytes,
                       kFirst = kRowSums + 2 * kRowSumsBytes, kYRow = kFirst + kRows * 4,
                       kRaw = kYRow + kRows * 4, kBytes = kRaw + kTiles * D::kTileBytes;
};

// The `index`th group of at most `most` activation rows.
__device__ inline RowGroup ManyRowsAt(const ProductArgs& p, int index, int most) {
  const auto out_rows = static_cast<int>(p.out_rows), slices = static_cast<int>(p.slices);
  switch (p.pairs) {
    case Pairs::Kind::kSame: {
      const int first = index * most;
      return {0, first, 1, min(most, out_rows - first)};
    }
    case Pairs::Kind::kHeads: {
      const int head = index % slices, first = index / slices * most, rows = out_rows / slices;
      return {head, first * slices + head, slices, min(most, rows - first)};
    }
    default: {
      if (index >= *p.group_count) return {0, 0, 1, 0};
      const PairGroup g = p.pair_groups[index];
      return {g.expert, g.first, 1, g.count};
    }
  }
}

// A tile on its way to shared memory, by all lanes of a warp.
template <class D>
__device__ inline void FetchTile(uint8_t* to, const uint8_t* from, int lane) {
#pragma unroll
  for (int at = 0; at < D::kTileBytes; at += 512)
    if (at + lane * 16 < D::kTileBytes) CopyAsync16(to + at + lane * 16, from + at + lane * 16);
}

__device__ inline uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
// Four matrices of 8 rows of 16 bytes: lane l names row l mod 8 of matrix l / 8 and gets word l mod 4 of row l / 4 of each.
__device__ inline void LoadMatrices(uint32_t (&v)[4], const uint8_t* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
               : "r"(SharedAddress(row)));
}

// Chunk c (of 16 bytes) of activation row a lies at chunk c ^ Swizzle(a): then neither the rows of a matrix nor the lanes of a read of
// 8 bytes meet in a bank.
__device__ inline int Swizzle(int a) { return (a & 1) << 2 | (a & 2) >> 1; }

// This lane's place of activation tiles 0 (and, natural order, 1) of block 0 in a stage's digits; block 1: the same ^ 64.
template <class D>
__device__ inline int DigitPlace(int lane) {
  if constexpr (D::kOrder == Order::kNatural) {
    const int matrix = lane / 8, row = lane % 8, a = row / 2;  // matrices: halves of tile 0, then of tile 1
    return (matrix / 2 * 4 + a) * kDigitBytes + ((row % 2 * 2 + matrix % 2) ^ Swizzle(a)) * 16;
  } else {
    const int n = lane / 4, t = lane % 4, a = n / 2;
    return a * kDigitBytes + ((n % 2 * 2 + t / 2) ^ Swizzle(a)) * 16 + t % 2 * 8;
  }
}
// The B fragments of activation tiles 2 `pair` and 2 `pair` + 1; `at`: the lane's place in the block.
template <class D>
__device__ inline void ReadPair(DigitLane (&b)[2], const uint8_t* at, int pair) {
  if constexpr (D::kOrder == Order::kNatural) {
    uint32_t v[4];
    LoadMatrices(v, at + pair * 8 * kDigitBytes);
    b[0] = {v[0], v[1]};
    b[1] = {v[2], v[3]};
  } else {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint2 v = *reinterpret_cast<const uint2*>(at + (2 * pair + i) * 4 * kDigitBytes);
      b[i] = {v.x, v.y};
    }
  }
}

// A unit's codes where a wide block has two units: those of the other lanes become zeros.
template <class D>
__device__ inline uint4 CodesOfUnit(const uint4& code, int unit, int t) {
  if constexpr (D::kUnits == 1 || D::kOrder == Order::kNatural) {
    return code;
  } else {
    return t / 2 == unit ? code : uint4{0, 0, 0, 0};
  }
}
template <class D>
__device__ inline void UnitProduct(int (&c)[4], const uint4& code, const DigitLane& b, int unit) {
  if constexpr (D::kUnits == 1 || D::kOrder == Order::kWide) {
    Mma32(c, code, b.b0, b.b1);
  } else {
    unit == 0 ? Mma16(c, code.x, code.y, b.b0) : Mma16(c, code.z, code.w, b.b1);
  }
}

// Blocks kSub * kStageBlocks ... of a tile: fragments and scales, for all warps.
template <class D, int kSub>
__device__ inline void DecodeStage(const uint8_t* raw, uint8_t* codes, float* scales, const uint8_t* table,
                                   int lane) {
  const typename D::Regs w = D::template Read<SharedMemory>(raw, lane);
#pragma unroll
  for (int i = 0; i < kStageBlocks; ++i) {
    constexpr int kScales = RowsShared<D, 1>::kScales;
    const int b = kSub * kStageBlocks + i;
    *reinterpret_cast<uint4*>(codes + i * 512 + lane * 16) = D::Codes(w, b, lane % 4, table);
    float v[kScales];
#pragma unroll
    for (int unit = 0; unit < D::kUnits; ++unit) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        v[unit * 2 + half] = D::Scale(w, half, b, unit);
        if constexpr (D::kMinima) v[(D::kUnits + unit) * 2 + half] = D::Minimum(w, half, b, unit);
      }
    }
    if (lane % 4 == 0) {
#pragma unroll
      for (int n = 0; n < kScales; n += 2)
        *reinterpret_cast<float2*>(scales + (i * 8 + lane / 4) * kScales + n) = {v[n], v[n + 1]};
    }
  }
}
template <class D, int kSub = 0>
__device__ inline void DecodeStageAt(int sub, const uint8_t* raw, uint8_t* codes, float* scales,
                                     const uint8_t* table, int lane) {
  if constexpr ((kSub + 1) * kStageBlocks < D::kBlocks) {
    if (sub != kSub) return DecodeStageAt<D, kSub + 1>(sub, raw, codes, scales, table, lane);
  }
  DecodeStage<D, kSub>(raw, codes, scales, table, lane);
}

using RowsSums = float[kWarpTiles][kWarpQuads][2];

// One block of 32 columns: adds to the warp's sums. `rows`: activation rows of the warp, all where kFull: without branches the compiler
// moves reads ahead.
template <class D, bool kFull>
__device__ inline void AddRowsBlock(const uint8_t* codes, const float* scales, const uint8_t* digits,
                                    const float* row_scales, const int2* row_sums, int rows, int lane,
                                    RowsSums& sum) {
  constexpr int kScales = RowsShared<D, 1>::kScales;
  const int t = lane % 4;
  uint4 code[kWarpTiles];
  float scale[kWarpTiles][kScales];
#pragma unroll
  for (int m = 0; m < kWarpTiles; ++m) {
    code[m] = *reinterpret_cast<const uint4*>(codes + m * RowsShared<D, 1>::kCodeBytes + lane * 16);
#pragma unroll
    for (int n = 0; n < kScales; n += 2) {
      const float2 v = *reinterpret_cast<const float2*>(scales + m * (RowsShared<D, 1>::kScaleBytes / 4) +
                                                        lane / 4 * kScales + n);
      scale[m][n] = v.x, scale[m][n + 1] = v.y;
    }
  }
#pragma unroll
  for (int four = 0; four < kWarpQuads / 4; ++four) {
    if (!kFull && four * 16 >= rows) break;
    const float4 d4 = *reinterpret_cast<const float4*>(row_scales + t * kScaleStride + 4 * four);
    const float d[4] = {d4.x, d4.y, d4.z, d4.w};
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      DigitLane b[2];
      ReadPair<D>(b, digits, 2 * four + pair);
#pragma unroll
      for (int of_pair = 0; of_pair < 2; ++of_pair) {
        const int of_four = 2 * pair + of_pair, i = 4 * four + of_four;
        int2 digit_sums{0, 0};
        if constexpr (D::kMinima) digit_sums = row_sums[t * kSumStride + i];
#pragma unroll
        for (int unit = 0; unit < D::kUnits; ++unit) {
#pragma unroll
          for (int m = 0; m < kWarpTiles; ++m) {
            int c[4];
            UnitProduct<D>(c, CodesOfUnit<D>(code[m], unit, t), b[of_pair], unit);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
              float& s = sum[m][i][half];
              s = Add<D>(s, c[2 * half] * 256 + c[2 * half + 1], scale[m][unit * 2 + half], d[of_four]);
              if constexpr (D::kMinima)
                s = AddMinimum<D>(s, digit_sums, unit, scale[m][(D::kUnits + unit) * 2 + half], d[of_four]);
            }
          }
        }
      }
    }
  }
}

// Adds a part's sums to y (the first part: writes them) and clears them. y_row: of the warp's activation rows, or -1. kInside: the
// warp's weight rows are all there.
template <bool kInside>
__device__ inline void AddPart(const ProductTarget& target, const int32_t* y_row, int row_tile, int64_t slice,
                               bool first, bool last, int rows, int lane, RowsSums& sum) {
  const bool scaled = last && target.scales != nullptr;
  const float scale = scaled ? target.scales[slice] : 1.0f;
  const int own = row_tile * kTileRows + lane / 4, left = static_cast<int>(target.rows) - own;
  const auto y_bytes = static_cast<uint32_t>(target.y_stride * 4);
  const auto there = [&](int m, int half) { return kInside || m * kTileRows + 8 * half < left; };
#pragma unroll
  for (int four = 0; four < kWarpQuads / 4; ++four) {
    if (four * 16 >= rows) break;
    float* y[4];
    bool has[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = y_row[16 * four + 4 * i + lane % 4];
      has[i] = row >= 0;
      y[i] = reinterpret_cast<float*>(reinterpret_cast<uint8_t*>(target.y + own) +
                                      uint64_t{static_cast<uint32_t>(row)} * y_bytes);
    }
    if (!first) {
      float before[4][kWarpTiles][2] = {};  // all loads first: they overlap
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int m = 0; m < kWarpTiles; ++m)
#pragma unroll
          for (int half = 0; half < 2; ++half)
            if (has[i] && there(m, half)) before[i][m][half] = y[i][m * kTileRows + 8 * half];
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int m = 0; m < kWarpTiles; ++m)
#pragma unroll
          for (int half = 0; half < 2; ++half)
            sum[m][4 * four + i][half] = before[i][m][half] + sum[m][4 * four + i][half];
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int m = 0; m < kWarpTiles; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float total = sum[m][4 * four + i][half];
          if (scaled) total *= scale;
          if (has[i] && there(m, half)) y[i][m * kTileRows + 8 * half] = total;
        }
  }
#pragma unroll
  for (int m = 0; m < kWarpTiles; ++m)
#pragma unroll
    for (int i = 0; i < kWarpQuads; ++i) sum[m][i][0] = sum[m][i][1] = 0;
}

// Grid: x over groups of 64 kActWarps activation rows, so that blocks that want the same weights run at the same time; y over blocks
// of row tiles, target after target.
template <class D, int kActWarps>
__global__ void __launch_bounds__(kRowsThreads, 2) RowsProductKernel(const ProductArgs p) {
  extern __shared__ __align__(128) uint8_t shared[];
  using In = RowsShared<D, kActWarps>;
  LetNextLaunchBegin();
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  int of_targets = 0, block = static_cast<int>(blockIdx.y);
  for (; of_targets + 1 < p.targets; ++of_targets) {
    const int blocks = RowsBlocks(p.target[of_targets].rows, kActWarps);
    if (block < blocks) break;
    block -= blocks;
  }
  const ProductTarget& target = p.target[of_targets];
  if (p.pairs == Pairs::Kind::kExperts) WaitForLaunchesBefore();  // for the groups
  const RowGroup group = ManyRowsAt(p, static_cast<int>(blockIdx.x), In::kRows);
  if (group.count == 0) return;  // the whole block: there are no more

  // This warp's tiles to decode: `warp`, and warp + 6 where there are 12. Past the end: the last one, whose sums nobody stores.
  constexpr int kOwnTiles = In::kTiles / kRowsWarps;
  const int first_tile = block * In::kTiles;
  const uint8_t* from[kOwnTiles];
#pragma unroll
  for (int i = 0; i < kOwnTiles; ++i) {
    const int tile = min(first_tile + warp + i * kRowsWarps, static_cast<int>((target.rows - 1) / kTileRows));
    from[i] = target.data + static_cast<uint64_t>(group.slice) * target.slice_bytes +
              tile * p.tiles * D::kTileBytes;
  }
  uint8_t* const raw = shared + In::kRaw + warp * D::kTileBytes;
  const auto fetch = [&] {
#pragma unroll
    for (int i = 0; i < kOwnTiles; ++i) {
      FetchTile<D>(raw + i * kRowsWarps * D::kTileBytes, from[i], lane);
      from[i] += D::kTileBytes;
    }
  };
  fetch();
  if (p.pairs != Pairs::Kind::kExperts) WaitForLaunchesBefore();

  // The first block of each activation row (in blocks of all rows), and its row of y.
  int32_t* const first_of = reinterpret_cast<int32_t*>(shared + In::kFirst);
  int32_t* const y_row = reinterpret_cast<int32_t*>(shared + In::kYRow);
  if (thread < In::kRows) {
    const int64_t at = group.first + int64_t{thread < group.count ? thread : 0} * group.step;
    const auto row = static_cast<int32_t>(p.order != nullptr ? p.order[at] : at);
    first_of[thread] =
        static_cast<int32_t>(row / static_cast<int32_t>(p.per_row) * p.x_blocks + target.x_block);
    y_row[thread] = thread < group.count ? row : -1;
  }
  __syncthreads();  // the rows are there
  // Where the row's last stage is not full, what follows in memory comes with it, and nobody uses it.
  const int chunk = thread % 8, digits_to = thread / 8 * kDigitBytes + (chunk ^ Swizzle(thread / 8)) * 16;
  const auto fetch_digits = [&](int stage) {
    const int buffer = stage % 2;
    const int8_t* const digits = p.digits + (stage * kStageBlocks * 64 + chunk * 16);
    uint8_t* const to = shared + In::kDigits + buffer * In::kDigitsBytes + digits_to;
    constexpr int kAtOnce = kRowsThreads / 8;  // a multiple of 4, so that the swizzle is the same
#pragma unroll
    for (int i = 0; i < (In::kRows + kAtOnce - 1) / kAtOnce; ++i) {
      const int a = thread / 8 + kAtOnce * i;
      if (In::kRows % kAtOnce == 0 || a < In::kRows) {
        const int8_t* const from = digits + int64_t{first_of[a]} * 64;
#pragma unroll
        for (int two = 0; two < kStageBlocks / 2; ++two)
          CopyAsync16(to + (two * In::kRows + kAtOnce * i) * kDigitBytes, from + two * 128);
      }
    }
#pragma unroll
    for (int i = 0; i < (In::kRows * kStageBlocks + kRowsThreads - 1) / kRowsThreads; ++i) {
      const int item = thread + i * kRowsThreads, a = item / kStageBlocks, b = item % kStageBlocks;
      if (In::kRows * kStageBlocks % kRowsThreads != 0 && a >= In::kRows) break;
      const int place = (b * kActWarps + a / kRowsOfWarp) * 4 + a % 4, quad = a % kRowsOfWarp / 4;
      const int at = first_of[a] + stage * kStageBlocks + b;
      CopyAsync4(shared + In::kRowScales + buffer * In::kRowScalesBytes + (place * kScaleStride + quad) * 4,
                 p.x_scales + at);
      if constexpr (D::kMinima)
        CopyAsync8(shared + In::kRowSums + buffer * In::kRowSumsBytes + (place * kSumStride + quad) * 8,
                   p.sums + 2 * int64_t{at});
    }
  };
  constexpr int kStagesOfTile = D::kBlocks / kStageBlocks;
  const int stages = static_cast<int>((p.blocks + kStageBlocks - 1) / kStageBlocks);
  const auto decode = [&](int stage) {
    const int buffer = stage % 2, sub = stage % kStagesOfTile;
#pragma unroll
    for (int i = 0; i < kOwnTiles; ++i) {
      const int tile = warp + i * kRowsWarps;
      DecodeStageAt<D>(
          sub, raw + i * kRowsWarps * D::kTileBytes,
          shared + In::kCodes + buffer * In::kCodesBytes + tile * In::kCodeBytes,
          reinterpret_cast<float*>(shared + In::kScale + buffer * In::kScalesBytes + tile * In::kScaleBytes),
          p.spread, lane);
    }
    if (sub + 1 == kStagesOfTile && stage + 1 < stages) {
      __syncwarp();  // nobody reads the tiles any more
      fetch();
    }
  };

  const int row_warp = warp / kActWarps, act_warp = warp % kActWarps;
  const int rows = min(group.count - act_warp * kRowsOfWarp, kRowsOfWarp);  // may be none
  const uint8_t* const my_codes = shared + In::kCodes + row_warp * kWarpTiles * In::kCodeBytes;
  const uint8_t* const my_scales = shared + In::kScale + row_warp * kWarpTiles * In::kScaleBytes;
  const uint8_t* const my_digits = shared + In::kDigits + act_warp * kRowsOfWarp * kDigitBytes;
  const int place = DigitPlace<D>(lane);
  RowsSums sum = {};
  fetch_digits(0);
  CommitCopies();
  WaitForCopies<0>();
  __syncthreads();  // the first tiles are there
  decode(0);
  CommitCopies();
  const bool inside = (first_tile + (row_warp + 1) * kWarpTiles) * kTileRows <= target.rows;
  const auto all_stages = [&]<bool kFull>(std::bool_constant<kFull>) {
#pragma unroll 1
    for (int stage = 0; stage < stages; ++stage) {
      WaitForCopies<0>();
      __syncthreads();  // this stage is there, decoded, and nobody reads the one before it any more
      if (stage + 1 < stages) {
        fetch_digits(stage + 1);
        decode(stage + 1);
      }
      CommitCopies();
      const int buffer = stage % 2;
      const int blocks = min(kStageBlocks, static_cast<int>(p.blocks) - stage * kStageBlocks);
#pragma unroll 1
      for (int b = 0; b < blocks; ++b) {
        const int of_rows = (b * kActWarps + act_warp) * 4;
        AddRowsBlock<D, kFull>(
            my_codes + buffer * In::kCodesBytes + b * 512,
            reinterpret_cast<const float*>(my_scales + buffer * In::kScalesBytes) + b * 8 * In::kScales,
            my_digits + buffer * In::kDigitsBytes + b / 2 * In::kRows * kDigitBytes + (place ^ (b % 2) << 6),
            reinterpret_cast<const float*>(shared + In::kRowScales + buffer * In::kRowScalesBytes) +
                of_rows * kScaleStride,
            reinterpret_cast<const int2*>(shared + In::kRowSums + buffer * In::kRowSumsBytes) +
                of_rows * kSumStride,
            rows, lane, sum);
      }
      const bool last = stage + 1 == stages;
      if ((stage + 1) % kStagesOfPart == 0 || last) {
        const int32_t* const of_y = y_row + act_warp * kRowsOfWarp;
        const int tile = first_tile + row_warp * kWarpTiles;
        inside
            ? AddPart<true>(target, of_y, tile, group.slice, stage < kStagesOfPart, last, rows, lane, sum)
            : AddPart<false>(target, of_y, tile, group.slice, stage < kStagesOfPart, last, rows, lane, sum);
      }
    }
  };
  // The whole block goes one way, barriers and all.
  group.count == In::kRows ? all_stages(std::true_type()) : all_stages(std::false_type());
}

template <class D, int kActWarps>
void LaunchRowsOf(const ProductArgs& p, cudaStream_t stream) {
  int64_t blocks = 0;
  for (int i = 0; i < p.targets; ++i) blocks += RowsBlocks(p.target[i].rows, kActWarps);
  constexpr int kShared = RowsShared<D, kActWarps>::kBytes;
  cudaFuncSetAttribute(RowsProductKernel<D, kActWarps>, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
  LaunchEarly(p.overlap, dim3(static_cast<unsigned>(p.groups), static_cast<unsigned>(blocks)), kRowsThreads,
              kShared, stream, RowsProductKernel<D, kActWarps>, p);
}
template <class D>
void LaunchRows(const ProductArgs& p, int act_warps, cudaStream_t stream) {
  act_warps == 1 ? LaunchRowsOf<D, 1>(p, stream) : LaunchRowsOf<D, 2>(p, stream);
}

}  // namespace glint::cuda
