// How long work reports how far it is; the command line draws it as a bar.
#pragma once
#include <cstdint>
#include <functional>

namespace glint {

// Called now and then with 0 <= done <= total (same unit, bytes or tokens); returning false asks the work to stop,
// which it then does with Code::kBadInput "interrupted" and nothing half-written left behind. May be empty.
using Progress = std::function<bool(uint64_t done, uint64_t total)>;

}  // namespace glint
