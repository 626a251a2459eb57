// Products of many activation rows by Hopper's multiply-adds of warpgroups (wgmma, sm_90a): the sums of cuda/product_rows.cuh in the same
// order, so the same bits. Code for other devices has none of it, and LaunchWideRows says so.
//
// A block has 12 row tiles by 64 or 128 activation rows. One warpgroup (two for 64 rows) makes stages of 128 columns (64 for formats with
// units of 16): it copies raw tiles and digits ahead, and decodes the tiles. Three others multiply, four row tiles each, and do nothing
// else: no barrier among themselves, so that one's sums are turned into floats while another's come out of the tensor cores. Two buffers
// of stages; named barriers say that one is made, or used. The parts' sums are kept in registers (64 rows), or added to y (128).
//
// For 32 columns, 16 weight rows and four activation rows a warp issues eight instructions (for each of a lane's two sums an IMAD or LEA, a
// conversion, an FMUL and an FFMA), 1.3 more for operands and the product; while the tensor cores write sums (4 cycles, 8 with mma.sync)
// hardly any are issued. An H200 takes 11.3 cycles a scheduler with operands that are there; here 18.2 with Q8_0 (24,576 x 4,096 by 2,048
// rows: 104e12 weights times rows a second, 86e12 by product_rows.cuh) and 22.4 with IQ3_XXS by 64 rows (85e12, 70e12). Shared memory is
// busy 64 and 68 % of the time: what wgmma reads itself, and what comes back to registers (the activations' scales most of all).
#pragma once
#include "cuda/product_rows.cuh"

