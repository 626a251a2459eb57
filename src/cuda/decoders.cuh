// A tile of quantised weights in a warp's registers, and the codes and scales in it: one struct a format, over the layout of
// cuda/tiles.h. src/quant/<format>.h defines what the bytes mean; here is only where a lane finds its share. Formats with grids of points are
// in cuda/grid_decoders.cuh.
//
// Lane 4 g + t has codes of rows g and g + 8 of each block of 32 columns, as the A fragment of mma.m16n8k32 wants them:
//   x  row g, first four columns      y  row g + 8, first four      z  row g, second four      w  row g + 8, second four
// where the first four columns are 4 t ... and the second 16 + 4 t ... (natural order), or 8 t ... and 8 t + 4 ... (wide order, for
// points of eight weights). Any order gives the same integer sums, as long as the digits of the activations follow it.
#pragma once
#include <cuda_fp16.h>

#include <cstdint>

#include "cuda/tiles.h"

namespace glint::cuda {

// Where a decoder reads its tile: the matrix itself, or a copy of the tile in shared memory.
struct GlobalMemory {
  __device__ static uint4 Stream(const uint8_t* p) {  // read once: not worth a line of L1
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
  }
  template <class T>
  __device__ static T Load(const uint8_t* p) {
    return __ldg(reinterpret_cast<const T*>(p));
  }
};
struct SharedMemory {
  __device__ static uint4 Stream(const uint8_t* p) { return *reinterpret_cast<const uint4*>(p); }
  template <class T>
  __device__ static T Load(const uint8_t* p) {
    return *reinterpret_cast<const T*>(p);
  }
};
__device__ inline float Half(uint32_t bits) {
  return __half2float(__ushort_as_half(static_cast<uint16_t>(bits)));
}
__device__ inline uint32_t Word(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}
__device__ inline uint32_t Byte(uint32_t word, int i) { return word >> (8 * i) & 255u; }

// prmt as it is: a selector of 8 + n gives the highest bit of byte n eight times (__byte_perm knows no such).
__device__ inline uint32_t Permute(uint32_t a, uint32_t b, uint32_t select) {
  uint32_t r;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(select));
  return r;
}
// Byte i of a word, unsigned or signed, as a float.
__device__ inline float ByteToFloat(uint32_t word, int i) {
  return __int2float_rn(static_cast<int>(Permute(word, 0, 0x4440u | static_cast<uint32_t>(i))));
}
__device__ inline float SignedByteToFloat(uint32_t word, int i) {
  return __int2float_rn(static_cast<int>(Permute(word, 0, 0x8880u + 0x1111u * static_cast<uint32_t>(i))));
}
// table[nibble] for the low nibbles of four bytes (high ones must be zero); table: sixteen signed bytes.
__device__ inline uint32_t Lookup16(uint32_t nibbles, const uint32_t (&table)[4]) {
  const uint32_t pairs = nibbles | nibbles >> 4;                    // bytes 0 and 2: two nibbles each
  const uint32_t select = __byte_perm(pairs, 0, 0x4420) & 0x7777u;  // which of eight
  const uint32_t high = (nibbles >> 3 & 0x01010101u) * 255u;        // where of the upper eight
  return (__byte_perm(table[0], table[1], select) & ~high) | (__byte_perm(table[2], table[3], select) & high);
}
__device__ inline uint32_t Iq4Values(uint32_t nibbles) {
  constexpr uint32_t kTable[4] = {0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u};
  return Lookup16(nibbles, kTable);
}
__device__ inline uint32_t Fp4Doubled(uint32_t nibbles) {
  constexpr uint32_t kTable[4] = {0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu};
  return Lookup16(nibbles, kTable);
}

// Codes before their signs are whole: each is codes - masks, byte by byte, where a mask is 0 or -1 (and a code with mask -1 all bits
// flipped). For whoever can subtract later, and needs no Flips then.
struct SplitCodes {
  uint4 codes, masks;
};

enum class Order : uint8_t { kNatural, kWide };

// What every decoder has: kBlocks blocks of 32 columns a tile, kUnits units a block (scales; two of 16 columns in natural order, or of
// lanes t < 2 and t >= 2 in wide order), and whether there are minima. kTableBytes: what FillTable makes of the format's grid in shared
// memory, where Codes looks.
template <quant::Type kFormat, int kTileBlocks, int kRowBytes, int kUnitsOfBlock, bool kWithMinima,
          Order kColumns, int kSharedBytes = 0>
