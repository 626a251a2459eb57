// NEON (AArch64): 4 weight rows at once. Every AArch64 processor has it.
#include "cpu/kernels.h"

#if defined(__aarch64__)
#include <arm_neon.h>

#include "cpu/simd_blocks.h"
#include "cpu/simd_grids.h"
#include "cpu/simd_superblocks.h"
#include "cpu/simd_table.h"

namespace glint::cpu {
namespace {

struct V {
  static constexpr int kLanes = 4, kGroup = 4;
  using Base = V;
  using I = int32x4_t;
  using F = float32x4_t;

  static inline I Set1(int32_t v) { return vdupq_n_s32(v); }
  static inline F Set1(float v) { return vdupq_n_f32(v); }
  static inline F Load(const float* at) { return vld1q_f32(at); }
  static inline void Store(float* at, F v) { vst1q_f32(at, v); }
  static inline void Store(int32_t* at, I v) { vst1q_s32(at, v); }
  static inline I AsInt(F v) { return vreinterpretq_s32_f32(v); }
  static inline F AsFloat(I v) { return vreinterpretq_f32_s32(v); }

  static inline I Add(I a, I b) { return vaddq_s32(a, b); }
  static inline I Sub(I a, I b) { return vsubq_s32(a, b); }
  static inline I Max(I a, I b) { return vmaxq_s32(a, b); }
  static inline I And(I a, I b) { return vandq_s32(a, b); }
  static inline I Or(I a, I b) { return vorrq_s32(a, b); }
  static inline I Xor(I a, I b) { return veorq_s32(a, b); }
  static inline I Shl(I v, int n) { return vshlq_s32(v, vdupq_n_s32(n)); }
  static inline I Shr(I v, int n) {
    return vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(v), vdupq_n_s32(-n)));
  }
  static inline I Sra(I v, int n) { return vshlq_s32(v, vdupq_n_s32(-n)); }
  static inline I Times(I a, I b) { return vmulq_s32(a, b); }
  static inline int32_t Sum(I v) { return vaddvq_s32(v); }
  static inline int32_t Largest(I v) { return vmaxvq_s32(v); }

  static inline F Add(F a, F b) { return vaddq_f32(a, b); }
  static inline F Sub(F a, F b) { return vsubq_f32(a, b); }
  static inline F Mul(F a, F b) { return vmulq_f32(a, b); }
  static inline F Div(F a, F b) { return vdivq_f32(a, b); }
  static inline F Fma(F a, F b, F c) { return vfmaq_f32(c, a, b); }
  static inline F Min(F a, F b) { return vminq_f32(a, b); }
  static inline F Max(F a, F b) { return vmaxq_f32(a, b); }
  static inline F ToFloat(I v) { return vcvtq_f32_s32(v); }
  static inline I Nearest(F v) { return vcvtnq_s32_f32(v); }  // ties to even
  // a < b ? yes : no
  static inline F IfLess(F a, F b, F yes, F no) { return vbslq_f32(vcltq_f32(a, b), yes, no); }
  static inline F IfNaN(F nan, F no) { return vbslq_f32(vceqq_f32(nan, nan), no, nan); }

  // Products of digits with codes as pairs of 16 bits: columns 0 and 2 of a quad, then 1 and 3.
  static constexpr DigitOrder kDigitOrder = DigitOrder::kPairs;
  static constexpr int kQuadBytes = 8;
  struct Code {
    int16x8_t even, odd;
  };
  using Products = I;
  static inline Products NoProducts() { return vdupq_n_s32(0); }
  static inline Code Split(I quad) {
    const uint16x8_t v = vreinterpretq_u16_s32(quad);
    return {vreinterpretq_s16_u16(vandq_u16(v, vdupq_n_u16(0xff))), vreinterpretq_s16_u16(vshrq_n_u16(v, 8))};
  }
  static inline Products Product(Products p, Code code, const std::byte* digits) {
    return Madd(Madd(p, code.even, Broadcast(digits)), code.odd, Broadcast(digits + 4));
  }
  static inline I Total(Products p) { return p; }
  // acc + a.low * b.low + a.high * b.high in every lane, exact
  static inline I Madd(I acc, int16x8_t a, int16x8_t b) {
    return vaddq_s32(acc, vpaddq_s32(vmull_s16(vget_low_s16(a), vget_low_s16(b)), vmull_high_s16(a, b)));
  }
  static inline int16x8_t Broadcast(const std::byte* dword) {
    int32_t v;
    std::memcpy(&v, dword, sizeof v);
    return vreinterpretq_s16_s32(vdupq_n_s32(v));
  }