namespace glint::cuda {

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
inline constexpr bool kHasWgmma = true;
#else
inline constexpr bool kHasWgmma = false;
#endif

inline constexpr int kGroupThreads = 128, kGroupTiles = 4;                     // of a warpgroup
inline constexpr int kWideGroups = 3, kWideTiles = kWideGroups * kGroupTiles;  // that multiply
// Of a block of kRows activation rows: warpgroups that make stages (with few rows decoding is a larger share of the work), threads, and
// registers of a thread of either kind.
template <int kRows>
struct WideShape {
  static constexpr int kMakers = kRows == 64 ? 2 : 1, kThreads = (kMakers + kWideGroups) * kGroupThreads,
                       kMakerRegisters = kRows == 64 ? 56 : 80,
                       kMultiplierRegisters = kRows == 64 ? 120 : 144;
};

// Where things lie in the block's shared memory. kRows: its activation rows, 64 or 128.
template <class D, int kRows>
struct WideShared {
  static constexpr int kStageBlocks = 4 / D::kUnits, kStagesOfTile = D::kBlocks / kStageBlocks,
                       kStagesOfPart = kPartColumns / (32 * kStageBlocks);
  static constexpr int kScales = 2 * D::kUnits * (D::kMinima ? 2 : 1);  // of a lane's two rows in a block
  // A block's codes for a warpgroup, in planes of 16 columns: the two halves of the block, with zeros between them where each is a unit, so
  // that a unit is multiplied with the other's digits by zeros. The odd 64 bytes: so that writers of two planes do not meet in a bank.
  static constexpr int kCodePlane = kGroupTiles * 256 + 64, kCodeBlock = (D::kUnits + 1) * kCodePlane,
                       kCodeGroup = kStageBlocks * kCodeBlock;
  static constexpr int kDigitBlock = kRows * 64;
  // Rows whose digits are copied at once, by the four threads of each block; and where the first block of a row is noted: a thread's rows
  // side by side.
  static constexpr int kAtOnce = kGroupThreads / (4 * kStageBlocks), kRowsOfThread = kRows / kAtOnce;
  __device__ static int PlaceOfRow(int row) { return row % kAtOnce * kRowsOfThread + row / kAtOnce; }
  // The activations' scales and sums: [block][row mod 4][row / 4], so that a lane reads those of four quads at once.
  static constexpr int kRowScales = kRows / 4 + 4;
  // One of the two buffers.
  static constexpr int kDigitsBytes = kStageBlocks * kDigitBlock,
                       kCodesBytes = kWideTiles / kGroupTiles * kCodeGroup,
                       kTileScalesBytes = kStageBlocks * 8 * kScales * 4,
                       kScalesBytes = kWideTiles * kTileScalesBytes,
                       kRowScalesBytes = kStageBlocks * 4 * kRowScales * 4,
                       kRowSumsBytes = D::kMinima ? 2 * kRowScalesBytes : 0;
  // Two buffers of raw tiles, or one where that leaves room for the format's table.
  static constexpr int kRawBytes = kWideTiles * D::kTileBytes, kMost = 227 * 1024;
  static constexpr int kRest =
      2 * (kDigitsBytes + kCodesBytes + kScalesBytes + kRowScalesBytes + kRowSumsBytes) + 2 * kRows * 4 +
      D::kTableBytes;
  static constexpr int kRawBuffers = D::kTableBytes > 0 && kRest + 2 * kRawBytes > kMost ? 1 : 2;
  static constexpr int kDigits = 0, kRaw = kDigits + 2 * kDigitsBytes,
                       kCodes = kRaw + kRawBuffers * kRawBytes, kScale = kCodes + 2 * kCodesBytes,
                       kRowScale = kScale + 2 * kScalesBytes, kRowSum = kRowScale + 2 * kRowScalesBytes,
                       kFirst = kRowSum + 2 * kRowSumsBytes, kYRow = kFirst + kRows * 4,
                       kTable = kYRow + kRows * 4;
  // The format's table, where there is room for it.
  static constexpr bool kHasTable = D::kTableBytes > 0 && kTable + D::kTableBytes <= kMost;
  static constexpr int kBytes = kTable + (kHasTable ? D::kTableBytes : 0);
  static_assert(kBytes <= kMost && kDigitsBytes % 256 == 0 && kCodes % 16 == 0 && kScale % 16 == 0 &&
                kTable % 16 == 0 && kFirst % 16 == 0);
};

// Sums of 64 weight rows and 32 activation rows: of quad j, c[4 j] and c[4 j + 1] are the high and the low digits' of a lane's first row.
using GroupSums = int[32];
// c = codes * digits, some time later; both by the lower halves of descriptors.
__device__ inline void GroupProduct(GroupSums& c, uint32_t codes, uint32_t digits) {
  asm volatile(
      "{\n.reg .pred p;\n.reg .b64 a, b;\nsetp.ne.b32 p, 0, 0;\nmov.b64 a, {%32, %34};\nmov.b64 b, {%33, "
      "%35};\n"
      "wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "
      "%12, "
      "%13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, a, b, "
      "p;\n}\nwgmma.commit_group.sync.aligned;\n"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]), "+r"(c[4]), "+r"(c[5]), "+r"(c[6]), "+r"(c[7]),
        "+r"(c[8]), "+r"(c[9]), "+r"(c[10]), "+r"(c[11]), "+r"(c[12]), "+r"(c[13]), "+r"(c[14]), "+r"(c[15]),
        "+r"(c[16]), "+r"(c[17]), "+r"(c[18]), "+r"(c[19]), "+r"(c[20]), "+r"(c[21]), "+r"(c[22]),
        "+r"(c[23]), "+r"(c[24]), "+r"(c[25]), "+r"(c[26]), "+r"(c[27]), "+r"(c[28]), "+r"(c[29]),
        "+r"(c[30]), "+r"(c[31])
      : "r"(codes), "r"(digits), "n"(128 >> 4),
        "n"(3u << 30 | 256 >> 4)  // from 8 rows to the next; the pattern
      : "memory");
}
// Until c is there.
__device__ inline void WaitForProduct(GroupSums& c) {
  asm volatile("wgmma.wait_group.sync.aligned 0;"
               : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]), "+r"(c[4]), "+r"(c[5]), "+r"(c[6]),
                 "+r"(c[7]), "+r"(c[8]), "+r"(c[9]), "+r"(c[10]), "+r"(c[11]), "+r"(c[12]), "+r"(c[13]),
                 "+r"(c[14]), "+r"(c[15]), "+r"(c[16]), "+r"(c[17]), "+r"(c[18]), "+r"(c[19]), "+r"(c[20]),
                 "+r"(c[21]), "+r"(c[22]), "+r"(c[23]), "+r"(c[24]), "+r"(c[25]), "+r"(c[26]), "+r"(c[27]),
                 "+r"(c[28]), "+r"(c[29]), "+r"(c[30]), "+r"(c[31])
               :
               : "memory");
}
// Before a product that writes registers which others have touched.
__device__ inline void BeforeProduct() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// What this thread has written to shared memory, for products after the next barrier.
__device__ inline void ShowToProducts() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// Named barriers of the whole block: some arrive, the others wait.
template <int kThreads>
__device__ inline void Arrive(int barrier) {
  asm volatile("barrier.cta.arrive.aligned %0, %1;" ::"r"(barrier), "n"(kThreads) : "memory");
}
template <int kThreads>
__device__ inline void WaitFor(int barrier) {
  asm volatile("barrier.cta.sync.aligned %0, %1;" ::"r"(barrier), "n"(kThreads) : "memory");
}
// How many registers the threads of this warpgroup want from here on.
template <int kRegisters, bool kMore>
__device__ inline void WantRegisters() {
  if constexpr (kMore)
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
  else
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// The lower halves of descriptors; 16 n bytes further they are n more. Codes: planes of 16 columns, 8 rows in 128 bytes. Digits: rows of 32
// bytes, whose halves are exchanged in every second four (the "32-byte swizzle").
__device__ inline uint32_t DescribedCodes(uint32_t at, int plane) {
  return (at & 0x3ffffu) >> 4 | static_cast<uint32_t>(plane) >> 4 << 16;
}
__device__ inline uint32_t DescribedDigits(uint32_t at) { return (at & 0x3ffffu) >> 4 | 1u << 16; }

// Stage kSub of a tile, for all warps: codes (the tile's place in the first block's first plane) and scales. From block `there` on there are
// none in the matrix (of formats with blocks of 32): their scales become zeros, and nothing is added to a sum.
template <class D, int kRows, int kSub>
__device__ inline void DecodeWideStage(const uint8_t* raw, uint8_t* codes, float* scales,
                                       const uint8_t* table, int there, int lane) {
  using In = WideShared<D, kRows>;
  constexpr int kSecond = D::kUnits * In::kCodePlane;  // from the first 16 columns to the others
  const typename D::Regs w = D::template Read<SharedMemory>(raw, lane);
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int i = 0; i < In::kStageBlocks; ++i) {
    const int b = In::kStageBlocks * kSub + i;
    const uint4 code = D::Codes(w, b, t, table);
    if constexpr (D::kOrder == Order::kNatural) {
      uint8_t* const to = codes + i * In::kCodeBlock + lane * 4;
      *reinterpret_cast<uint32_t*>(to) = code.x;
      *reinterpret_cast<uint32_t*>(to + 128) = code.y;
      *reinterpret_cast<uint32_t*>(to + kSecond) = code.z;
      *reinterpret_cast<uint32_t*>(to + kSecond + 128) = code.w;
    } else {  // words 2 t and 2 t + 1 of eight
      uint8_t* const to = codes + i * In::kCodeBlock + t / 2 * kSecond + g * 16 + t % 2 * 8;
      *reinterpret_cast<uint2*>(to) = {code.x, code.z};
      *reinterpret_cast<uint2*>(to + 128) = {code.y, code.w};
    }
    float v[In::kScales];
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
      for (int n = 0; n < In::kScales; n += 2)
        *reinterpret_cast<float2*>(scales + (i * 8 + g) * In::kScales + n) =
            D::kBlocks > 4 || i < there ? float2{v[n], v[n + 1]} : float2{0, 0};
    }
  }
}
template <class D, int kRows, int kSub = 0>
__device__ inline void DecodeWideStageAt(int sub, const uint8_t* raw, uint8_t* codes, float* scales,
                                         const uint8_t* table, int there, int lane) {
  if constexpr (kSub + 1 < WideShared<D, kRows>::kStagesOfTile) {
    if (sub != kSub)
      return DecodeWideStageAt<D, kRows, kSub + 1>(sub, raw, codes, scales, table, there, lane);
  }
  DecodeWideStage<D, kRows, kSub>(raw, codes, scales, table, there, lane);
}

