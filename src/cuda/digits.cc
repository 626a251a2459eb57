#include "cuda/digits.h"

#include <algorithm>

namespace glint::cuda {
namespace {

using plan::Slot;

constexpr int64_t kMostRows = 8;  // beyond, a launch is little beside what it rounds

// Rows that a row of the batch has in the slot, and their width.
struct Shape {
  int64_t rows, columns;
};
Shape ShapeOf(const model::HParams& hp, Slot slot) {
  const int64_t width = Width(slot, hp);
  return slot == Slot::kMoeHidden ? Shape{hp.experts_used, hp.expert_ffn} : Shape{1, width};
}

size_t IndexOf(Slot slot) {
  return static_cast<size_t>(std::find(SlotDigits::kSlots.begin(), SlotDigits::kSlots.end(), slot) -
                             SlotDigits::kSlots.begin());
}

uint64_t BytesOf(const model::HParams& hp, int64_t rows, Slot slot) {
  const Shape shape = ShapeOf(hp, slot);
  return static_cast<uint64_t>((Digits::Bytes(rows * shape.rows, shape.columns) + 255) / 256 * 256);
}

}  // namespace

Digits Digits::At(std::byte* memory, int64_t rows, int64_t columns) {
  Digits d;
  d.blocks = BlocksOf(columns);
  d.digits = reinterpret_cast<int8_t*>(memory);
  d.sums = reinterpret_cast<int32_t*>(memory + rows * d.blocks * 64);
  d.scales = reinterpret_cast<float*>(d.sums + rows * d.blocks * 2);
  return d;
}

uint64_t SlotDigits::Bytes(const model::HParams& hp, int64_t rows) {
  uint64_t bytes = 0;
  for (const Slot slot : kSlots) bytes += BytesOf(hp, rows, slot);
  return rows > kMostRows ? 0 : bytes;
}

SlotDigits::SlotDigits(const model::HParams& hp, int64_t rows, std::byte* memory) {
  if (rows > kMostRows) return;
  for (size_t i = 0; i < kSlots.size(); ++i) {
    const Shape shape = ShapeOf(hp, kSlots[i]);
    if (shape.columns == 0) continue;
    kept_[i] = {Digits::At(memory, rows * shape.rows, shape.columns), shape.columns, false};
    memory += BytesOf(hp, rows, kSlots[i]);
  }
}

Digits SlotDigits::Make(Slot slot) {
  const size_t i = IndexOf(slot);
  if (i == kSlots.size()) return {};
  kept_[i].made = kept_[i].digits.digits != nullptr;
  return kept_[i].digits;
}

const Digits* SlotDigits::Made(Slot slot, int64_t columns) const {
  const size_t i = IndexOf(slot);
  return i < kSlots.size() && kept_[i].made && kept_[i].columns == columns ? &kept_[i].digits : nullptr;
}

void SlotDigits::Forget(Slot slot) {
  const size_t i = IndexOf(slot);
  if (i < kSlots.size()) kept_[i].made = false;
}

}  // namespace glint::cuda
