// How much of a waiting prompt may go into a pass while others decode.
#pragma once
#include <algorithm>
#include <cstdint>

namespace glint::serve {

// Learns from the passes that ran how many rows keep one below a bound. The bound is a target: a pass may miss it when the machine slows
// down or a prompt's later rows cost more than its first, and the next is shorter. Never below one block of the grid, so that
// prompts always move.
class Pace {
 public:
  // Multiples of `block` from it to `most`.
  Pace(double bound_seconds, int64_t block, int64_t most)
      : bound_(bound_seconds), block_(block), most_(std::max(most / block, int64_t{1}) * block) {
    rows_ = std::min(4 * block_, most_);
  }
  int64_t rows() const { return rows_; }
  // A pass of `rows` rows, decodes and prompts together.
  void Saw(int64_t rows, double seconds) {
    constexpr double kMargin = 0.8;
    if (!(seconds > 0) || rows < 1) return;
    const double fitting = kMargin * bound_ / seconds * static_cast<double>(rows);
    const double now = static_cast<double>(rows_);
    if (seconds > kMargin * bound_) {
      Set(std::min(now, fitting));
    } else if (rows >= rows_) {  // a short pass says nothing of longer ones
      Set(std::min(2 * now, fitting));
    }
  }

 private:
  void Set(double rows) {
    const double within = std::clamp(rows, static_cast<double>(block_), static_cast<double>(most_));
    rows_ = static_cast<int64_t>(within) / block_ * block_;
  }
  double bound_;
  int64_t block_, most_, rows_ = 0;
};

}  // namespace glint::serve
