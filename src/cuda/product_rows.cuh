// Products of many activation rows (prompts) with quantised weights, over any format's decoder: the sums of cuda/product_kernels.cuh in
// the same order, so the same bits, from tiles large enough that a weight is decoded once for 64 or 128 activation rows.
//
// A block has 6 warps, kActWarps of them side by side over the activations, the others over the weights: 12 / kActWarps row tiles by
// 64 kActWarps activation rows; a warp has two row tiles by 64. It goes through the columns in stages of two blocks of 32:
//   raw     the row tiles as they lie in memory (one column tile), copied ahead; each warp decodes those that it fetched
//   codes   a stage's A fragments (of columns in natural order) and scales, decoded once for all warps   (two buffers)
//   digits  a stage's digits, scales and sums of the activations, copied ahead                           (two buffers)
// with one barrier a stage. A warp keeps its codes and scales of a stage in registers and takes four activation rows after the other.
// At the end of each part of 1,024 columns the part's sums are added to y: parts are added in order, and y needs no place in the block.
//
// For 32 columns, 16 weight rows and four activation rows a warp issues one multiply-add of tiles (mma) and, for each of a lane's two sums,
// an IMAD, a conversion, an FMUL and an FFMA; reading the digits takes half an instruction, and what a stage costs besides (copies,
// decoding, the barrier) two to five, by format and rows. An H200 takes 22 cycles for what Q8_0 needs 12 instructions to issue: fewer
// instructions are faster, more warps are not, and a constant as the addend of mma costs a cycle.
#pragma once
#include <cstdint>
#include <type_traits>

#include "cuda/async.cuh"
#include "cuda/product_parts.cuh"
#include "cuda/product_rows.h"

namespace glint::cuda {

inline constexpr int kRowsThreads = 32 * kRowsWarps;
inline constexpr int kStageBlocks = 2, kStagesOfPart = kPartColumns / (32 * kStageBlocks);
inline constexpr int kWarpQuads = kRowsOfWarp / 4;     // activation tiles of a warp
inline constexpr int kDigitBytes = 64 * kStageBlocks;  // of an activation row in a stage: 8 chunks of 16
static_assert(kStageBlocks == 2);                      // four matrices of digits, and pairs of scales

// Where things lie in the block's shared memory.
template <class D, int kActWarps>
struct RowsShared {
  static constexpr int kScales = 2 * D::kUnits * (D::kMinima ? 2 : 1);  // of a lane's two rows in a block
  static constexpr int kTiles = kBlockTiles / kActWarps, kRows = kRowsOfWarp * kActWarps;
  // Of a row tile in a stage; of one of the two buffers.
  static constexpr int kCodeBytes = kStageBlocks * 512, kScaleBytes = kStageBlocks * 8 * kScales * 4;
  static constexpr int kDigitsBytes = kRows * kDigitBytes, kCodesBytes = kTiles * kCodeBytes,
                       kScalesBytes = kTiles * kScaleBytes, kRowScalesBytes = kRows * kStageBlocks * 4,
                       kRowSumsBytes = D::kMinima ? kRows * kStageBlocks * 8 : 0;
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

// Chunk c (of 16 bytes: columns of a digit) of activation row a lies at chunk c ^ Swizzle(a): then the rows of a matrix do not meet in a
// bank.
__device__ inline int Swizzle(int a) { return (a & 1) << 2 | (a & 2) >> 1; }

// What this lane names for LoadMatrices, in the digits of four activation rows: the B fragment of block 0, then of block 1.
__device__ inline int DigitPlace(int lane) {
  const int matrix = lane / 8, row = lane % 8, a = row / 2;  // matrices: halves of block 0, then of block 1
  return a * kDigitBytes + ((matrix / 2 * 4 + row % 2 * 2 + matrix % 2) ^ Swizzle(a)) * 16;
}

// Blocks kSub * kStageBlocks ... of a tile: fragments in natural order and scales, for all warps. From `absent` on there are none in the
// matrix: their scales become zeros, and nothing is added to a sum.
template <class D, int kSub>
__device__ inline void DecodeStage(const uint8_t* raw, uint8_t* codes, float* scales, const uint8_t* table,
                                   int absent, int lane) {
  const typename D::Regs w = D::template Read<SharedMemory>(raw, lane);
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int i = 0; i < kStageBlocks; ++i) {
    constexpr int kScales = RowsShared<D, 1>::kScales;
    const int b = kSub * kStageBlocks + i;
    const uint4 code = D::Codes(w, b, t, table);
    if constexpr (D::kOrder == Order::kNatural) {
      *reinterpret_cast<uint4*>(codes + i * 512 + lane * 16) = code;
    } else {  // words 2 t and 2 t + 1 of eight: word n belongs to lane n mod 4, in its half n / 4
      uint8_t* const to = codes + i * 512 + (g * 4 + t % 2 * 2) * 16 + t / 2 * 8;
      *reinterpret_cast<uint2*>(to) = {code.x, code.y};
      *reinterpret_cast<uint2*>(to + 16) = {code.z, code.w};
    }
    float v[kScales];
#pragma unroll
    for (int unit = 0; unit < D::kUnits; ++unit) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        v[unit * 2 + half] = D::Scale(w, half, b, unit);
        if constexpr (D::kMinima) v[(D::kUnits + unit) * 2 + half] = D::Minimum(w, half, b, unit);
      }
    }
    if (t == 0) {
#pragma unroll
      for (int n = 0; n < kScales; n += 2)
        *reinterpret_cast<float2*>(scales + (g * kStageBlocks + i) * kScales + n) =
            i < absent ? float2{v[n], v[n + 1]} : float2{0, 0};
    }
  }
}
template <class D, int kSub = 0>
__device__ inline void DecodeStageAt(int sub, const uint8_t* raw, uint8_t* codes, float* scales,
                                     const uint8_t* table, int absent, int lane) {
  if constexpr ((kSub + 1) * kStageBlocks < D::kBlocks) {
    if (sub != kSub) return DecodeStageAt<D, kSub + 1>(sub, raw, codes, scales, table, absent, lane);
  }
  DecodeStage<D, kSub>(raw, codes, scales, table, absent, lane);
}

