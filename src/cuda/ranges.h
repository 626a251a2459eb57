// Names on the time lines of NVIDIA's profilers (NVTX, whose headers come with the CUDA toolkit).
#pragma once
#include <string>

namespace glint::cuda {

// Whether a tool listens; asked of NVTX once. Without one, or where the toolkit was installed without NVTX, a range costs a comparison.
bool RangesAreSeen();

// From here to the end of the scope, for the calling thread: what the host does, and with it what it enqueues. A graph's replay has no
// ranges of its own; its launches were named when it was captured.
class Range {
 public:
  // `name`: makes a std::string; called only if somebody listens.
  template <class MakeName>
  explicit Range(MakeName&& name) : seen_(RangesAreSeen()) {
    if (seen_) Begin(name());
  }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
  ~Range() {
    if (seen_) End();
  }

 private:
  static void Begin(const std::string& name);
  static void End();
  const bool seen_;
};

}  // namespace glint::cuda