struct Decoder {
  static constexpr quant::Type kType = kFormat;
  static constexpr int kBlocks = kTileBlocks, kTileBytes = kRowBytes * kTileRows, kUnits = kUnitsOfBlock,
                       kTableBytes = kSharedBytes;
  static constexpr bool kMinima = kWithMinima;
  static constexpr Order kOrder = kColumns;
  // Whether decoding is so much work that one row of activations deserves its own kernel (cuda/one_row.cuh); whether the decoder has
  // CodesSplit for it, with a table by FillSingles.
  static constexpr bool kOneRow = kSharedBytes > 0, kSplit = false;
  // Whether the decoder has what cuda/row_parts.cuh wants: codes and a row's scales by themselves.
  static constexpr bool kRowParts = false;
  // Without minima there is nothing to ask; formats that have them hide this.
  template <class Regs>
  __device__ static float Minimum(const Regs&, int, int, int) {
    return 0;
  }
  // The work of thread `thread` of `threads`; grid: global memory.
  __device__ static void FillTable(uint8_t* table, const uint8_t* grid, int thread, int threads) {
    for (int i = thread * 16; i < kTableBytes; i += threads * 16)
      *reinterpret_cast<uint4*>(table + i) = __ldg(reinterpret_cast<const uint4*>(grid + i));
  }
};

// ---- formats of 32 weights; four blocks a tile ----

struct Q8_0Tile : Decoder<quant::Type::kQ8_0, 4, 136, 1, false, Order::kWide> {
  struct Regs {
    uint4 code[4];
    uint2 scale[2];
  };
  template <class M>
  __device__ static Regs Read(const uint8_t* tile, int lane) {
    Regs r;
    for (int b = 0; b < 4; ++b) r.code[b] = M::Stream(tile + b * 512 + lane * 16);
    for (int half = 0; half < 2; ++half)
      r.scale[half] = M::template Load<uint2>(tile + 2048 + (lane / 4 + 8 * half) * 8);
    return r;
  }
  __device__ static uint4 Codes(const Regs& r, int b, int, const uint8_t*) {
    const uint4& v = r.code[b];
    return {v.x, v.z, v.y, v.w};
  }
  __device__ static float Scale(const Regs& r, int half, int b, int) {
    return Half((b < 2 ? r.scale[half].x : r.scale[half].y) >> (b % 2 * 16));
  }
};

// Codes of four bits: byte i holds columns i (low) and i + 16 (high).
struct Nibbles {
  uint4 pair[2];  // two blocks each: row g, row g + 8 of the first; then of the second
  template <class M>
  __device__ void Read(const uint8_t* tile, int lane) {
    pair[0] = M::Stream(tile + lane * 16);
    pair[1] = M::Stream(tile + 512 + lane * 16);
  }
  __device__ uint4 Of(int b) const {
    const uint32_t low = b % 2 ? pair[b / 2].z : pair[b / 2].x, high = b % 2 ? pair[b / 2].w : pair[b / 2].y;
    return {low & 0x0f0f0f0fu, high & 0x0f0f0f0fu, low >> 4 & 0x0f0f0f0fu, high >> 4 & 0x0f0f0f0fu};
  }
};
// Bytes of at most 127, less `bytes`, also at most 127 each.
__device__ inline uint4 Minus(uint4 v, uint32_t bytes) {
  const auto minus = [bytes](uint32_t word) { return ((word | 0x80808080u) - bytes) ^ 0x80808080u; };
  return {minus(v.x), minus(v.y), minus(v.z), minus(v.w)};
}

struct Q4_0Tile : Decoder<quant::Type::kQ4_0, 4, 72, 1, false, Order::kNatural> {
  struct Regs {
    Nibbles code;
    uint2 scale[2];
  };
  template <class M>
  __device__ static Regs Read(const uint8_t* tile, int lane) {
    Regs r;
    r.code.template Read<M>(tile, lane);
    for (int half = 0; half < 2; ++half)
      r.scale[half] = M::template Load<uint2>(tile + 1024 + (lane / 4 + 8 * half) * 8);
    return r;
  }
  __device__ static uint4 Codes(const Regs& r, int b, int, const uint8_t*) {
    return Minus(r.code.Of(b), 0x08080808u);
  }
  __device__ static float Scale(const Regs& r, int half, int b, int) {
    return Half((b < 2 ? r.scale[half].x : r.scale[half].y) >> (b % 2 * 16));
  }
};