using RowsSums = float[kWarpTiles][kWarpQuads][2];

// One stage: adds to the warp's sums. codes, scales, digits, row_scales and row_sums: this lane's places. `rows`: activation rows of the
// warp, all where kFull: without branches the compiler moves reads ahead.
template <class D, bool kFull>
__device__ inline void AddRowsStage(const uint8_t* codes, const uint8_t* scales, const uint8_t* digits,
                                    const float2* row_scales, const int4* row_sums, int rows, RowsSums& sum) {
  constexpr int kScales = RowsShared<D, 1>::kScales;
  uint4 code[kWarpTiles][kStageBlocks];
  float scale[kWarpTiles][kStageBlocks * kScales];
#pragma unroll
  for (int m = 0; m < kWarpTiles; ++m) {
#pragma unroll
    for (int b = 0; b < kStageBlocks; ++b)
      code[m][b] = *reinterpret_cast<const uint4*>(codes + m * RowsShared<D, 1>::kCodeBytes + b * 512);
#pragma unroll
    for (int n = 0; n < kStageBlocks * kScales; n += 4) {
      const float4 v = *reinterpret_cast<const float4*>(scales + m * RowsShared<D, 1>::kScaleBytes + 4 * n);
      scale[m][n] = v.x, scale[m][n + 1] = v.y, scale[m][n + 2] = v.z, scale[m][n + 3] = v.w;
    }
  }
#pragma unroll
  for (int i = 0; i < kWarpQuads; ++i) {
    if (!kFull && i % 4 == 0 && i * 4 >= rows) break;
    uint32_t digit[2 * kStageBlocks];
    LoadMatrices(digit, digits + i * 4 * kDigitBytes);
    const float2 d2 = row_scales[4 * i];
    const float d[kStageBlocks] = {d2.x, d2.y};
    int4 digit_sums{0, 0, 0, 0};
    if constexpr (D::kMinima) digit_sums = row_sums[4 * i];
    const int2 of_block[kStageBlocks] = {{digit_sums.x, digit_sums.y}, {digit_sums.z, digit_sums.w}};
#pragma unroll
    for (int b = 0; b < kStageBlocks; ++b) {
#pragma unroll
      for (int unit = 0; unit < D::kUnits; ++unit) {
#pragma unroll
        for (int m = 0; m < kWarpTiles; ++m) {
          const uint4& a = code[m][b];
          const float* const of_code = scale[m] + b * kScales;
          int c[4];
          if constexpr (D::kUnits == 1) {
            Mma32(c, a, digit[2 * b], digit[2 * b + 1]);
          } else {
            unit == 0 ? Mma16(c, a.x, a.y, digit[2 * b]) : Mma16(c, a.z, a.w, digit[2 * b + 1]);
          }
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            float& s = sum[m][i][half];
            s = Add<D>(s, c[2 * half] * 256 + c[2 * half + 1], of_code[unit * 2 + half], d[b]);
            if constexpr (D::kMinima)
              s = AddMinimum<D>(s, of_block[b], unit, of_code[(D::kUnits + unit) * 2 + half], d[b]);
          }
        }
      }
    }
  }
}

