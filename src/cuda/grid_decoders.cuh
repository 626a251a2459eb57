// The decoders (cuda/decoders.cuh) of the IQ formats whose codes are points of a grid, and the tables that those become in shared memory.
#pragma once
#include <cstdint>

#include "cuda/decoders.cuh"

namespace glint::cuda {

// Four positive codes, negated where the bits of `signs` are set; no code is zero, so that no byte carries.
__device__ inline uint32_t Negate(uint32_t codes, uint32_t signs) {
  const uint32_t ones = (signs & 15u) * 0x00204081u & 0x01010101u;
  return (codes ^ ones * 255u) + ones;
}
// Four codes with the signs of block b in a sign word (cuda/recode.h). `flips`: Flips(codes).
__device__ inline uint32_t Signed(uint32_t codes, uint32_t flips, uint32_t word, int b) {
  return codes ^ (flips & Permute(word << (7 - b), 0, 0xba98u));  // the highest bit of each byte, eight times
}
// A word of SplitCodes. `word`: a sign word.
__device__ inline void Split(uint32_t magnitudes, uint32_t word, int b, uint32_t& codes, uint32_t& masks) {
  masks = Permute(word << (7 - b), 0, 0xba98u);
  codes = magnitudes ^ masks;
}
// What turns each of four codes into its negative; none of them is zero.
__device__ inline uint32_t Flips(uint32_t codes) { return codes ^ (0x01010100u - codes); }

// Numbers 2 n + 1 of the eight nibbles n of a word: of the even ones, of the odd ones.
struct OddNumbers {
  uint32_t even, odd;
  __device__ void Set(uint32_t nibbles) {
    even = (nibbles & 0x0f0f0f0fu) * 2 + 0x01010101u;
    odd = (nibbles >> 4 & 0x0f0f0f0fu) * 2 + 0x01010101u;
  }
};
// Scales of a row's eight blocks in eight nibbles and a half.
struct OddScales {
  struct Raw {  // as they lie in the tile
    uint32_t nibbles;
    uint16_t super;
    template <class M>
    __device__ static Raw Read(const uint8_t* rows, int row) {
      return {M::template Load<uint32_t>(rows + row * 4), M::template Load<uint16_t>(rows + 64 + row * 2)};
    }
  };
  OddNumbers number;
  float super;
  OddScales() = default;
  __device__ OddScales(const Raw& raw, float times) : super(times * Half(raw.super)) {
    number.Set(raw.nibbles);
  }
  __device__ float Of(int b) const { return super * ByteToFloat(b % 2 ? number.odd : number.even, b / 2); }
};
__device__ inline uint32_t EvenSigns(uint32_t seven) { return seven | (__popc(seven) & 1u) << 7; }

// Grids in shared memory as they are: points of eight codes as pairs of words.
__device__ inline uint2 Point8(const uint8_t* table, uint32_t n) {
  return reinterpret_cast<const uint2*>(table)[n];
}

// A table of points of four: an entry of 256 bytes for 256 points (of which the second half is never touched), of 128 for 512, where
// bit 8 of the number is bit 7 of the address: byte 1 of an address is always the number's low byte. In it what Entry is, {codes,
// Flips(codes)} or the codes alone, stands 16 or 32 times, once for each lane of half a warp or of all of it, so that no two lanes
// want the same bank.
template <class Entry>
struct Copies4 {
  static constexpr int kBytes = sizeof(Entry), kLanes = 128 / kBytes;
  static constexpr bool kFlips = kBytes == 8;
  template <int kPoints>
  __device__ static void Fill(uint8_t* table, const uint8_t* grid, int thread, int threads) {
    for (int i = thread; i < kPoints * 8; i += threads) {
      const int n = i / 8;
      const uint32_t codes = __ldg(reinterpret_cast<const uint32_t*>(grid) + n),
                     second = kFlips ? Flips(codes) : codes;
      *reinterpret_cast<uint4*>(table + n % 256 * 256 + n / 256 * 128 + i % 8 * 16) = {codes, second, codes,
                                                                                       second};
    }
  }
  // A needless modulo would cost an instruction wherever the copy is used.
  __device__ static uint32_t Copy(int lane) {
    return static_cast<uint32_t>(kLanes < 32 ? lane % kLanes : lane) * uint32_t{kBytes};
  }
  // Byte i of `points` is the low byte of the number; bit 8, if there is one, is in `copy`.
  __device__ static Entry At(const uint8_t* table, uint32_t points, int i, uint32_t copy) {
    return *reinterpret_cast<const Entry*>(table +
                                           Permute(points, copy, 0x5504u | static_cast<uint32_t>(i) << 4));
  }
};
using Pairs4 = Copies4<uint2>;       // for Codes
using Singles4 = Copies4<uint32_t>;  // for CodesSplit

// Codes of a block from its four points, at(i) of Pairs4 or Singles4, and a word of signs each.
template <class At>
__device__ inline uint4 SignedPoints(const uint4& signs, int b, At&& at) {
  const auto code = [&](int i) {
    const uint2 v = at(i);
    return Signed(v.x, v.y, Word(signs, i), b);
  };
  return {code(0), code(2), code(1), code(3)};
}
template <class At>
__device__ inline SplitCodes SplitPoints(const uint4& signs, int b, At&& at) {
  SplitCodes v;
  Split(at(0), signs.x, b, v.codes.x, v.masks.x);
  Split(at(1), signs.y, b, v.codes.z, v.masks.z);
  Split(at(2), signs.z, b, v.codes.y, v.masks.y);
  Split(at(3), signs.w, b, v.codes.w, v.masks.w);
  return v;
}

struct IQ3_XXSTile : Decoder<quant::Type::kIQ3_XXS, 8, 102, 1, false, Order::kWide, 65536> {
  static constexpr bool kSplit = true;
  struct Regs {
    uint4 point[2];  // a word a block: points of x, z, y, w
    uint4 sign;      // their sign words
    OddScales scale[2];
    uint32_t copy;
  };
  using RowRaw = OddScales::Raw;
  using RowScales = OddScales;
  template <class M>
  __device__ static RowRaw ReadRow(const uint8_t* tile, int row) {
    return RowRaw::Read<M>(tile + 1536, row);
  }
  __device__ static RowScales Scales(const RowRaw& raw) { return {raw, 0.25f}; }
  template <class M>
  __device__ static Regs Read(const uint8_t* tile, int lane) {
    Regs r;
    for (int i = 0; i < 2; ++i) r.point[i] = M::Stream(tile + i * 512 + lane * 16);
    r.sign = M::Stream(tile + 1024 + lane * 16);
    for (int half = 0; half < 2; ++half) r.scale[half] = Scales(ReadRow<M>(tile, lane / 4 + 8 * half));
    r.copy = Pairs4::Copy(lane);
    return r;
  }
  __device__ static uint4 Codes(const Regs& r, int b, int, const uint8_t* table) {
    const uint32_t points = Word(r.point[b / 4], b % 4);
    return SignedPoints(r.sign, b, [&](int i) { return Pairs4::At(table, points, i, r.copy); });
  }
  // The same from the table of FillSingles.
  __device__ static SplitCodes CodesSplit(const Regs& r, int b, int lane, const uint8_t* table) {
    const uint32_t points = Word(r.point[b / 4], b % 4), copy = Singles4::Copy(lane);
    return SplitPoints(r.sign, b, [&](int i) { return Singles4::At(table, points, i, copy); });
  }
  __device__ static float Scale(const Regs& r, int half, int b, int) { return r.scale[half].Of(b); }
  __device__ static void FillTable(uint8_t* table, const uint8_t* grid, int thread, int threads) {
    Pairs4::Fill<256>(table, grid, thread, threads);
  }
  __device__ static void FillSingles(uint8_t* table, const uint8_t* grid, int thread, int threads) {
    Singles4::Fill<256>(table, grid, thread, threads);
  }
};

struct IQ3_STile : Decoder<quant::Type::kIQ3_S, 8, 110, 1, false, Order::kWide, 65536> {
  static constexpr bool kSplit = true;
  struct Regs {
    IQ3_XXSTile::Regs rest;
    uint32_t ninth;  // bit b of byte i: bit 8 of point i of block b
  };
  using RowRaw = OddScales::Raw;
  using RowScales = OddScales;
  template <class M>
  __device__ static RowRaw ReadRow(const uint8_t* tile, int row) {
    return RowRaw::Read<M>(tile + 1664, row);
  }
  __device__ static RowScales Scales(const RowRaw& raw) { return {raw, 1.0f}; }
  template <class M>
  __device__ static Regs Read(const uint8_t* tile, int lane) {
    Regs r;
    for (int i = 0; i < 2; ++i) r.rest.point[i] = M::Stream(tile + i * 512 + lane * 16);
    r.rest.sign = M::Stream(tile + 1024 + lane * 16);
    r.ninth = M::template Load<uint32_t>(tile + 1536 + lane * 4);
    for (int half = 0; half < 2; ++half) r.rest.scale[half] = Scales(ReadRow<M>(tile, lane / 4 + 8 * half));
    r.rest.copy = Pairs4::Copy(lane);
    return r;
  }
  // Bit 8 of point i of block b, at the place of bit 7 of an address.
  __device__ static uint32_t High(const Regs& r, int b, int i) {
    const int shift = 8 * i + b - 7;
    return (shift < 0 ? r.ninth << -shift : r.ninth >> shift) & 0x80u;
  }
  __device__ static uint4 Codes(const Regs& r, int b, int, const uint8_t* table) {
    const uint32_t points = Word(r.rest.point[b / 4], b % 4);
    return SignedPoints(r.rest.sign, b,
                        [&](int i) { return Pairs4::At(table, points, i, High(r, b, i) | r.rest.copy); });
  }
  __device__ static SplitCodes CodesSplit(const Regs& r, int b, int lane, const uint8_t* table) {
    const uint32_t points = Word(r.rest.point[b / 4], b % 4), copy = Singles4::Copy(lane);
    return SplitPoints(r.rest.sign, b,
                       [&](int i) { return Singles4::At(table, points, i, High(r, b, i) | copy); });
  }
  __device__ static float Scale(const Regs& r, int half, int b, int u) {
    return IQ3_XXSTile::Scale(r.rest, half, b, u);
  }
  __device__ static void FillTable(uint8_t* table, const uint8_t* grid, int thread, int threads) {
    Pairs4::Fill<512>(table, grid, thread, threads);
  }
  __device__ static void FillSingles(uint8_t* table, const uint8_t* grid, int thread, int threads) {
    Singles4::Fill<512>(table, grid, thread, threads);
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

struct IQ2_STile : Decoder<quant::Type::kIQ2_S, 8, 82, 2, false, Order::kWide, 65536> {
  static constexpr bool kSplit = true;
  struct RowScales {       // of a row
    OddNumbers number[2];  // of units of even and odd number of blocks 0..3, 4..7
    float super;
    __device__ float Of(int unit) const {
      const OddNumbers& n = number[unit / 8];
      return super * ByteToFloat(unit % 2 ? n.odd : n.even, unit % 8 / 2);
    }
  };
  using RowRaw = RowScales;
  __device__ static RowScales Scales(const RowRaw& raw) { return raw; }
  struct Regs {
    uint4 point;
    uint4 sign;     // sign words of x, z, y, w
    uint32_t high;  // bits 8 and 9 of row g's points, then of row g + 8's
    RowScales scale[2];
    uint32_t copy;
  };
  template <class M>
  __device__ static RowScales ReadRow(const uint8_t* tile, int row) {
    RowScales r;
    const auto numbers = M::template Load<uint2>(tile + 1152 + row * 8);
    r.number[0].Set(numbers.x);
    r.number[1].Set(numbers.y);
    r.super = 0.125f * Half(M::template Load<uint16_t>(tile + 1280 + row * 2));
    return r;
  }
  template <class M>
  __device__ static Regs Read(const uint8_t* tile, int lane) {
    Regs r;
    r.point = M::Stream(tile + lane * 16);
    r.sign = M::Stream(tile + 512 + lane * 16);
    r.high = M::template Load<uint32_t>(tile + 1024 + lane * 4);
    for (int half = 0; half < 2; ++half) r.scale[half] = ReadRow<M>(tile, lane / 4 + 8 * half);
    r.copy = static_cast<uint32_t>(lane) % 8 * 8;
    return r;
  }
  // Eight copies of an entry, 64 bytes: the number's low byte is byte 1 of the address, its bits 8 and 9 are bits 6 and 7.
  __device__ static uint2 Point(const Regs& r, int b, int half, const uint8_t* table) {
    const int shift = 16 * half + 2 * b - 6;
    const uint32_t high = (shift < 0 ? r.high << -shift : r.high >> shift) & 0xc0u;
    const uint32_t byte = static_cast<uint32_t>(b % 2 * 2 + half);
    return *reinterpret_cast<const uint2*>(table +
                                           Permute(Word(r.point, b / 2), high | r.copy, 0x5504u | byte << 4));
  }
  __device__ static SplitCodes CodesSplit(const Regs& r, int b, int, const uint8_t* table) {
    const uint2 g = Point(r, b, 0, table), g8 = Point(r, b, 1, table);
    SplitCodes v;
    Split(g.x, r.sign.x, b, v.codes.x, v.masks.x);
    Split(g.y, r.sign.y, b, v.codes.z, v.masks.z);
    Split(g8.x, r.sign.z, b, v.codes.y, v.masks.y);
    Split(g8.y, r.sign.w, b, v.codes.w, v.masks.w);
    return v;
  }
  __device__ static uint4 Codes(const Regs& r, int b, int, const uint8_t* table) {
    const uint2 g = Point(r, b, 0, table), g8 = Point(r, b, 1, table);
    return {Signed(g.x, Flips(g.x), r.sign.x, b), Signed(g8.x, Flips(g8.x), r.sign.z, b),
            Signed(g.y, Flips(g.y), r.sign.y, b), Signed(g8.y, Flips(g8.y), r.sign.w, b)};
  }
  __device__ static float Scale(const Regs& r, int half, int b, int unit) {
    return r.scale[half].Of(2 * b + unit);
  }
  __device__ static void FillTable(uint8_t* table, const uint8_t* grid, int thread, int threads) {
    for (int i = thread; i < 1024 * 4; i += threads) {
      const int n = i / 4;
      const uint2 codes = __ldg(reinterpret_cast<const uint2*>(grid) + n);
      *reinterpret_cast<uint4*>(table + n % 256 * 256 + n / 256 * 64 + i % 4 * 16) = {codes.x, codes.y,
                                                                                      codes.x, codes.y};
    }
  }
  __device__ static void FillSingles(uint8_t* table, const uint8_t* grid, int thread, int threads) {
    FillTable(table, grid, thread, threads);
  }
};

struct IQ2_XSTile : Decoder<quant::Type::kIQ2_XS, 8, 74, 2, false, Order::kWide, 4096> {
  struct RowScales {  // of a row
    uint2 numbers;
    uint16_t super;
    __device__ float Of(int unit) const { return NibbleScale(super, numbers, unit / 2, unit % 2); }
  };
  using RowRaw = RowScales;
  __device__ static RowScales Scales(const RowRaw& raw) { return raw; }
  struct Regs {
    uint4 point[2];  // a word a block: rows g and g + 8, each a point of nine bits and seven signs
    RowScales scale[2];
  };
  template <class M>
  __device__ static RowScales ReadRow(const uint8_t* tile, int row) {
    return {M::template Load<uint2>(tile + 1024 + row * 8),
            M::template Load<uint16_t>(tile + 1152 + row * 2)};
  }
  template <class M>
  __device__ static Regs Read(const uint8_t* tile, int lane) {
    Regs r;
    for (int i = 0; i < 2; ++i) r.point[i] = M::Stream(tile + i * 512 + lane * 16);
    for (int half = 0; half < 2; ++half) r.scale[half] = ReadRow<M>(tile, lane / 4 + 8 * half);
    return r;
  }
  __device__ static uint4 Codes(const Regs& r, int b, int, const uint8_t* table) {
    const uint32_t word = Word(r.point[b / 4], b % 4);
    return TwoPoints(Point8(table, word & 511u), Point8(table, word >> 16 & 511u),
                     EvenSigns(word >> 9 & 127u), EvenSigns(word >> 25));
  }
  __device__ static float Scale(const Regs& r, int half, int b, int unit) {
    return r.scale[half].Of(2 * b + unit);
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
  struct RowScales {  // of a row
    uint2 words;      // four half words: three bits a unit, a nibble of d each
    __device__ float Of(int unit) const {
      const uint2 s = words;
      const uint32_t d = (s.x >> 12 & 15u) | (s.x >> 28) << 4 | (s.y >> 12 & 15u) << 8 | (s.y >> 28) << 12;
      const uint32_t word = (unit < 8 ? s.x : s.y) >> (unit / 4 % 2 * 16);
      return Half(d) * 0.125f * static_cast<float>(2 * (word >> (unit % 4 * 3) & 7u) + 1);
    }
  };
  using RowRaw = RowScales;
  __device__ static RowScales Scales(const RowRaw& raw) { return raw; }
  struct Regs {
    uint4 point;
    uint4 high[2];  // a nibble a point
    RowScales scale[2];
  };
  template <class M>
  __device__ static RowScales ReadRow(const uint8_t* tile, int row) {
    return {M::template Load<uint2>(tile + 768 + row * 8)};
  }
  template <class M>
  __device__ static Regs Read(const uint8_t* tile, int lane) {
    Regs r;
    r.point = M::Stream(tile + lane * 16);
    for (int half = 0; half < 2; ++half) {
      const int row = lane / 4 + 8 * half;
      r.high[half] = M::template Load<uint4>(tile + 512 + row * 16);
      r.scale[half] = ReadRow<M>(tile, row);
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
    return r.scale[half].Of(2 * b + unit);
  }
};

}  // namespace glint::cuda
