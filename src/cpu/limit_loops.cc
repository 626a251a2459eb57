#include "cpu/limit_loops.h"

#include <cmath>
#include <cstring>

#include "cpu/kernels.h"

namespace glint::cpu {
namespace {

constexpr int kChains = 8;

// Keeps the compiler from knowing the value: it would otherwise do a loop's sum in one multiplication.
template <class T>
void Hide(T& value) {
  asm volatile("" : "+m"(value));
}

uint64_t Read(const std::byte* from, size_t bytes) {
  uint64_t sum[kChains] = {};
  const size_t half = bytes / 2;
  for (size_t at = 0; at < half; at += 32) {
    uint64_t a[4], b[4];
    std::memcpy(a, from + at, sizeof a);
    std::memcpy(b, from + half + at, sizeof b);
    for (int i = 0; i < 4; ++i) sum[i] ^= a[i], sum[4 + i] ^= b[i];
  }
  for (int i = 1; i < kChains; ++i) sum[0] = sum[0] * 31 + sum[i];
  return sum[0];
}

template <class T, class Step>
uint64_t Chains(uint64_t rounds, T a, T b, Step step) {
  T sum[kChains] = {};
  Hide(a), Hide(b);
  for (uint64_t r = 0; r < rounds; ++r)
    for (T& s : sum) s = step(a, b, s);
  for (T& s : sum) Hide(s);
  return rounds * kChains;
}

// Unsigned: the sums may wrap.
uint64_t Digits(uint64_t rounds) {
  return Chains<uint32_t>(rounds, 3, 5, [](uint32_t a, uint32_t b, uint32_t s) {
    asm volatile("" : "+r"(a));
    return s + a * b;
  });
}
uint64_t Floats(uint64_t rounds) {
  return Chains<float>(rounds, 0.5f, 1.0f, [](float a, float b, float s) { return std::fma(s, a, b); });
}

}  // namespace

const LimitLoops& ScalarLimitLoops() {
  static constexpr LimitLoops kLoops = {"scalar", Read, Digits, nullptr, Floats};
  return kLoops;
}

const LimitLoops& BestLimitLoops() {
#if defined(__x86_64__) && !defined(GLINT_NO_SIMD)
  if (Avx512Kernels() != nullptr) return kAvx512LimitLoops;
  if (Avx2Kernels() != nullptr) return kAvx2LimitLoops;
#elif defined(__aarch64__)
  if (NeonKernels() != nullptr) return kNeonLimitLoops;
#endif
  return ScalarLimitLoops();
}

}  // namespace glint::cpu