// Adds a part's sums to y (the first part: writes them). y_row: of the warp's activation rows, or -1. kWhole: all of the warp's rows are
// there, of weights and of activations.
template <bool kWhole>
__device__ inline void AddPart(const ProductTarget& target, const int32_t* y_row, int row_tile, int64_t slice,
                               bool first, bool last, int rows, int lane, RowsSums& sum) {
  const bool scaled = last && target.scales != nullptr;
  const float scale = scaled ? target.scales[slice] : 1.0f;
  const int own = row_tile * kTileRows + lane / 4, left = static_cast<int>(target.rows) - own;
  const auto y_bytes = static_cast<uint32_t>(target.y_stride * 4);
#pragma unroll
  for (int four = 0; four < kWarpQuads / 4; ++four) {
    if (!kWhole && four * 16 >= rows) break;
    float* y[4];
    bool has[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = y_row[16 * four + 4 * i + lane % 4];
      has[i] = row >= 0;
      y[i] = reinterpret_cast<float*>(reinterpret_cast<uint8_t*>(target.y + own) +
                                      uint64_t{static_cast<uint32_t>(row)} * y_bytes);
    }
    const auto there = [&](int i, int m, int half) {
      return kWhole || (has[i] && m * kTileRows + 8 * half < left);
    };
    if (!first) {
      float before[4][kWarpTiles][2] = {};  // all loads first: they overlap
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int m = 0; m < kWarpTiles; ++m)
#pragma unroll
          for (int half = 0; half < 2; ++half)
            if (there(i, m, half)) before[i][m][half] = y[i][m * kTileRows + 8 * half];
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int m = 0; m < kWarpTiles; ++m)
#pragma unroll
          for (int half = 0; half < 2; ++half)
            sum[m][4 * four + i][half] = before[i][m][half] + sum[m][4 * four + i][half];
    }
    if (scaled) {
#pragma unroll
      for (int i = 4 * four; i < 4 * four + 4; ++i)
#pragma unroll
        for (int m = 0; m < kWarpTiles; ++m) sum[m][i][0] *= scale, sum[m][i][1] *= scale;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int m = 0; m < kWarpTiles; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          if (there(i, m, half)) y[i][m * kTileRows + 8 * half] = sum[m][4 * four + i][half];
  }
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
  // Threads 8 n ... 8 n + 7 copy the digits of row n, and of those kAtOnce apart; thread n < kRows the scales and sums of row n.
  constexpr int kAtOnce = kRowsThreads / 8,  // a multiple of 4, so that the swizzle is the same
      kCopies = (In::kRows + kAtOnce - 1) / kAtOnce;
  const int chunk = thread % 8;
  int32_t first[kCopies];