template <int kRows>
using WideSums = float[kRows / 4][2];

// One stage: adds to the sums of activation rows 32 kFirst ... 32 (kFirst + kHalves) - 1. codes and digits: the warpgroup's; the others:
// this lane's places.
template <class D, int kRows, int kFirst, int kHalves>
__device__ inline void AddWideStage(uint32_t codes, uint32_t digits, const float* scales,
                                    const float* row_scales, const int2* row_sums, WideSums<kRows>& sum) {
  using In = WideShared<D, kRows>;
  constexpr int kSteps = In::kStageBlocks * D::kUnits * kHalves;
  const uint32_t code = DescribedCodes(codes, In::kCodePlane), digit = DescribedDigits(digits);
  GroupSums c;
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int half = kFirst + step % kHalves, unit = step / kHalves % D::kUnits,
              b = step / kHalves / D::kUnits;
    BeforeProduct();
    GroupProduct(c, code + (b * In::kCodeBlock + unit * In::kCodePlane) / 16,
                 digit + (b * In::kDigitBlock + half * 2048) / 16);
    float d[8];
#pragma unroll
    for (int j = 0; j < 8; j += 4)
      *reinterpret_cast<float4*>(d + j) =
          *reinterpret_cast<const float4*>(row_scales + b * 4 * In::kRowScales + half * 8 + j);
    const float* const of_block = scales + b * 8 * In::kScales;
    const float2 scale = *reinterpret_cast<const float2*>(of_block + unit * 2);
    float2 minimum{0, 0};
    if constexpr (D::kMinima) minimum = *reinterpret_cast<const float2*>(of_block + (D::kUnits + unit) * 2);
    WaitForProduct(c);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      int2 digit_sums{0, 0};
      if constexpr (D::kMinima) digit_sums = row_sums[b * 4 * In::kRowScales + half * 8 + j];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float& s = sum[half * 8 + j][h];
        s = Add<D>(s, c[4 * j + 2 * h] * 256 + c[4 * j + 2 * h + 1], h == 0 ? scale.x : scale.y, d[j]);
        if constexpr (D::kMinima)
          s = AddMinimum<D>(s, digit_sums, unit, h == 0 ? minimum.x : minimum.y, d[j]);
      }
    }
  }
}

