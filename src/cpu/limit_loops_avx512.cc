#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__) && \
    defined(__AVX512VNNI__)
#include <immintrin.h>

#include "cpu/limit_loops.h"

namespace glint::cpu {
namespace {

constexpr int kChains = 16;  // latency 4 or 5, two a cycle: 10 would do

uint64_t Read(const std::byte* from, size_t bytes) {
  __m512i sum[8];
  for (__m512i& s : sum) s = _mm512_setzero_si512();
  const size_t half = bytes / 2;
  for (size_t at = 0; at < half; at += 512) {
    for (size_t i = 0; i < 8; ++i) sum[i] = _mm512_xor_si512(sum[i], _mm512_load_si512(from + at + i * 64));
    for (size_t i = 0; i < 8; ++i)
      sum[i] = _mm512_xor_si512(sum[i], _mm512_load_si512(from + half + at + i * 64));
  }
  for (int i = 1; i < 8; ++i) sum[0] = _mm512_add_epi64(_mm512_slli_epi64(sum[0], 1), sum[i]);
  uint64_t lanes[8], total = 0;  // unsigned: they wrap, which _mm512_reduce_add_epi64's signed sum may not
  _mm512_storeu_si512(lanes, sum[0]);
  for (const uint64_t lane : lanes) total += lane;
  return total;
}

// What the compiler may neither foresee nor leave out.
void Hide(__m512i& v) { asm volatile("" : "+v"(v)); }
void Hide(__m512& v) { asm volatile("" : "+v"(v)); }

template <class Step>
uint64_t Integers(uint64_t rounds, uint64_t each, Step step) {
  __m512i sum[kChains], a = _mm512_set1_epi32(0x01020304), b = _mm512_set1_epi32(0x04030201);
  for (__m512i& s : sum) s = _mm512_setzero_si512();
  Hide(a), Hide(b);
  for (uint64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 16
    for (__m512i& s : sum) s = step(s, a, b);
  }
  for (__m512i& s : sum) Hide(s);
  return rounds * kChains * each;
}

uint64_t Digits(uint64_t rounds) {
  return Integers(rounds, 32, [](__m512i s, __m512i a, __m512i b) { return _mm512_dpwssd_epi32(s, a, b); });
}
uint64_t Bytes(uint64_t rounds) {
  return Integers(rounds, 64, [](__m512i s, __m512i a, __m512i b) { return _mm512_dpbusd_epi32(s, a, b); });
}

uint64_t Floats(uint64_t rounds) {
  __m512 sum[kChains], a = _mm512_set1_ps(0.5f), b = _mm512_set1_ps(1.0f);
  for (__m512& s : sum) s = _mm512_setzero_ps();
  Hide(a), Hide(b);
  for (uint64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 16
    for (__m512& s : sum) s = _mm512_fmadd_ps(s, a, b);
  }
  for (__m512& s : sum) Hide(s);
  return rounds * kChains * 16;
}

}  // namespace

const LimitLoops kAvx512LimitLoops = {"avx512", Read, Digits, Bytes, Floats};

}  // namespace glint::cpu
#endif