  // Bytes by themselves.
  static inline I AddBytes(I a, I b) {
    return vreinterpretq_s32_s8(vaddq_s8(vreinterpretq_s8_s32(a), vreinterpretq_s8_s32(b)));
  }
  static inline I AverageBytes(I a, I b) {  // (a + b + 1) / 2
    return vreinterpretq_s32_u8(vrhaddq_u8(vreinterpretq_u8_s32(a), vreinterpretq_u8_s32(b)));
  }
  static inline I Table16(const int8_t* at) { return vreinterpretq_s32_s8(vld1q_s8(at)); }
  static inline I Lookup16(I table, I index) {  // bytes below 16
    return vreinterpretq_s32_s8(vqtbl1q_s8(vreinterpretq_s8_s32(table), vreinterpretq_u8_s32(index)));
  }
  // Byte j of a lane: all ones where bit 4 g + j of the lane is set.
  static inline uint8x16_t BitBytes(I bits, int g) {
    constexpr uint8_t kByte[16] = {0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12};
    const uint8x16_t byte = vaddq_u8(vld1q_u8(kByte), vdupq_n_u8(static_cast<uint8_t>(g / 2)));
    const uint8x16_t bit = vreinterpretq_u8_u32(vdupq_n_u32(g % 2 ? 0x80402010 : 0x08040201));
    return vtstq_u8(vqtbl1q_u8(vreinterpretq_u8_s32(bits), byte), bit);
  }
  // Byte j of a lane: value's where bit 4 g + j of `bits` is set, else 0.
  static inline I IfBits(I bits, int g, I value) {
    return vreinterpretq_s32_u8(vandq_u8(BitBytes(bits, g), vreinterpretq_u8_s32(value)));
  }
  // Byte j of a lane: bias + x, or bias - x where bit 4 g + j of `signs` is set.
  static inline I AddSigned(I bias, I x, I signs, int g) {
    const int8x16_t b = vreinterpretq_s8_s32(bias), v = vreinterpretq_s8_s32(x);
    return vreinterpretq_s32_s8(vbslq_s8(BitBytes(signs, g), vsubq_s8(b, v), vaddq_s8(b, v)));
  }
  // out[h], lane l: coordinates 4 h ... 4 h + 3 of point index[l].
  static inline void Points8(const int8_t (*grid)[8], I index, I* out) {
    int32_t n[kLanes], half[2][kLanes];
    Store(n, index);
    for (int l = 0; l < kLanes; ++l) {
      std::memcpy(&half[0][l], grid[n[l]], 4);
      std::memcpy(&half[1][l], grid[n[l]] + 4, 4);
    }
    out[0] = vld1q_s32(half[0]), out[1] = vld1q_s32(half[1]);
  }
  // The same of four coordinates.
  static inline I Points4(const int8_t (*grid)[4], I index) {
    int32_t n[kLanes], point[kLanes];
    Store(n, index);
    for (int l = 0; l < kLanes; ++l) std::memcpy(&point[l], grid[n[l]], 4);
    return vld1q_s32(point);
  }

  // The digits of a block from their values, column by column.
  static inline void PutDigits(const I* n, int16_t* out) {
    constexpr uint8_t kOrder[16] = {0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15};
    for (int i = 0; i < 4; ++i) {
      const int16x8_t packed = vcombine_s16(vmovn_s32(n[2 * i]), vmovn_s32(n[2 * i + 1]));
      vst1q_s16(out + 8 * i,
                vreinterpretq_s16_u8(vqtbl1q_u8(vreinterpretq_u8_s16(packed), vld1q_u8(kOrder))));
    }
  }