// Adds a part's sums to y (the first part: writes them). y_row: of the warpgroup's activation rows, or -1. kWhole: all of its rows are
// there, of weights and of activations.
template <bool kWhole, int kRows>
__device__ inline void AddWidePart(const ProductTarget& target, const int32_t* y_row, int row_tile,
                                   int64_t slice, bool first, bool last, int rows, int lane,
                                   WideSums<kRows>& sum) {
  const bool scaled = last && target.scales != nullptr;
  const float scale = scaled ? target.scales[slice] : 1.0f;
  const int own = row_tile * kTileRows + lane / 4, left = static_cast<int>(target.rows) - own;
  const auto y_bytes = static_cast<uint32_t>(target.y_stride * 4);
  const auto y_of = [&](int quad, bool& has) {
    const int row = y_row[4 * quad + lane % 4];
    has = row >= 0;
    return reinterpret_cast<float*>(reinterpret_cast<uint8_t*>(target.y + own) +
                                    uint64_t{static_cast<uint32_t>(row)} * y_bytes);
  };
  const auto there = [&](bool has, int h) { return kWhole || (has && 8 * h < left); };
  constexpr int kAtOnce = 16;  // quads
#pragma unroll
  for (int begin = 0; begin < kRows / 4; begin += kAtOnce) {
    if (!kWhole && begin * 4 >= rows) break;
    if (!first) {
      float before[kAtOnce][2] = {};  // all loads first: they overlap
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        bool has;
        const float* const y = y_of(begin + i, has);
#pragma unroll
        for (int h = 0; h < 2; ++h)
          if (there(has, h)) before[i][h] = y[8 * h];
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
#pragma unroll
        for (int h = 0; h < 2; ++h) sum[begin + i][h] = before[i][h] + sum[begin + i][h];
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      bool has;
      float* const y = y_of(begin + i, has);
#pragma unroll
      for (int h = 0; h < 2; ++h)
        if (there(has, h)) y[8 * h] = scaled ? sum[begin + i][h] * scale : sum[begin + i][h];
    }
  }
}

