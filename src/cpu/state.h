// The state of sequences in host memory (plan/grid_sequence.h), as the CPU's stages see it.
#pragma once
#include <cstdint>
#include <memory>
#include <utility>

#include "plan/grid_sequence.h"

namespace glint::cpu {

// Zeroed pages from the system that cost nothing until they are touched.
class Pages {
 public:
  // kNoRoom; `purpose` ends the message.
  static Result<Pages> Reserve(uint64_t bytes, const char* purpose = "the state of a sequence");
  // All of it will be used soon: asks the system for large pages, since rows of activations lie many small pages apart.
  static Result<Pages> ReserveLarge(uint64_t bytes, const char* purpose = "the buffers of a pass");
  Pages() = default;
  Pages(Pages&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Pages& operator=(Pages&& other) noexcept {
    std::swap(data_, other.data_), std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Pages();
  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  void Zero();  // gives the memory back; it reads as zero

 private:
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
};

// What a KDA layer keeps. Rows of the unfinished block lie at their offset in the block; conv rows at their
// position modulo conv_ring.
struct KdaState {
  float* s;      // [heads][K key][K value] at the start of the current block
  float* kf;     // [block][heads * K] k * exp(-G)
  float* delta;  // [block][heads * K]
  float* g;      // [block][heads * K] cumulated log-decay
  float* conv;   // [conv_ring][3][heads * K] inputs of the convolution
};

// What a DSA layer keeps. Raw rows lie at their position modulo raw_ring.
struct DsaState {
  float* latent;    // [capacity][kv_lora]
  float* pooled;    // [capacity / kpool][index_head_dim]
  float* raw_key;   // [raw_ring][index_head_dim]
  float* raw_gate;  // [raw_ring][index_head_dim]
};

// A sequence whose state lies in host memory.
class SequenceState final : public plan::GridSequence {
 public:
  // poison: memory that holds nothing of the sequence is NaN at any time between passes. For tests; slow.
  static Result<std::unique_ptr<SequenceState>> Create(const plan::StateLayout& layout, bool poison = false);
  KdaState Kda(int layer);
  DsaState Dsa(int layer);  // layer == layers: the MTP block

 private:
  SequenceState(const plan::StateLayout& layout, std::unique_ptr<plan::StateMemory> memory, bool poison);
  std::unique_ptr<plan::GridSequence> Over(std::unique_ptr<plan::StateMemory> memory) const override;
  float* At(const plan::StateLayout::Part& part);
};

}  // namespace glint::cpu