  static inline F Halfs(const uint16_t* at) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(at))); }
  static inline F LowHalfs(I v) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vmovn_u32(vreinterpretq_u32_s32(v))));
  }

  static inline I Load16(const std::byte* at) {
    return vreinterpretq_s32_u8(vld1q_u8(reinterpret_cast<const uint8_t*>(at)));
  }

  // v[i] holds four dwords of row i; becomes dword i of the four rows.
  static inline void Transpose4(I* v) {
    const int64x2_t a = vreinterpretq_s64_s32(vtrn1q_s32(v[0], v[1])),
                    b = vreinterpretq_s64_s32(vtrn2q_s32(v[0], v[1]));
    const int64x2_t c = vreinterpretq_s64_s32(vtrn1q_s32(v[2], v[3])),
                    d = vreinterpretq_s64_s32(vtrn2q_s32(v[2], v[3]));
    v[0] = vreinterpretq_s32_s64(vtrn1q_s64(a, c)), v[1] = vreinterpretq_s32_s64(vtrn1q_s64(b, d));
    v[2] = vreinterpretq_s32_s64(vtrn2q_s64(a, c)), v[3] = vreinterpretq_s32_s64(vtrn2q_s64(b, d));
  }

  // out[g], lane l: dword g of the 16 bytes at row[l] + at.
  static inline void Dwords4(const std::byte* const* row, size_t at, I* out) {
    for (int i = 0; i < 4; ++i) out[i] = Load16(row[i] + at);
    Transpose4(out);
  }

  // out[g], lane l: dword g of the 32 bytes at row[l] + at.
  static inline void Quads8(const std::byte* const* row, size_t at, I* out) {
    for (int i = 0; i < 4; ++i) out[i] = Load16(row[i] + at), out[4 + i] = Load16(row[i] + at + 16);
    Transpose4(out);
    Transpose4(out + 4);
  }
};

struct S {
  static constexpr int kGroup = 2, kWeightRows = 2, kDecodeRows = 2;
  float32x4_t v[4];

  static inline S Zero() {
    const float32x4_t zero = vdupq_n_f32(0);
    return {{zero, zero, zero, zero}};
  }
  static inline S LoadF32(const std::byte* at) {
    const auto* const b = reinterpret_cast<const uint8_t*>(at);  // any alignment
    return {{vreinterpretq_f32_u8(vld1q_u8(b)), vreinterpretq_f32_u8(vld1q_u8(b + 16)),
             vreinterpretq_f32_u8(vld1q_u8(b + 32)), vreinterpretq_f32_u8(vld1q_u8(b + 48))}};
  }
  static inline S LoadF16(const std::byte* at) {
    const auto* const b = reinterpret_cast<const uint8_t*>(at);
    const float16x8_t low = vreinterpretq_f16_u8(vld1q_u8(b)), high = vreinterpretq_f16_u8(vld1q_u8(b + 16));
    return {{vcvt_f32_f16(vget_low_f16(low)), vcvt_high_f32_f16(low), vcvt_f32_f16(vget_low_f16(high)),
             vcvt_high_f32_f16(high)}};
  }
  static inline S LoadBF16(const std::byte* at) {
    const auto* const b = reinterpret_cast<const uint8_t*>(at);
    const uint16x8_t low = vreinterpretq_u16_u8(vld1q_u8(b)), high = vreinterpretq_u16_u8(vld1q_u8(b + 16));
    return {{vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(low), 16)),
             vreinterpretq_f32_u32(vshll_high_n_u16(low, 16)),
             vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(high), 16)),
             vreinterpretq_f32_u32(vshll_high_n_u16(high, 16))}};
  }
  inline void Store(float* at) const {
    for (int i = 0; i < 4; ++i) vst1q_f32(at + 4 * i, v[i]);
  }
  static inline S Fma(S a, S b, S c) {
    for (int i = 0; i < 4; ++i) c.v[i] = vfmaq_f32(c.v[i], a.v[i], b.v[i]);
    return c;
  }

  // The tree of Dot16.
  inline float Sum() const {
    const float32x4_t four = vaddq_f32(vaddq_f32(v[0], v[2]), vaddq_f32(v[1], v[3]));
    const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
  }
};

bool AllRows(const RowsArgs& a) {
  return BlockRows<V>(a) || SuperblockRows<V>(a) || GridRows<V, LoadedPoints<V>>(a);
}

constinit const Kernels kNeonTable = MakeKernels<V, S, AllRows>("neon");

}  // namespace

const Kernels* NeonKernels() { return &kNeonTable; }

}  // namespace glint::cpu
#else
namespace glint::cpu {
const Kernels* NeonKernels() { return nullptr; }
}  // namespace glint::cpu
#endif
