// One line on stderr that says how far long work is.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "base/progress.h"

namespace glint::cli {

// kPart: of work in no unit that means something to people; only the share is shown.
enum class Unit : unsigned char { kBytes, kTokens, kPart };

// Shows nothing for work that is done within two seconds, and nothing at all if stderr is no terminal. The line erases itself
// when the bar is finished or destroyed. Threads: one at a time.
class ProgressBar {
 public:
  ProgressBar(std::string label, Unit unit);
  // For tests: seconds since some start, a sink for what would be drawn, and the width of the "terminal" (0: none).
  ProgressBar(std::string label, Unit unit, std::function<double()> clock,
              std::function<void(std::string_view)> draw, int columns);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void Update(uint64_t done, uint64_t total);
  // A few words that follow the numbers: a running value.
  void SetNote(std::string note) { note_ = std::move(note); }
  void Finish();

  // For the functions that report progress: updates this bar, and asks the work to stop once Interrupted().
  // The bar must outlive it.
  Progress Callback();

 private:
  std::string Line(uint64_t done, uint64_t total, double elapsed) const;

  std::string label_, note_;
  Unit unit_;
  std::function<double()> clock_;
  std::function<void(std::string_view)> draw_;
  int columns_;
  double start_, last_drawn_ = -1;
  bool visible_ = false;
};

}  // namespace glint::cli
