// Loops that do nothing but what a limit is of: reading, or multiplying and adding. One table per instruction set, as for the kernels.
#pragma once
#include <cstddef>
#include <cstdint>

namespace glint::cpu {

struct LimitLoops {
  const char* name;
  // Reads all of it with the widest loads, in two streams (the hardware follows more than one, and one leaves memory idle: 31 against 36
  // GB/s a core, EPYC Zen 5, 2026-11-30). Returns something that depends on every byte. bytes: a multiple of kReadUnit; from: aligned to 64.
  uint64_t (*read)(const std::byte* from, size_t bytes);
  // Independent chains of multiply-adds, enough of them to fill the pipelines. Each returns how many multiply-adds it did.
  uint64_t (*digits)(
      uint64_t rounds);  // 16-bit integers, as the product kernels of this instruction set do them
  uint64_t (*bytes)(uint64_t rounds);   // 8-bit integers; null where there is no instruction for them
  uint64_t (*floats)(uint64_t rounds);  // fp32, fused
};

inline constexpr size_t kReadUnit = size_t{2} * 512;

const LimitLoops& ScalarLimitLoops();
#if defined(__x86_64__)
extern const LimitLoops kAvx2LimitLoops, kAvx512LimitLoops;
#elif defined(__aarch64__)
extern const LimitLoops kNeonLimitLoops;
#endif

// The widest that this machine has.
const LimitLoops& BestLimitLoops();

}  // namespace glint::cpu