// Blocks of weight rows of a matrix of so many.
__host__ __device__ inline int WideBlocks(int64_t weight_rows) {
  constexpr int kBlockWideRows = kWideTiles * kTileRows;
  return static_cast<int>((weight_rows + kBlockWideRows - 1) / kBlockWideRows);
}

// A block's work.
template <class D, int kRows>
__device__ __forceinline__ void MultiplyWide(const ProductArgs& p) {
  extern __shared__ __align__(1024) uint8_t shared[];
  using In = WideShared<D, kRows>;
  constexpr int kThreads = WideShape<kRows>::kThreads, kMakers = WideShape<kRows>::kMakers;
  LetNextLaunchBegin();
  const auto thread = static_cast<int>(threadIdx.x), lane = static_cast<int>(threadIdx.x % 32),
             warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 32),
                                0);  // one value, the compiler sees
  int of_targets = 0, block = static_cast<int>(blockIdx.y);
  for (; of_targets + 1 < p.targets; ++of_targets) {
    const int blocks = WideBlocks(p.target[of_targets].rows);
    if (block < blocks) break;
    block -= blocks;
  }
  const ProductTarget& target = p.target[of_targets];
  if (p.pairs == Pairs::Kind::kExperts) WaitForLaunchesBefore();  // for the groups
  const RowGroup group = ManyRowsAt(p, static_cast<int>(blockIdx.x), kRows);
  if (group.count == 0) return;  // the whole block: there are no more

  // What all do: the table, the planes of zeros, and the first block of each activation row (in blocks of all rows), and its row of y.
  const uint8_t* table = p.spread;
  if constexpr (In::kHasTable) {
    D::FillTable(shared + In::kTable, p.table, thread, kThreads);
    table = shared + In::kTable;
  }
  if constexpr (D::kUnits == 2) {
    constexpr int kPlanes = 2 * kWideTiles / kGroupTiles * In::kStageBlocks;
    for (int i = thread; i < kPlanes * kGroupTiles * 16; i += kThreads)
      *reinterpret_cast<uint4*>(shared + In::kCodes + i / (kGroupTiles * 16) * In::kCodeBlock +
                                In::kCodePlane + i % (kGroupTiles * 16) * 16) = {0, 0, 0, 0};
    ShowToProducts();
  }
  if (p.pairs != Pairs::Kind::kExperts) WaitForLaunchesBefore();
  int32_t* const first_of = reinterpret_cast<int32_t*>(shared + In::kFirst);
  int32_t* const y_row = reinterpret_cast<int32_t*>(shared + In::kYRow);
  if (thread < kRows) {
    const int64_t at = group.first + int64_t{thread < group.count ? thread : 0} * group.step;
    const auto row = static_cast<int32_t>(p.order != nullptr ? p.order[at] : at);
    first_of[In::PlaceOfRow(thread)] =
        static_cast<int32_t>(row / static_cast<int32_t>(p.per_row) * p.x_blocks + target.x_block);
    y_row[thread] = thread < group.count ? row : -1;
  }
  __syncthreads();
  const auto blocks = static_cast<int>(p.blocks);
  const int stages = (blocks + In::kStageBlocks - 1) / In::kStageBlocks;
  // Barriers: kMade + buffer when a stage is there, kUsed + buffer when nobody reads it any more.
  constexpr int kMade = 1, kUsed = 3;

  if (warp < kMakers * kGroupTiles) {
    WantRegisters<WideShape<kRows>::kMakerRegisters, false>();
    // One warpgroup makes all: its warp w copies and decodes tiles w, w + 4, w + 8. Of two, the first makes w and w + 4, the second w + 8
    // and what is of activations. Past the end: the last tile, whose sums nobody stores.
    const int maker = warp / kGroupTiles, in_group = warp % kGroupTiles,
              tiles = kMakers == 1 ? kWideGroups : 2 - maker, own_tile = in_group + maker * 2 * kGroupTiles;
    const bool copies = maker == kMakers - 1;
    const int first_tile = block * kWideTiles + own_tile,
              last_tile = static_cast<int>((target.rows - 1) / kTileRows),
              column_tiles = static_cast<int>(p.tiles);
    const uint8_t* const weights = target.data + static_cast<uint64_t>(group.slice) * target.slice_bytes;
    uint8_t* const raw = shared + In::kRaw + own_tile * D::kTileBytes;
    const auto fetch = [&](int column_tile) {
      if (column_tile < column_tiles) {
#pragma unroll
        for (int i = 0; i < kWideGroups + 1 - kMakers; ++i) {
          if (i < tiles)
            FetchTile<D>(
                raw + column_tile % In::kRawBuffers * In::kRawBytes + i * kGroupTiles * D::kTileBytes,
                weights +
                    (min(first_tile + i * kGroupTiles, last_tile) * p.tiles + column_tile) * D::kTileBytes,
                lane);
        }
      }
      CommitCopies();
    };
#pragma unroll
    for (int i = 0; i < In::kRawBuffers; ++i) fetch(i);
    // Of the digits, 16 bytes a thread, of two neighbouring rows (128 bytes in shared memory) eight threads, and so of every
    // kAtOnce-th row; thread n of the group copies the scales and sums of row n.
    const int own = thread % kGroupThreads, chunk = lane & 3, block_of_chunk = (own >> 3) % In::kStageBlocks,
              row_of_chunk = (own >> 3) / In::kStageBlocks * 2 + (lane >> 2 & 1);
    uint8_t* const to = shared + In::kDigits + block_of_chunk * In::kDigitBlock + row_of_chunk * 64 +
                        (chunk ^ (row_of_chunk >> 1 & 1)) * 16;
    const int own_first = first_of[In::PlaceOfRow(own < kRows ? own : 0)],
              place = (own & 3) * In::kRowScales + (own >> 2);
#pragma unroll 1
    for (int stage = 0; stage < stages; ++stage) {
      const int buffer = stage & 1, left = blocks - stage * In::kStageBlocks, sub = stage % In::kStagesOfTile,
                column_tile = stage / In::kStagesOfTile;
      if (stage >= 2) WaitFor<kThreads>(kUsed + buffer);
      if (copies && block_of_chunk < left) {
        const int8_t* const digits =
            p.digits + ((stage * In::kStageBlocks + block_of_chunk) * 64 + chunk * 16);
        const auto* const first = reinterpret_cast<const int4*>(first_of + In::PlaceOfRow(row_of_chunk));
        constexpr int kMost =
            In::kRowsOfThread < 8 ? In::kRowsOfThread : 8;  // whose addresses are in registers
#pragma unroll
        for (int begin = 0; begin < In::kRowsOfThread; begin += kMost) {
          int4 of[kMost / 4];
#pragma unroll
          for (int i = 0; i < kMost / 4; ++i) of[i] = first[begin / 4 + i];
#pragma unroll
          for (int i = 0; i < kMost; ++i) {
            const int4& v = of[i / 4];
            const int block_of_row = i % 4 == 0 ? v.x : i % 4 == 1 ? v.y : i % 4 == 2 ? v.z : v.w;
            CopyAsync16(to + buffer * In::kDigitsBytes + (begin + i) * In::kAtOnce * 64,
                        digits + int64_t{block_of_row} * 64);
          }
        }
      }
      if (copies && own < kRows) {
        const int at = own_first + stage * In::kStageBlocks;
        float* const row_scales =
            reinterpret_cast<float*>(shared + In::kRowScale + buffer * In::kRowScalesBytes) + place;
        int2* const row_sums =
            reinterpret_cast<int2*>(shared + In::kRowSum + buffer * In::kRowSumsBytes) + place;
#pragma unroll
        for (int b = 0; b < In::kStageBlocks; ++b) {
          if (b < left) {
            CopyAsync4(row_scales + b * 4 * In::kRowScales, p.x_scales + at + b);
            if constexpr (D::kMinima)
              CopyAsync8(row_sums + b * 4 * In::kRowScales, p.sums + 2 * int64_t{at + b});
          } else {  // this block adds nothing
            row_scales[b * 4 * In::kRowScales] = 0;
          }
        }
      }
      CommitCopies();
      // The tiles, which this warp copied: not yet these digits, nor tiles that were asked for later.
      WaitForCopies<In::kRawBuffers>();
      __syncwarp();
#pragma unroll 1
      for (int i = 0; i < tiles; ++i) {
        const int tile = own_tile + i * kGroupTiles;
        uint8_t* const codes = shared + In::kCodes + buffer * In::kCodesBytes +
                               (maker * 2 + i) * In::kCodeGroup + in_group * 256;
        float* const scales = reinterpret_cast<float*>(shared + In::kScale + buffer * In::kScalesBytes +
                                                       tile * In::kTileScalesBytes);
        DecodeWideStageAt<D, kRows>(
            sub, raw + column_tile % In::kRawBuffers * In::kRawBytes + i * kGroupTiles * D::kTileBytes, codes,
            scales, table, left, lane);
      }
      __syncwarp();  // nobody reads this stage's part of the tiles any more
      fetch(sub + 1 == In::kStagesOfTile ? column_tile + In::kRawBuffers : column_tiles);
      WaitForCopies<1>();  // the digits
      ShowToProducts();
      Arrive<kThreads>(kMade + buffer);
    }
    return;
  }

  WantRegisters<WideShape<kRows>::kMultiplierRegisters, true>();
  const int row_group = warp / kGroupTiles - kMakers, tile = warp - kMakers * kGroupTiles,
            row_tile = block * kWideTiles + tile, rows = group.count;
  const uint32_t my_codes = SharedAddress(shared + In::kCodes + row_group * In::kCodeGroup),
                 my_digits = SharedAddress(shared + In::kDigits);
  const uint8_t* const my_scales =
      shared + In::kScale + tile * In::kTileScalesBytes + lane / 4 * In::kScales * 4;
  const uint8_t* const my_row_scales = shared + In::kRowScale + lane % 4 * In::kRowScales * 4;
  const uint8_t* const my_row_sums = shared + In::kRowSum + lane % 4 * In::kRowScales * 8;
  const bool whole = rows == kRows && (row_tile + 1) * kTileRows <= static_cast<int>(target.rows);
  // For 64 activation rows the sums of the parts so far are in registers; for more they are in y.
  constexpr bool kKept = kRows == 64;
  WideSums<kKept ? kRows : 4> total;
