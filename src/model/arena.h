// Memory that a model owns beside its mapped files: converted vectors, copied stacks, synthetic weights.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "glint/status.h"

namespace glint::model {

// Blocks that live as long as the arena; 64-byte aligned, not initialised. Not thread-safe.
class Arena {
 public:
  // kNoRoom, saying what for, if the system refuses. Zero bytes give a valid, empty span.
  Result<std::span<std::byte>> Bytes(uint64_t bytes, std::string_view what);
  Result<std::span<float>> Floats(uint64_t count, std::string_view what);
  uint64_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(std::byte* block) const;
  };
  std::vector<std::unique_ptr<std::byte, Free>> blocks_;
  uint64_t bytes_ = 0;
};

}  // namespace glint::model
