#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>

#include "cpu/limit_loops.h"

namespace glint::cpu {
namespace {

constexpr int kChains = 12;  // of 16 registers; latency 4 or 5, two a cycle

const __m256i* At(const std::byte* from) { return reinterpret_cast<const __m256i*>(from); }

uint64_t Read(const std::byte* from, size_t bytes) {
  __m256i sum[8];
  for (__m256i& s : sum) s = _mm256_setzero_si256();
  const size_t half = bytes / 2;
  for (size_t at = 0; at < half; at += 256) {
    for (size_t i = 0; i < 8; ++i)
      sum[i] = _mm256_xor_si256(sum[i], _mm256_load_si256(At(from + at + i * 32)));
    for (size_t i = 0; i < 8; ++i)
      sum[i] = _mm256_xor_si256(sum[i], _mm256_load_si256(At(from + half + at + i * 32)));
  }
  for (int i = 1; i < 8; ++i) sum[0] = _mm256_add_epi64(_mm256_slli_epi64(sum[0], 1), sum[i]);
  alignas(32) uint64_t lane[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lane), sum[0]);
  return lane[0] + lane[1] + lane[2] + lane[3];
}

// What the compiler may neither foresee nor leave out.
void Hide(__m256i& v) { asm volatile("" : "+x"(v)); }
void Hide(__m256& v) { asm volatile("" : "+x"(v)); }

uint64_t Digits(uint64_t rounds) {
  __m256i sum[kChains], a = _mm256_set1_epi32(0x00020004), b = _mm256_set1_epi32(0x00030001);
  for (__m256i& s : sum) s = _mm256_setzero_si256();
  Hide(b);
  for (uint64_t r = 0; r < rounds; ++r) {
    Hide(a);  // else the product is taken out of the loop
#pragma GCC unroll 16
    for (__m256i& s : sum) {
      __m256i digit = a;
      Hide(digit);
      s = _mm256_add_epi32(s, _mm256_madd_epi16(digit, b));
    }
  }
  for (__m256i& s : sum) Hide(s);
  return rounds * kChains * 16;
}

uint64_t Floats(uint64_t rounds) {
  __m256 sum[kChains], a = _mm256_set1_ps(0.5f), b = _mm256_set1_ps(1.0f);
  for (__m256& s : sum) s = _mm256_setzero_ps();
  Hide(a), Hide(b);
  for (uint64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 16
    for (__m256& s : sum) s = _mm256_fmadd_ps(s, a, b);
  }
  for (__m256& s : sum) Hide(s);
  return rounds * kChains * 8;
}

}  // namespace

const LimitLoops kAvx2LimitLoops = {"avx2", Read, Digits, nullptr, Floats};

}  // namespace glint::cpu
#endif