#pragma unroll 1
  for (int stage = 0; stage < stages;) {
    const bool first_part = stage == 0;
    const int end = min(stage + In::kStagesOfPart, stages);
    WideSums<kRows> sum = {};
#pragma unroll 1
    for (; stage < end; ++stage) {
      const int buffer = stage & 1;
      WaitFor<kThreads>(kMade + buffer);
      const uint32_t codes = my_codes + buffer * In::kCodesBytes,
                     digits = my_digits + buffer * In::kDigitsBytes;
      const auto* const scales = reinterpret_cast<const float*>(my_scales + buffer * In::kScalesBytes);
      const auto* const row_scales =
          reinterpret_cast<const float*>(my_row_scales + buffer * In::kRowScalesBytes);
      const auto* const row_sums = reinterpret_cast<const int2*>(my_row_sums + buffer * In::kRowSumsBytes);
      const auto add = [&]<int kFirst, int kHalves>(std::integer_sequence<int, kFirst, kHalves>) {
        AddWideStage<D, kRows, kFirst, kHalves>(codes, digits, scales, row_scales, row_sums, sum);
      };
      if (rows > kRows - 32) {
        add(std::integer_sequence<int, 0, kRows / 32>());
      } else {
        add(std::integer_sequence<int, 0, 1>());
        if constexpr (kRows > 64) {
          if (rows > 32) add(std::integer_sequence<int, 1, 1>());
          if (rows > 64) add(std::integer_sequence<int, 2, 1>());
        }
      }
      if (stage + 2 < stages) Arrive<kThreads>(kUsed + buffer);
    }
    const auto store = [&](bool first, WideSums<kRows>& sums) {
      whole ? AddWidePart<true, kRows>(target, y_row, row_tile, group.slice, first, stage == stages, rows,
                                       lane, sums)
            : AddWidePart<false, kRows>(target, y_row, row_tile, group.slice, first, stage == stages, rows,
                                        lane, sums);
    };
    if constexpr (kKept) {
#pragma unroll
      for (int i = 0; i < kRows / 4; ++i)
#pragma unroll
        for (int h = 0; h < 2; ++h) total[i][h] = first_part ? sum[i][h] : total[i][h] + sum[i][h];
      if (stage == stages) store(true, total);
    } else {
      store(first_part, sum);
    }
  }
}

