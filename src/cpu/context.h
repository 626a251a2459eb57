// What a stage gets to work with, and the few helpers that all stages share.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/mutation.h"
#include "cpu/product.h"
#include "cpu/state.h"
#include "plan/backend.h"

namespace glint::cpu {

// Multiply-adds below which work is not worth handing to other threads: a few microseconds.
inline constexpr int64_t kWorthSharing = 1 << 17;

// Memory that a stage may use while it runs; kept between steps so that nothing is allocated in the long run.
class Scratch {
 public:
  static constexpr size_t kAreas = 6;
  // Floats of area `i`, not initialised (poisoned with NaN where the backend was made so). Valid until the
  // area is asked for again.
  float* Floats(size_t i, int64_t n);
  std::vector<uint64_t>& Keys() { return keys_; }
  Activations& Prepared(size_t i) { return prepared_[i]; }
  void set_poison(bool poison) { poison_ = poison; }

 private:
  std::array<std::vector<float>, kAreas> areas_;
  std::array<Activations, 6> prepared_;
  std::vector<uint64_t> keys_;
  bool poison_ = false;
};

// Rows of the batch that continue one sequence.
struct SegmentView {
  SequenceState* state;
  int64_t position;  // of its first row
  int64_t first_row, rows;
};

struct StepContext {
  const model::HParams& hp;
  const model::Weights& weights;
  const plan::Step& step;
  plan::Pass pass;
  const model::Layer* layer;  // null outside layers
  const plan::Batch& batch;
  std::span<const SegmentView> segments;
  int64_t rows;
  How how;
  std::span<const plan::BufferLayout::Place> places;
  std::byte* buffers;
  Scratch& scratch;                       // of the whole step, used outside Parallel
  std::span<Scratch> per_worker;          // used inside Parallel; never the same object as `scratch`
  int64_t worth_sharing = kWorthSharing;  // tests share everything

  // Whether the plan has the slot: those it hands out only when asked to look inside.
  bool Keeps(plan::Slot slot) const { return places[static_cast<size_t>(slot)].bytes > 0; }
  float* Floats(plan::Slot slot) const {
    return reinterpret_cast<float*>(buffers + places[static_cast<size_t>(slot)].offset);
  }
  int32_t* Ints(plan::Slot slot) const {
    return reinterpret_cast<int32_t*>(buffers + places[static_cast<size_t>(slot)].offset);
  }
  int layer_index() const { return step.layer; }

  // fn(begin, end, scratch of the worker) over disjoint ranges that cover [0, n): on the pool if the step may
  // use it.
  template <class F>
  void Parallel(int64_t n, int64_t grain, F&& fn) const {
    if (n <= 0) return;
    if (how.pool == nullptr || how.pool->threads() == 1 || n <= grain) {
      fn(int64_t{0}, n, per_worker[0]);
      return;
    }
    how.pool->ParallelFor(static_cast<size_t>(Mutated(Mutation::kThreadsLeaveAPiece) ? n - 1 : n),
                          static_cast<size_t>(grain), [&](size_t begin, size_t end, int worker) {
                            fn(static_cast<int64_t>(begin), static_cast<int64_t>(end), per_worker[worker]);
                          });
  }
  // Items of `work` multiply-adds each that are worth a thread, rounded up to a multiple of `unit`.
  int64_t Grain(int64_t work, int64_t unit) const {
    const int64_t items = worth_sharing / 2 / (work > 0 ? work : 1) + 1;
    return (items + unit - 1) / unit * unit;
  }

  // What n such items are cut by: as finely as `unit` where every thread gets enough of them, so that parts are equal.
  int64_t Share(int64_t n, int64_t work, int64_t unit) const {
    const int64_t least = Grain(work, unit), threads = how.pool == nullptr ? 1 : how.pool->threads();
    return n / threads >= least ? unit : least;
  }

  // The way of computing of products of so many multiply-adds: in this thread where they are not worth handing out.
  How Sharing(int64_t work) const { return work < worth_sharing ? Alone() : how; }
  // The same way of computing within one thread.
  How Alone() const { return {how.kernels, nullptr, how.batched, how.one_digit}; }
};

// Rows of activations that several matrices are applied to: made ready once for each kind of weights.
class Operand {
 public:
  // x: rows x_stride floats apart. Takes two prepared activations of the scratch, from `first` on.
  Operand(const StepContext& c, const How& how, const float* x, int64_t x_stride, int64_t rows,
          Scratch& scratch, size_t first = 0)
      : how_(how),
        worth_sharing_(c.worth_sharing),
        x_(x),
        x_stride_(x_stride),
        rows_(rows),
        scratch_(scratch),
        first_(first) {}
  const Activations& For(const model::Matrix& w);
  // What a product of slice 0 with these rows takes.
  ProductOf By(const model::Matrix& w, float* y, int64_t y_stride) { return {&w, &For(w), y, y_stride}; }
  // y[r][o] = W[slice][o] . x[r]
  void Times(const model::Matrix& w, int64_t slice, float* y, int64_t y_stride) {
    How how = how_;
    // Multiply-adds where there are many rows, bytes of weights where there are few.
    const auto bytes = static_cast<int64_t>(w.row_bytes) * w.rows;
    if (std::max(w.rows * w.columns * rows_, bytes) < worth_sharing_) how.pool = nullptr;
    Product(how, w, slice, For(w), y, y_stride);
  }

 private:
  How how_;
  int64_t worth_sharing_;
  const float* x_;
  int64_t x_stride_, rows_;
  Scratch& scratch_;
  size_t first_;
  std::array<bool, 2> ready_{};
};

// y[i] = (x[i] * r) * w[i] with r = 1 / sqrt(Dot16(x, x) / n + eps). In place is allowed.
void RmsNorm(const Kernels& kernels, const float* x, model::Vector w, float eps, float* y);
// The norm before a sublayer: collapsed (MTP: residual) -> x, row by row.
void SublayerNorm(const StepContext& c, model::Vector w);
// 1 / sqrt(Dot16(x, x) / n + eps)
float InverseRms(const Kernels& kernels, const float* x, int64_t n, float eps);
// Decodes row `row` of slice 0.
void DecodeRow(const model::Matrix& w, int64_t row, float* out);

// Orders scores so that a larger key is a better candidate: higher score first, ties to the lower index, NaN
// last.
uint64_t RankKey(float score, uint32_t index);
inline uint32_t RankedIndex(uint64_t key) {
  return Mutated(Mutation::kTieToTheHigher) ? static_cast<uint32_t>(key) : ~static_cast<uint32_t>(key);
}

}  // namespace glint::cpu