struct IQ4_NLTile : Decoder<quant::Type::kIQ4_NL, 4, 72, 1, false, Order::kNatural> {
  using Regs = Q4_0Tile::Regs;
  template <class M>
  __device__ static Regs Read(const uint8_t* tile, int lane) {
    return Q4_0Tile::Read<M>(tile, lane);
  }
  __device__ static uint4 Codes(const Regs& r, int b, int, const uint8_t*) {
    const uint4 v = r.code.Of(b);
    return {Iq4Values(v.x), Iq4Values(v.y), Iq4Values(v.z), Iq4Values(v.w)};
  }
  __device__ static float Scale(const Regs& r, int half, int b, int u) {
    return Q4_0Tile::Scale(r, half, b, u);
  }
};

struct MXFP4Tile : Decoder<quant::Type::kMXFP4, 4, 68, 1, false, Order::kNatural> {
  struct Regs {
    Nibbles code;
    uint32_t scale[2];
  };
  template <class M>
  __device__ static Regs Read(const uint8_t* tile, int lane) {
    Regs r;
    r.code.template Read<M>(tile, lane);
    for (int half = 0; half < 2; ++half)
      r.scale[half] = M::template Load<uint32_t>(tile + 1024 + (lane / 4 + 8 * half) * 4);
    return r;
  }
  __device__ static uint4 Codes(const Regs& r, int b, int, const uint8_t*) {
    const uint4 v = r.code.Of(b);
    return {Fp4Doubled(v.x), Fp4Doubled(v.y), Fp4Doubled(v.z), Fp4Doubled(v.w)};
  }
  __device__ static float Scale(const Regs& r, int half, int b, int) {
    const uint32_t exponent = Byte(r.scale[half], b);
    return __uint_as_float(exponent < 2 ? 0x200000u << exponent : (exponent - 1u) << 23);
  }
};

struct Q4_1Tile : Decoder<quant::Type::kQ4_1, 4, 80, 1, true, Order::kNatural> {
  struct Regs {
    Nibbles code;
    uint4 scale[2];
  };
  template <class M>
  __device__ static Regs Read(const uint8_t* tile, int lane) {
    Regs r;
    r.code.template Read<M>(tile, lane);
    for (int half = 0; half < 2; ++half)
      r.scale[half] = M::template Load<uint4>(tile + 1024 + (lane / 4 + 8 * half) * 16);
    return r;
  }
  __device__ static uint4 Codes(const Regs& r, int b, int, const uint8_t*) { return r.code.Of(b); }
  __device__ static float Scale(const Regs& r, int half, int b, int) { return Half(Word(r.scale[half], b)); }
  __device__ static float Minimum(const Regs& r, int half, int b, int) {
    return Half(Word(r.scale[half], b) >> 16);
  }
};

// Bits i, i + 1, i + 2, i + 3 of `word`, as bit 4 of four bytes.
__device__ inline uint32_t FifthBits(uint32_t word, int i) {
  return ((word >> i & 15u) * 0x00204081u & 0x01010101u) << 4;
}
__device__ inline uint4 WithFifthBits(uint4 v, uint32_t of_g, uint32_t of_g8, int t) {
  return {v.x | FifthBits(of_g, 4 * t), v.y | FifthBits(of_g8, 4 * t), v.z | FifthBits(of_g, 16 + 4 * t),
          v.w | FifthBits(of_g8, 16 + 4 * t)};
}

struct Q5_0Tile : Decoder<quant::Type::kQ5_0, 4, 88, 1, false, Order::kNatural> {
  struct Regs {
    Nibbles code;
    uint32_t head[2][6];  // of a row: four times a half and a word
  };
  template <class M>
  __device__ static Regs Read(const uint8_t* tile, int lane) {
    Regs r;
    r.code.template Read<M>(tile, lane);
    for (int half = 0; half < 2; ++half) {
      const uint8_t* const row = tile + 1024 + (lane / 4 + 8 * half) * 24;
      for (int i = 0; i < 3; ++i) {
        const uint2 v = M::template Load<uint2>(row + 8 * i);
        r.head[half][2 * i] = v.x, r.head[half][2 * i + 1] = v.y;
      }
    }
    return r;
  }
  // Blocks are six bytes: those of odd number begin in the middle of a word.
  __device__ static uint32_t High(const Regs& r, int half, int b) {
    const uint32_t* const head = r.head[half] + b / 2 * 3;
    return b % 2 ? head[2] : __funnelshift_r(head[0], head[1], 16);
  }
  __device__ static uint4 Codes(const Regs& r, int b, int t, const uint8_t*) {
    return Minus(WithFifthBits(r.code.Of(b), High(r, 0, b), High(r, 1, b), t), 0x10101010u);
  }
  __device__ static float Scale(const Regs& r, int half, int b, int) {
    const uint32_t* const head = r.head[half] + b / 2 * 3;
    return Half(b % 2 ? head[1] >> 16 : head[0]);
  }
};

