#include "cli/progress_bar.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/terminal.h"
#include "cli/units.h"

namespace glint::cli {
namespace {

constexpr double kShowAfter = 0.5;     // seconds before an estimate is worth anything
constexpr double kWorthShowing = 2.0;  // work shorter than this shows no bar
constexpr double kBetween = 0.1;       // seconds from one drawing to the next

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

ProgressBar::ProgressBar(std::string label, Unit unit)
    : ProgressBar(std::move(label), unit, Now, PrintError,
                  TakesEscapes(STDERR_FILENO) ? Columns(STDERR_FILENO) : 0) {}

ProgressBar::ProgressBar(std::string label, Unit unit, std::function<double()> clock,
                         std::function<void(std::string_view)> draw, int columns)
    : label_(std::move(label)),
      unit_(unit),
      clock_(std::move(clock)),
      draw_(std::move(draw)),
      columns_(columns),
      start_(clock_()) {}

ProgressBar::~ProgressBar() { Finish(); }

void ProgressBar::Update(uint64_t done, uint64_t total) {
  if (columns_ == 0 || total == 0) return;
  done = std::min(done, total);
  const double elapsed = clock_() - start_;
  if (!visible_) {
    const double whole =
        done ? elapsed * static_cast<double>(total) / static_cast<double>(done) : kWorthShowing;
    if (elapsed < kShowAfter || (elapsed < kWorthShowing && whole < kWorthShowing)) return;
  } else if (elapsed - last_drawn_ < kBetween) {
    return;
  }
  visible_ = true;
  last_drawn_ = elapsed;
  draw_("\r" + Line(done, total, elapsed) + "\x1b[K");
}

void ProgressBar::Finish() {
  if (visible_) draw_("\r\x1b[K");
  visible_ = false;
  columns_ = 0;
}

Progress ProgressBar::Callback() {
  return [this](uint64_t done, uint64_t total) {
    Update(done, total);
    return !Interrupted();
  };
}

// "loading [#####.....]  45%  8.1 / 18.0 GB  12 s left"; what does not fit the width is left out from the right.
std::string ProgressBar::Line(uint64_t done, uint64_t total, double elapsed) const {
  const double part = static_cast<double>(done) / static_cast<double>(total);
  std::string tail = fmt::format(" {:3.0f} %", 100 * part);
  if (unit_ == Unit::kBytes) tail += fmt::format("  {} of {}", Bytes(done), Bytes(total));
  if (unit_ == Unit::kTokens) tail += fmt::format("  {} of {} tokens", Grouped(done), Grouped(total));
  if (done > 0) tail += fmt::format("  {} left", Duration(elapsed / part - elapsed));
  if (!note_.empty()) tail += "  " + note_;

  const auto width =
      static_cast<size_t>(std::max(columns_ - 1, 1));  // the last column makes some terminals wrap
  std::string line = label_;
  if (label_.size() + tail.size() + 8 <= width) {
    const size_t cells = std::min<size_t>(width - label_.size() - tail.size() - 3, 30);
    const auto full = static_cast<size_t>(part * static_cast<double>(cells));
    line += " [" + std::string(full, '#') + std::string(cells - full, '.') + "]";
  }
  line += tail;
  return line.substr(0, width);
}

}  // namespace glint::cli
