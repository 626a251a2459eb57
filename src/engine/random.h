// The sampler's generator: counter-based, so that draw n of a seed needs no history (docs/sampling.md).
#pragma once
#include <cstdint>

namespace glint::engine {

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014, with Stafford's 13th constants): a bijection of
// 64-bit numbers whose output bits each depend on all input bits.
constexpr uint64_t Mix64(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// Draw `n` (from 0) of `seed`, uniform over 64 bits. The seed is mixed first: neighbouring seeds, and seeds a
// multiple of the step apart, would otherwise give shifted copies of one sequence.
constexpr uint64_t Draw64(uint64_t seed, uint64_t n) {
  constexpr uint64_t kStep = 0x9e3779b97f4a7c15u;
  return Mix64(Mix64(seed + kStep) + (n + 1) * kStep);
}

}  // namespace glint::engine
