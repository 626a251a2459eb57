// A tile of quantised weights in a warp's registers, and the codes and scales in it: one struct a format, over the layout of
// cuda/tiles.h. src/quant/<format>.h defines what the bytes mean; here is only where a lane finds its share.
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

// Four positive codes, negated where the bits of `signs` are set; no code is zero, so that no byte carries.
__device__ inline uint32_t Negate(uint32_t codes, uint32_t signs) {
  const uint32_t ones = (signs & 15u) * 0x00204081u & 0x01010101u;
  return (codes ^ ones * 255u) + ones;
}
__device__ inline uint32_t EvenSigns(uint32_t seven) { return seven | (__popc(seven) & 1u) << 7; }

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

enum class Order : uint8_t { kNatural, kWide };

// What every decoder has: kBlocks blocks of 32 columns a tile, kUnits units a block (scales; two of 16 columns in natural order, or of
// lanes t < 2 and t >= 2 in wide order), and whether there are minima. kTableBytes: a grid that the kernel keeps in shared memory.
template <quant::Type kFormat, int kTileBlocks, int kRowBytes, int kUnitsOfBlock, bool kWithMinima,
          Order kColumns, int kGridBytes = 0>
struct Decoder {
  static constexpr quant::Type kType = kFormat;
  static constexpr int kBlocks = kTileBlocks, kTileBytes = kRowBytes * kTileRows, kUnits = kUnitsOfBlock,
                       kTableBytes = kGridBytes;
  static constexpr bool kMinima = kWithMinima;
  static constexpr Order kOrder = kColumns;
  // Without minima there is nothing to ask; formats that have them hide this.
  template <class Regs>
  __device__ static float Minimum(const Regs&, int, int, int) {
    return 0;
  }
};

// ---- formats of 32 weights; four blocks a tile ----

