#if defined(__aarch64__)
#include <arm_neon.h>

#include "cpu/limit_loops.h"

namespace glint::cpu {
namespace {

constexpr int kChains = 16;  // latency 4, up to four a cycle

const uint8_t* At(const std::byte* from) { return reinterpret_cast<const uint8_t*>(from); }

uint64_t Read(const std::byte* from, size_t bytes) {
  uint8x16_t sum[8];
  for (uint8x16_t& s : sum) s = vdupq_n_u8(0);
  const size_t half = bytes / 2;
  for (size_t at = 0; at < half; at += 128) {
    for (size_t i = 0; i < 8; ++i) sum[i] = veorq_u8(sum[i], vld1q_u8(At(from + at + i * 16)));
    for (size_t i = 0; i < 8; ++i) sum[i] = veorq_u8(sum[i], vld1q_u8(At(from + half + at + i * 16)));
  }
  uint64_t total = 0;
  for (const uint8x16_t& s : sum) {
    const uint64x2_t lanes = vreinterpretq_u64_u8(s);
    total = total * 31 + vgetq_lane_u64(lanes, 0) + 7 * vgetq_lane_u64(lanes, 1);
  }
  return total;
}

// What the compiler may neither foresee nor leave out.
template <class V>
void Hide(V& v) {
  asm volatile("" : "+w"(v));
}

// Two instructions make a whole vector's products, as in the kernels.
uint64_t Digits(uint64_t rounds) {
  int32x4_t sum[kChains];
  int16x8_t a = vdupq_n_s16(3), b = vdupq_n_s16(5);
  for (int32x4_t& s : sum) s = vdupq_n_s32(0);
  Hide(a), Hide(b);
  for (uint64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 16
    for (int32x4_t& s : sum) s = vmlal_high_s16(vmlal_s16(s, vget_low_s16(a), vget_low_s16(b)), a, b);
  }
  for (int32x4_t& s : sum) Hide(s);
  return rounds * kChains * 8;
}

uint64_t Floats(uint64_t rounds) {
  float32x4_t sum[kChains], a = vdupq_n_f32(0.5f), b = vdupq_n_f32(1.0f);
  for (float32x4_t& s : sum) s = vdupq_n_f32(0);
  Hide(a), Hide(b);
  for (uint64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 16
    for (float32x4_t& s : sum) s = vfmaq_f32(b, s, a);
  }
  for (float32x4_t& s : sum) Hide(s);
  return rounds * kChains * 4;
}

}  // namespace

const LimitLoops kNeonLimitLoops = {"neon", Read, Digits, nullptr, Floats};

}  // namespace glint::cpu
#endif