struct Q5_1Tile : Decoder<quant::Type::kQ5_1, 4, 96, 1, true, Order::kNatural> {
  struct Regs {
    Nibbles code;
    uint4 head[2][2];  // of a row: four times two halves and a word
  };
  template <class M>
  __device__ static Regs Read(const uint8_t* tile, int lane) {
    Regs r;
    r.code.template Read<M>(tile, lane);
    for (int half = 0; half < 2; ++half)
      for (int i = 0; i < 2; ++i)
        r.head[half][i] = M::template Load<uint4>(tile + 1024 + (lane / 4 + 8 * half) * 32 + 16 * i);
    return r;
  }
  __device__ static uint32_t At(const Regs& r, int half, int b, int word) {
    return Word(r.head[half][b / 2], b % 2 * 2 + word);
  }
  __device__ static uint4 Codes(const Regs& r, int b, int t, const uint8_t*) {
    return WithFifthBits(r.code.Of(b), At(r, 0, b, 1), At(r, 1, b, 1), t);
  }
  __device__ static float Scale(const Regs& r, int half, int b, int) { return Half(At(r, half, b, 0)); }
  __device__ static float Minimum(const Regs& r, int half, int b, int) {
    return Half(At(r, half, b, 0) >> 16);
  }
};

// ---- K-quants: a block of 256 weights a tile ----

__device__ inline uint4 And(uint4 v, int shift, uint32_t mask) {
  return {v.x >> shift & mask, v.y >> shift & mask, v.z >> shift & mask, v.w >> shift & mask};
}
// The bits of v that `mask` keeps after a shift right (left, where it is negative), joined to `to`.
__device__ inline uint4 Join(uint4 to, uint4 v, int shift, uint32_t mask) {
  const auto moved = [=](uint32_t word) { return (shift < 0 ? word << -shift : word >> shift) & mask; };
  return {to.x | moved(v.x), to.y | moved(v.y), to.z | moved(v.z), to.w | moved(v.w)};
}

// d, dmin, then eight 6-bit scales and minima (quant/q4_k.h).
struct KScales {
  uint4 row[2];
  template <class M>
  __device__ void Read(const uint8_t* rows, int lane) {
    for (int half = 0; half < 2; ++half)
      row[half] = M::template Load<uint4>(rows + (lane / 4 + 8 * half) * 16);
  }
  __device__ float Scale(int half, int u) const {
    const uint4& r = row[half];
    const uint32_t number =
        u < 4 ? Byte(r.y, u) & 63u : (Byte(r.w, u - 4) & 15u) | Byte(r.y, u - 4) >> 6 << 4;
    return Half(r.x) * static_cast<float>(number);
  }
  __device__ float Minimum(int half, int u) const {
    const uint4& r = row[half];
    const uint32_t number = u < 4 ? Byte(r.z, u) & 63u : Byte(r.w, u - 4) >> 4 | Byte(r.z, u - 4) >> 6 << 4;
    return -(Half(r.x >> 16) * static_cast<float>(number));
  }
};

struct Q4_KTile : Decoder<quant::Type::kQ4_K, 8, 144, 1, true, Order::kNatural> {
  struct Regs {
    uint4 low[4];
    KScales scales;
  };
  template <class M>
  __device__ static Regs Read(const uint8_t* tile, int lane) {
    Regs r;
    for (int i = 0; i < 4; ++i) r.low[i] = M::Stream(tile + i * 512 + lane * 16);
    r.scales.template Read<M>(tile + 2048, lane);
    return r;
  }
  __device__ static uint4 Codes(const Regs& r, int b, int, const uint8_t*) {
    return And(r.low[b / 2], b % 2 * 4, 0x0f0f0f0fu);
  }
  __device__ static float Scale(const Regs& r, int half, int b, int) { return r.scales.Scale(half, b); }
  __device__ static float Minimum(const Regs& r, int half, int b, int) { return r.scales.Minimum(half, b); }
};