// Grid: as of RowsProductKernel. For devices without wgmma it does nothing, and is bounded by one warp, which is how the host tells.
template <class D, int kRows>
__global__ void __launch_bounds__(kHasWgmma ? WideShape<kRows>::kThreads : 32, 1)
    WideRowsKernel(const ProductArgs p) {
  if constexpr (kHasWgmma) MultiplyWide<D, kRows>(p);
}

template <class D, int kRows>
bool LaunchWideRowsOf(const ProductArgs& p, cudaStream_t stream) {
  cudaFuncAttributes attributes;
  if (cudaFuncGetAttributes(&attributes, WideRowsKernel<D, kRows>) != cudaSuccess ||
      attributes.maxThreadsPerBlock < WideShape<kRows>::kThreads)
    return false;
  int64_t blocks = 0;
  for (int i = 0; i < p.targets; ++i) blocks += WideBlocks(p.target[i].rows);
  constexpr int kShared = WideShared<D, kRows>::kBytes;
  cudaFuncSetAttribute(WideRowsKernel<D, kRows>, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
  LaunchEarly(p.overlap, dim3(static_cast<unsigned>(p.groups), static_cast<unsigned>(blocks)),
              WideShape<kRows>::kThreads, kShared, stream, WideRowsKernel<D, kRows>, p);
  return true;
}
// False: the device, or what was compiled for it, has no wgmma. act_warps: of 64 activation rows, as the groups of p are counted.
template <class D>
bool LaunchWideRows(const ProductArgs& p, int act_warps, cudaStream_t stream) {
  return act_warps == 1 ? LaunchWideRowsOf<D, 64>(p, stream) : LaunchWideRowsOf<D, 128>(p, stream);
}
template <class D>
void LaunchRows(const ProductArgs& p, int act_warps, cudaStream_t stream) {
  if (!LaunchWideRows<D>(p, act_warps, stream)) LaunchMmaRows<D>(p, act_warps, stream);
}

}  // namespace glint::cuda