#pragma unroll
  for (int i = 0; i < kCopies; ++i) {
    const int a = thread / 8 + kAtOnce * i;
    first[i] = first_of[a < In::kRows ? a : 0];
  }
  const int32_t own_first = first_of[thread < In::kRows ? thread : 0];
  const auto blocks = static_cast<int>(p.blocks);
  const bool even = target.x_block % 2 == 0;  // what is of two blocks lies at a multiple of two
  const auto fetch_digits = [&](int stage) {
    const int buffer = stage % 2;
    // Where the row's last stage is not full, what follows in memory comes with it.
    const int8_t* const digits = p.digits + (stage * kDigitBytes + chunk * 16);
    uint8_t* const to = shared + In::kDigits + buffer * In::kDigitsBytes + thread / 8 * kDigitBytes +
                        (chunk ^ Swizzle(thread / 8)) * 16;
#pragma unroll
    for (int i = 0; i < kCopies; ++i)
      if ((i + 1) * kAtOnce <= In::kRows || thread / 8 + kAtOnce * i < In::kRows)
        CopyAsync16(to + kAtOnce * i * kDigitBytes, digits + int64_t{first[i]} * 64);
    if (thread >= In::kRows) return;
    const int at = own_first + stage * kStageBlocks;
    uint8_t* const scales = shared + In::kRowScales + buffer * In::kRowScalesBytes + thread * 8;
    uint8_t* const sums = shared + In::kRowSums + buffer * In::kRowSumsBytes + thread * 16;
    const bool both = (stage + 1) * kStageBlocks <= blocks;
    if (even && both) {
      CopyAsync8(scales, p.x_scales + at);
      if constexpr (D::kMinima) CopyAsync16(sums, p.sums + 2 * int64_t{at});
    } else {
      CopyAsync4(scales, p.x_scales + at);
      if constexpr (D::kMinima) CopyAsync8(sums, p.sums + 2 * int64_t{at});
      if (both) {
        CopyAsync4(scales + 4, p.x_scales + at + 1);
        if constexpr (D::kMinima) CopyAsync8(sums + 8, p.sums + 2 * int64_t{at + 1});
      } else {  // the second block adds nothing
        *reinterpret_cast<float*>(scales + 4) = 0;
      }
    }
  };
  constexpr int kStagesOfTile = D::kBlocks / kStageBlocks;
  const int stages = (blocks + kStageBlocks - 1) / kStageBlocks;
  const auto decode = [&](int stage) {
    const int buffer = stage % 2, sub = stage % kStagesOfTile;
#pragma unroll
    for (int i = 0; i < kOwnTiles; ++i) {
      const int tile = warp + i * kRowsWarps;
      DecodeStageAt<D>(
          sub, raw + i * kRowsWarps * D::kTileBytes,
          shared + In::kCodes + buffer * In::kCodesBytes + tile * In::kCodeBytes,
          reinterpret_cast<float*>(shared + In::kScale + buffer * In::kScalesBytes + tile * In::kScaleBytes),
          p.spread, blocks - stage * kStageBlocks, lane);
    }
    if (sub + 1 == kStagesOfTile && stage + 1 < stages) {
      __syncwarp();  // nobody reads the tiles any more
      fetch();
    }
  };

  const int row_warp = warp / kActWarps, act_warp = warp % kActWarps;
  const int rows = min(group.count - act_warp * kRowsOfWarp, kRowsOfWarp);  // may be none
  const uint8_t* const my_codes = shared + In::kCodes + row_warp * kWarpTiles * In::kCodeBytes + lane * 16;
  const uint8_t* const my_scales = shared + In::kScale + row_warp * kWarpTiles * In::kScaleBytes +
                                   lane / 4 * (kStageBlocks * In::kScales * 4);
  const uint8_t* const my_digits =
      shared + In::kDigits + act_warp * kRowsOfWarp * kDigitBytes + DigitPlace(lane);
  const uint8_t* const my_row_scales =
      shared + In::kRowScales + (act_warp * kRowsOfWarp + lane % 4) * kStageBlocks * 4;
  const uint8_t* const my_row_sums =
      shared + In::kRowSums + (act_warp * kRowsOfWarp + lane % 4) * kStageBlocks * 8;
  fetch_digits(0);
  CommitCopies();
  WaitForCopies<0>();
  __syncthreads();  // the first tiles are there
  decode(0);
  CommitCopies();
  const bool inside = (first_tile + (row_warp + 1) * kWarpTiles) * kTileRows <= target.rows;
  const auto all_stages = [&]<bool kFull>(std::bool_constant<kFull>) {
#pragma unroll 1
    for (int stage = 0; stage < stages;) {
      const bool first_part = stage == 0;
      const int end = min(stage + kStagesOfPart, stages);
      RowsSums sum = {};
#pragma unroll 1
      for (; stage < end; ++stage) {
        WaitForCopies<0>();
        __syncthreads();  // this stage is there, decoded, and nobody reads the one before it any more
        if (stage + 1 < stages) {
          fetch_digits(stage + 1);
          decode(stage + 1);
        }
        CommitCopies();
        const int buffer = stage % 2;
        AddRowsStage<D, kFull>(my_codes + buffer * In::kCodesBytes, my_scales + buffer * In::kScalesBytes,
                               my_digits + buffer * In::kDigitsBytes,
                               reinterpret_cast<const float2*>(my_row_scales + buffer * In::kRowScalesBytes),
                               reinterpret_cast<const int4*>(my_row_sums + buffer * In::kRowSumsBytes), rows,
                               sum);
      }
      const int32_t* const of_y = y_row + act_warp * kRowsOfWarp;
      const int tile = first_tile + row_warp * kWarpTiles;
      kFull&& inside
          ? AddPart<true>(target, of_y, tile, group.slice, first_part, stage == stages, rows, lane, sum)
          : AddPart<false>(target, of_y, tile, group.slice, first_part, stage == stages, rows, lane, sum);
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
void LaunchMmaRows(const ProductArgs& p, int act_warps, cudaStream_t stream) {
  act_warps == 1 ? LaunchRowsOf<D, 1>(p, stream) : LaunchRowsOf<D, 2>(p, stream);
}

}  // namespace glint::cuda
