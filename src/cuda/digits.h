// Activations rounded to digits (docs/design.md, "Integer block products") in device memory, and which slots of a pass have theirs.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "model/glm_flash/hparams.h"
#include "plan/plan.h"

namespace glint::cuda {

struct Digits {
  int8_t* digits = nullptr;  // [rows][blocks][2][32]: high bytes, then low ones
  float* scales = nullptr;   // [rows][blocks]
  int32_t* sums = nullptr;   // [rows][blocks][2]: digits of each 16 columns
  int64_t blocks = 0;        // of 32 columns, of a row, rounded up to 8

  static int64_t BlocksOf(int64_t columns) { return (columns + 255) / 256 * 8; }
  static int64_t Bytes(int64_t rows, int64_t columns) { return rows * BlocksOf(columns) * (64 + 4 + 8); }
  // Bytes(rows, columns) at a multiple of 8 bytes.
  static Digits At(std::byte* memory, int64_t rows, int64_t columns);
};

// Digits of slots that the kernels writing them round on the way, so that the products reading them need no launch for it. Belongs to
// one pass over one set of buffers, for batches of few rows. A slot's digits count from Make until the slot is written again: whoever
// writes slots (steps, and callers between steps) says Forget before. Host bookkeeping alone; the memory is the owner's.
class SlotDigits {
 public:
  static uint64_t Bytes(const model::HParams& hp, int64_t rows);
  // `memory`: Bytes(hp, rows) of device memory for batches of at most `rows` rows.
  SlotDigits(const model::HParams& hp, int64_t rows, std::byte* memory);
  // For the present step, which is about to enqueue a kernel that writes the slot and these. No digits: the slot's are not kept.
  Digits Make(plan::Slot slot);
  // Null: there are none, or they are of rows of another width.
  const Digits* Made(plan::Slot slot, int64_t columns) const;
  void Forget(plan::Slot slot);

  static constexpr std::array kSlots = {
      plan::Slot::kX,         plan::Slot::kMixedNormed,  plan::Slot::kFfnHidden,
      plan::Slot::kMoeHidden, plan::Slot::kSharedHidden, plan::Slot::kFinal};

 private:
  struct Kept {
    Digits digits;
    int64_t columns = 0;
    bool made = false;
  };
  std::array<Kept, kSlots.size()> kept_;
};

}  // namespace glint::cuda
