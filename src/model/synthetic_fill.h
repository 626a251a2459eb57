// What the matrices of a synthetic model hold, as a recipe short enough to be carried out where the weights are wanted.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace glint::model {

// A matrix's bytes are chunks one after another (one block of an integer format, or 32 weights of a float type; the last may be
// cut short): chunk i is chunk Draw(key, i) % kChunks of its pool.
struct SyntheticFill {
  static constexpr uint64_t kChunks = 256;  // K-quants encode about a million weights a second
  struct Pool {
    std::vector<std::byte> bytes;  // [kChunks][chunk_bytes]
    size_t chunk_bytes = 0;
  };
  struct Source {
    size_t pool = 0;
    uint64_t key = 0;
  };
  std::vector<Pool> pools;
  std::unordered_map<const std::byte*, Source> matrices;  // by Matrix::data

  // Entry `counter` of a generator: SplitMix64's output function on key + (counter + 1) * 0x9E3779B97F4A7C15.
  static constexpr uint64_t Draw(uint64_t key, uint64_t counter) {
    return Mix(key + (counter + 1) * 0x9E3779B97F4A7C15);
  }
  static constexpr uint64_t Mix(uint64_t z) {
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return z ^ z >> 31;
  }

  // The bytes from `offset` on of a matrix whose contents `source` describes. Thread-safe.
  void Read(const Source& source, uint64_t offset, std::span<std::byte> out) const;
};

}  // namespace glint::model