struct Q8_0Tile : Decoder<quant::Type::kQ8_0, 4, 136, 1, false, Order::kNatural> {
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
  __device__ static uint4 Codes(const Regs& r, int b, int, const uint8_t*) { return r.code[b]; }
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
__device__ inline uint4 Minus(uint4 v, uint32_t bytes) {
  return {__vsub4(v.x, bytes), __vsub4(v.y, bytes), __vsub4(v.z, bytes), __vsub4(v.w, bytes)};
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
// The bits of v that `mask` keeps after a shift right, moved left and joined to `to`.
__device__ inline uint4 Join(uint4 to, uint4 v, int shift, uint32_t mask, int left) {
  const uint4 high = And(v, shift, mask);
  return {to.x | high.x << left, to.y | high.y << left, to.z | high.z << left, to.w | high.w << left};
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
    return Join(And(r.low[b / 2], b % 2 * 4, 0x0f0f0f0fu), r.high, b, 0x01010101u, 4);
  }
  __device__ static float Scale(const Regs& r, int half, int b, int) { return r.scales.Scale(half, b); }
  __device__ static float Minimum(const Regs& r, int half, int b, int) { return r.scales.Minimum(half, b); }
};

struct Q6_KTile : Decoder<quant::Type::kQ6_K, 8, 210, 2, false, Order::kNatural> {
  struct Regs {
    uint4 low[4], high[2];
    uint4 scale[2];
    uint16_t super[2];
  };
  template <class M>
  __device__ static Regs Read(const uint8_t* tile, int lane) {
    Regs r;
    for (int i = 0; i < 4; ++i) r.low[i] = M::Stream(tile + i * 512 + lane * 16);
    for (int i = 0; i < 2; ++i) r.high[i] = M::Stream(tile + 2048 + i * 512 + lane * 16);
    for (int half = 0; half < 2; ++half) {
      const int row = lane / 4 + 8 * half;
      r.scale[half] = M::template Load<uint4>(tile + 3072 + row * 16);
      r.super[half] = M::template Load<uint16_t>(tile + 3328 + row * 2);
    }
    return r;
  }
  // Of each half of 128 columns, blocks b and b + 2 share bytes of `low`, all four share those of `high`.
  __device__ static uint4 Codes(const Regs& r, int b, int, const uint8_t*) {
    const uint4 low = And(r.low[b / 4 * 2 + b % 2], b % 4 / 2 * 4, 0x0f0f0f0fu);
    return Minus(Join(low, r.high[b / 4], b % 4 * 2, 0x03030303u, 4), 0x20202020u);
  }
  __device__ static float Scale(const Regs& r, int half, int b, int unit) {
    const int u = 2 * b + unit;
    const auto number = static_cast<int8_t>(Byte(Word(r.scale[half], u / 4), u % 4));
    return Half(r.super[half]) * static_cast<float>(number);
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
    return Minus(Join(And(r.low[b / 4], b % 4 * 2, 0x03030303u), r.high, b, 0x01010101u, 2), 0x04040404u);
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

// Grids in shared memory: points of four codes as words, points of eight as pairs of words.
__device__ inline uint32_t Point4(const uint8_t* table, uint32_t n) {
  return reinterpret_cast<const uint32_t*>(table)[n];
}
__device__ inline uint2 Point8(const uint8_t* table, uint32_t n) {
  return reinterpret_cast<const uint2*>(table)[n];
}

struct IQ3_XXSTile : Decoder<quant::Type::kIQ3_XXS, 8, 98, 1, false, Order::kNatural, 1024> {
  struct Regs {
    uint4 point[2];    // a word a block: points of x, y, z, w
    uint4 word[2][2];  // of rows g and g + 8: signs and scale of each block
    uint16_t super[2];
  };
  template <class M>
  __device__ static Regs Read(const uint8_t* tile, int lane) {
    Regs r;
    for (int i = 0; i < 2; ++i) r.point[i] = M::Stream(tile + i * 512 + lane * 16);
    for (int half = 0; half < 2; ++half) {
      const int row = lane / 4 + 8 * half;
      for (int i = 0; i < 2; ++i) r.word[half][i] = M::template Load<uint4>(tile + 1024 + row * 32 + i * 16);
      r.super[half] = M::template Load<uint16_t>(tile + 1536 + row * 2);
    }
    return r;
  }
  // Points t and 4 + t of a row: the nibble t % 2 of sign bytes t / 2 and 2 + t / 2.
  __device__ static uint4 Codes(const Regs& r, int b, int t, const uint8_t* table) {
    const uint32_t points = Word(r.point[b / 4], b % 4);
    const uint32_t g = Word(r.word[0][b / 4], b % 4), g8 = Word(r.word[1][b / 4], b % 4);
    const int first = 7 * (t / 2), nibble = t % 2 * 4;
    const auto signs = [&](uint32_t word, int shift) { return EvenSigns(word >> shift & 127u) >> nibble; };
    return {Negate(Point4(table, Byte(points, 0)), signs(g, first)),
            Negate(Point4(table, Byte(points, 1)), signs(g8, first)),
            Negate(Point4(table, Byte(points, 2)), signs(g, first + 14)),
            Negate(Point4(table, Byte(points, 3)), signs(g8, first + 14))};
  }
  __device__ static float Scale(const Regs& r, int half, int b, int) {
    return Half(r.super[half]) * 0.25f * static_cast<float>(2 * (Word(r.word[half][b / 4], b % 4) >> 28) + 1);
  }
};

struct IQ3_STile : Decoder<quant::Type::kIQ3_S, 8, 110, 1, false, Order::kNatural, 2048> {
  struct Regs {
    uint4 point[2];
    uint4 sign[2][2];  // a word a block
    uint2 high[2];     // a byte a block: bit 8 of its points' numbers
    uint32_t scale[2];
    uint16_t super[2];
  };
  template <class M>
  __device__ static Regs Read(const uint8_t* tile, int lane) {
    Regs r;
    for (int i = 0; i < 2; ++i) r.point[i] = M::Stream(tile + i * 512 + lane * 16);
    for (int half = 0; half < 2; ++half) {
      const int row = lane / 4 + 8 * half;
      for (int i = 0; i < 2; ++i) r.sign[half][i] = M::template Load<uint4>(tile + 1024 + row * 32 + i * 16);
      r.high[half] = M::template Load<uint2>(tile + 1536 + row * 8);
      r.scale[half] = M::template Load<uint32_t>(tile + 1664 + row * 4);
      r.super[half] = M::template Load<uint16_t>(tile + 1728 + row * 2);
    }
    return r;
  }
  __device__ static uint4 Codes(const Regs& r, int b, int t, const uint8_t* table) {
    const uint32_t points = Word(r.point[b / 4], b % 4);
    const uint32_t signs[2] = {Word(r.sign[0][b / 4], b % 4), Word(r.sign[1][b / 4], b % 4)};
    const uint32_t high[2] = {Byte(b < 4 ? r.high[0].x : r.high[0].y, b % 4),
                              Byte(b < 4 ? r.high[1].x : r.high[1].y, b % 4)};
    const auto code = [&](int i, int half, int point) {
      const uint32_t number = Byte(points, i) | (high[half] >> point & 1u) << 8;
      return Negate(Point4(table, number), signs[half] >> (4 * point));
    };
    return {code(0, 0, t), code(1, 1, t), code(2, 0, 4 + t), code(3, 1, 4 + t)};
  }
  __device__ static float Scale(const Regs& r, int half, int b, int) {
    return Half(r.super[half]) * static_cast<float>(2 * (r.scale[half] >> (4 * b) & 15u) + 1);
  }
};

// Points of eight weights: lane t has point t of each block, all of it (wide order).
__device__ inline uint4 TwoPoints(uint2 g, uint2 g8, uint32_t signs_g, uint32_t signs_g8) {
  return {Negate(g.x, signs_g), Negate(g8.x, signs_g8), Negate(g.y, signs_g >> 4),
          Negate(g8.y, signs_g8 >> 4)};
}
// Byte 2 b of the string of two bytes a block is row g's, the next row g + 8's.
__device__ inline uint32_t ByteOf(const uint4& v, int b, int half) {
  return Byte(Word(v, b / 2), b % 2 * 2 + half);
}

struct IQ2_XXSTile : Decoder<quant::Type::kIQ2_XXS, 8, 66, 1, false, Order::kWide, 2048> {
  struct Regs {
    uint4 point;
    uint4 word[2][2];
    uint16_t super[2];
  };
  template <class M>
  __device__ static Regs Read(const uint8_t* tile, int lane) {
    Regs r;
    r.point = M::Stream(tile + lane * 16);
    for (int half = 0; half < 2; ++half) {
      const int row = lane / 4 + 8 * half;
      for (int i = 0; i < 2; ++i) r.word[half][i] = M::template Load<uint4>(tile + 512 + row * 32 + i * 16);
      r.super[half] = M::template Load<uint16_t>(tile + 1024 + row * 2);
    }
    return r;
  }
  __device__ static uint4 Codes(const Regs& r, int b, int t, const uint8_t* table) {
    const uint32_t g = Word(r.word[0][b / 4], b % 4), g8 = Word(r.word[1][b / 4], b % 4);
    return TwoPoints(Point8(table, ByteOf(r.point, b, 0)), Point8(table, ByteOf(r.point, b, 1)),
                     EvenSigns(g >> (7 * t) & 127u), EvenSigns(g8 >> (7 * t) & 127u));
  }
  __device__ static float Scale(const Regs& r, int half, int b, int) {
    return Half(r.super[half]) * 0.125f *
           static_cast<float>(2 * (Word(r.word[half][b / 4], b % 4) >> 28) + 1);
  }
};

// Scales of units of 16: units 2 n and 2 n + 1 in the nibbles of byte n of two words.
__device__ inline float NibbleScale(uint32_t d, uint2 scales, int b, int unit) {
  const uint32_t number = Byte(b < 4 ? scales.x : scales.y, b % 4) >> (4 * unit) & 15u;
  return Half(d) * 0.125f * static_cast<float>(2 * number + 1);
}

struct IQ2_STile : Decoder<quant::Type::kIQ2_S, 8, 82, 2, false, Order::kWide, 8192> {
  struct Regs {
    uint4 point, sign;
    uint2 high[2], scale[2];
    uint16_t super[2];
  };
  template <class M>
  __device__ static Regs Read(const uint8_t* tile, int lane) {
    Regs r;
    r.point = M::Stream(tile + lane * 16);
    r.sign = M::Stream(tile + 512 + lane * 16);
    for (int half = 0; half < 2; ++half) {
      const int row = lane / 4 + 8 * half;
      r.high[half] = M::template Load<uint2>(tile + 1024 + row * 8);
      r.scale[half] = M::template Load<uint2>(tile + 1152 + row * 8);
      r.super[half] = M::template Load<uint16_t>(tile + 1280 + row * 2);
    }
    return r;
  }
  __device__ static uint4 Codes(const Regs& r, int b, int t, const uint8_t* table) {
    const auto point = [&](int half) {
      const uint32_t high = Byte(b < 4 ? r.high[half].x : r.high[half].y, b % 4) >> (2 * t) & 3u;
      return Point8(table, ByteOf(r.point, b, half) | high << 8);
    };
    return TwoPoints(point(0), point(1), ByteOf(r.sign, b, 0), ByteOf(r.sign, b, 1));
  }
  __device__ static float Scale(const Regs& r, int half, int b, int unit) {
    return NibbleScale(r.super[half], r.scale[half], b, unit);
  }
};

struct IQ2_XSTile : Decoder<quant::Type::kIQ2_XS, 8, 74, 2, false, Order::kWide, 4096> {
  struct Regs {
    uint4 point[2];  // a word a block: rows g and g + 8, each a point of nine bits and seven signs
    uint2 scale[2];
    uint16_t super[2];
  };
  template <class M>
  __device__ static Regs Read(const uint8_t* tile, int lane) {
    Regs r;
    for (int i = 0; i < 2; ++i) r.point[i] = M::Stream(tile + i * 512 + lane * 16);
    for (int half = 0; half < 2; ++half) {
      const int row = lane / 4 + 8 * half;
      r.scale[half] = M::template Load<uint2>(tile + 1024 + row * 8);
      r.super[half] = M::template Load<uint16_t>(tile + 1152 + row * 2);
    }
    return r;
  }
  __device__ static uint4 Codes(const Regs& r, int b, int, const uint8_t* table) {
    const uint32_t word = Word(r.point[b / 4], b % 4);
    return TwoPoints(Point8(table, word & 511u), Point8(table, word >> 16 & 511u),
                     EvenSigns(word >> 9 & 127u), EvenSigns(word >> 25));
  }
  __device__ static float Scale(const Regs& r, int half, int b, int unit) {
    return NibbleScale(r.super[half], r.scale[half], b, unit);
  }
};

// IQ1: coordinates -1, 0, 1 in eighths, shifted by one up or down.
__device__ inline uint32_t Eighths(uint32_t coordinates, uint32_t down) {
  const uint32_t times8 = (coordinates & 0x1f1f1f1fu) << 3;  // modulo 256 in each byte: -1 becomes -8
  return down != 0 ? __vsub4(times8, 0x01010101u) : __vadd4(times8, 0x01010101u);
}

struct IQ1_STile : Decoder<quant::Type::kIQ1_S, 8, 50, 1, false, Order::kWide, 16384> {
  struct Regs {
    uint4 point;
    uint4 high[2];  // a half word a block
    uint16_t super[2];
  };
  template <class M>
  __device__ static Regs Read(const uint8_t* tile, int lane) {
    Regs r;
    r.point = M::Stream(tile + lane * 16);
    for (int half = 0; half < 2; ++half) {
      const int row = lane / 4 + 8 * half;
      r.high[half] = M::template Load<uint4>(tile + 512 + row * 16);
      r.super[half] = M::template Load<uint16_t>(tile + 768 + row * 2);
    }
    return r;
  }
  __device__ static uint32_t High(const Regs& r, int half, int b) {
    return Word(r.high[half], b / 2) >> (b % 2 * 16) & 0xffffu;
  }
  __device__ static uint4 Codes(const Regs& r, int b, int t, const uint8_t* table) {
    const uint32_t high[2] = {High(r, 0, b), High(r, 1, b)};
    const auto point = [&](int half) {
      return Point8(table, ByteOf(r.point, b, half) | (high[half] >> (3 * t) & 7u) << 8);
    };
    const uint2 g = point(0), g8 = point(1);
    return {Eighths(g.x, high[0] >> 15), Eighths(g8.x, high[1] >> 15), Eighths(g.y, high[0] >> 15),
            Eighths(g8.y, high[1] >> 15)};
  }
  __device__ static float Scale(const Regs& r, int half, int b, int) {
    return Half(r.super[half]) * 0.125f * static_cast<float>(2 * (High(r, half, b) >> 12 & 7u) + 1);
  }
};

struct IQ1_MTile : Decoder<quant::Type::kIQ1_M, 8, 56, 2, false, Order::kWide, 16384> {
  struct Regs {
    uint4 point;
    uint4 high[2];   // a nibble a point
    uint2 scale[2];  // four half words: three bits a unit, a nibble of d each
  };
  template <class M>
  __device__ static Regs Read(const uint8_t* tile, int lane) {
    Regs r;
    r.point = M::Stream(tile + lane * 16);
    for (int half = 0; half < 2; ++half) {
      const int row = lane / 4 + 8 * half;
      r.high[half] = M::template Load<uint4>(tile + 512 + row * 16);
      r.scale[half] = M::template Load<uint2>(tile + 768 + row * 8);
    }
    return r;
  }
  __device__ static uint4 Codes(const Regs& r, int b, int t, const uint8_t* table) {
    uint32_t high[2];
    uint2 point[2];
    for (int half = 0; half < 2; ++half) {
      high[half] = Word(r.high[half], b / 2) >> (b % 2 * 16 + 4 * t) & 15u;
      point[half] = Point8(table, ByteOf(r.point, b, half) | (high[half] & 7u) << 8);
    }
    return {Eighths(point[0].x, high[0] >> 3), Eighths(point[1].x, high[1] >> 3),
            Eighths(point[0].y, high[0] >> 3), Eighths(point[1].y, high[1] >> 3)};
  }
  __device__ static float Scale(const Regs& r, int half, int b, int unit) {
    const uint2 s = r.scale[half];
    const int u = 2 * b + unit;
    const uint32_t d = (s.x >> 12 & 15u) | (s.x >> 28) << 4 | (s.y >> 12 & 15u) << 8 | (s.y >> 28) << 12;
    const uint32_t word = (u < 8 ? s.x : s.y) >> (u / 4 % 2 * 16);
    return Half(d) * 0.125f * static_cast<float>(2 * (word >> (u % 4 * 3) & 7u) + 1);
  }
};

}  // namespace glint::cuda