struct Q5_KTile : Decoder<quant::Type::kQ5_K, 8, 176, 1, true, Order::kNatural> {
  struct Regs {
    uint4 low[4], high;
    KScales scales;
  };
  template <class M>
  __device__ static Regs Read(const uint8_t* tile, int lane) {
    Regs r;
    for (int i = 0; i < 4; ++i) r.low[i] = M::Stream(tile + i * 512 + lane * 16);
    r.high = M::Stream(tile + 2048 + lane * 16);
    r.scales.template Read<M>(tile + 2560, lane);
    return r;
  }
  __device__ static uint4 Codes(const Regs& r, int b, int, const uint8_t*) {
    return Join(And(r.low[b / 2], b % 2 * 4, 0x0f0f0f0fu), r.high, b - 4, 0x10101010u);
  }
  __device__ static float Scale(const Regs& r, int half, int b, int) { return r.scales.Scale(half, b); }
  __device__ static float Minimum(const Regs& r, int half, int b, int) { return r.scales.Minimum(half, b); }
};

struct Q6_KTile : Decoder<quant::Type::kQ6_K, 8, 210, 2, false, Order::kNatural> {
  static constexpr bool kRowParts = true;
  static constexpr int kOffset = 32;  // of PlainCodes
  struct CodeRegs {
    uint4 word[6];
  };
  struct RowScales {  // of a row
    uint4 number;
    float super;
    __device__ float Of(int unit) const {
      return super * SignedByteToFloat(Word(number, unit / 4), unit % 4);
    }
  };
  struct Regs {
    CodeRegs code;
    RowScales scale[2];
  };
  template <class M>
  __device__ static CodeRegs ReadCodes(const uint8_t* tile, int lane) {
    CodeRegs r;
    for (int i = 0; i < 6; ++i) r.word[i] = M::Stream(tile + i * 512 + lane * 16);
    return r;
  }
  template <class M>
  __device__ static RowScales ReadScales(const uint8_t* tile, int row) {
    return {M::template Load<uint4>(tile + 3072 + row * 16),
            Half(M::template Load<uint16_t>(tile + 3328 + row * 2))};
  }
  template <class M>
  __device__ static Regs Read(const uint8_t* tile, int lane) {
    return {ReadCodes<M>(tile, lane), {ReadScales<M>(tile, lane / 4), ReadScales<M>(tile, lane / 4 + 8)}};
  }
  // Before kOffset is taken away. The fourth block of a half is in the highest bits of the words of the other three (cuda/recode.h).
  __device__ static uint4 PlainCodes(const CodeRegs& r, int b) {
    const uint4* const word = r.word + b / 4 * 3;
    if (b % 4 < 3) return And(word[b % 4], 0, 0x3f3f3f3fu);
    return Join(Join(And(word[0], 6, 0x03030303u), word[1], 4, 0x0c0c0c0cu), word[2], 2, 0x30303030u);
  }
  __device__ static uint4 Codes(const Regs& r, int b, int, const uint8_t*) {
    return Minus(PlainCodes(r.code, b), 0x20202020u);
  }
  __device__ static float Scale(const Regs& r, int half, int b, int unit) {
    return r.scale[half].Of(2 * b + unit);
  }
};

struct Q3_KTile : Decoder<quant::Type::kQ3_K, 8, 110, 2, false, Order::kNatural> {
  struct Regs {
    uint4 low[2], high;
    uint32_t scale[2][3];
    uint16_t super[2];
  };
  template <class M>
  __device__ static Regs Read(const uint8_t* tile, int lane) {
    Regs r;
    for (int i = 0; i < 2; ++i) r.low[i] = M::Stream(tile + i * 512 + lane * 16);
    r.high = M::Stream(tile + 1024 + lane * 16);
    for (int half = 0; half < 2; ++half) {
      const int row = lane / 4 + 8 * half;
      for (int i = 0; i < 3; ++i)
        r.scale[half][i] = M::template Load<uint32_t>(tile + 1536 + row * 12 + i * 4);
      r.super[half] = M::template Load<uint16_t>(tile + 1728 + row * 2);
    }
    return r;
  }
  __device__ static uint4 Codes(const Regs& r, int b, int, const uint8_t*) {
    return Minus(Join(And(r.low[b / 4], b % 4 * 2, 0x03030303u), r.high, b - 2, 0x04040404u), 0x04040404u);
  }
  __device__ static float Scale(const Regs& r, int half, int b, int unit) {
    const int u = 2 * b + unit;
    const uint32_t low = Byte(r.scale[half][u % 8 / 4], u % 4) >> (u / 8 * 4) & 15u;
    const uint32_t high = Byte(r.scale[half][2], u % 4) >> (u / 4 * 2) & 3u;
    return Half(r.super[half]) * static_cast<float>(static_cast<int>(low | high << 4) - 32);
  }
};

struct Q2_KTile : Decoder<quant::Type::kQ2_K, 8, 84, 2, true, Order::kNatural> {
  struct Regs {
    uint4 code[2];
    uint4 scale[2];
    uint32_t super[2];
  };
  template <class M>
  __device__ static Regs Read(const uint8_t* tile, int lane) {
    Regs r;
    for (int i = 0; i < 2; ++i) r.code[i] = M::Stream(tile + i * 512 + lane * 16);
    for (int half = 0; half < 2; ++half) {
      const int row = lane / 4 + 8 * half;
      r.scale[half] = M::template Load<uint4>(tile + 1024 + row * 16);
      r.super[half] = M::template Load<uint32_t>(tile + 1280 + row * 4);
    }
    return r;
  }
  __device__ static uint4 Codes(const Regs& r, int b, int, const uint8_t*) {
    return And(r.code[b / 4], b % 4 * 2, 0x03030303u);
  }
  __device__ static uint32_t Number(const Regs& r, int half, int b, int unit) {
    const int u = 2 * b + unit;
    return Byte(Word(r.scale[half], u / 4), u % 4);
  }
  __device__ static float Scale(const Regs& r, int half, int b, int unit) {
    return Half(r.super[half]) * static_cast<float>(Number(r, half, b, unit) & 15u);
  }
  __device__ static float Minimum(const Regs& r, int half, int b, int unit) {
    return -(Half(r.super[half] >> 16) * static_cast<float>(Number(r, half, b, unit) >> 4));
  }
};

struct TQ2_0Tile : Decoder<quant::Type::kTQ2_0, 8, 66, 1, false, Order::kNatural> {
  struct Regs {
    uint4 code[2];
    uint16_t super[2];
  };
  template <class M>
  __device__ static Regs Read(const uint8_t* tile, int lane) {
    Regs r;
    for (int i = 0; i < 2; ++i) r.code[i] = M::Stream(tile + i * 512 + lane * 16);
    for (int half = 0; half < 2; ++half)
      r.super[half] = M::template Load<uint16_t>(tile + 1024 + (lane / 4 + 8 * half) * 2);
    return r;
  }
  __device__ static uint4 Codes(const Regs& r, int b, int, const uint8_t*) {
    return Minus(And(r.code[b / 4], b % 4 * 2, 0x03030303u), 0x01010101u);
  }
  __device__ static float Scale(const Regs& r, int half, int, int) { return Half(r.super[half]); }
};

// ---- IQ formats ----

struct IQ4_XSTile : Decoder<quant::Type::kIQ4_XS, 8, 136, 1, false, Order::kNatural> {
  struct Regs {
    uint4 pair[4];
    uint2 head[2];  // d and the high bits of the scales; their low bits
  };
  template <class M>
  __device__ static Regs Read(const uint8_t* tile, int lane) {
    Regs r;
    for (int i = 0; i < 4; ++i) r.pair[i] = M::Stream(tile + i * 512 + lane * 16);
    for (int half = 0; half < 2; ++half)
      r.head[half] = M::template Load<uint2>(tile + 2048 + (lane / 4 + 8 * half) * 8);
    return r;
  }
  __device__ static uint4 Codes(const Regs& r, int b, int, const uint8_t*) {
    const uint32_t low = b % 2 ? r.pair[b / 2].z : r.pair[b / 2].x,
                   high = b % 2 ? r.pair[b / 2].w : r.pair[b / 2].y;
    return {Iq4Values(low & 0x0f0f0f0fu), Iq4Values(high & 0x0f0f0f0fu), Iq4Values(low >> 4 & 0x0f0f0f0fu),
            Iq4Values(high >> 4 & 0x0f0f0f0fu)};
  }
  __device__ static float Scale(const Regs& r, int half, int b, int) {
    const uint32_t number = (r.head[half].y >> (4 * b) & 15u) | (r.head[half].x >> (16 + 2 * b) & 3u) << 4;
    return Half(r.head[half].x) * static_cast<float>(static_cast<int>(number) - 32);
  }
};

}  // namespace glint::cuda
