// Where a sequence's state lies: one stretch of floats on some device.
#pragma once
#include <cstdint>
#include <memory>

#include "glint/status.h"

namespace glint::plan {

// Offsets and lengths in floats; the caller keeps to [0, floats()). A call returns when its work is done, and waits for whatever
// the device was doing with the memory before.
class StateMemory {
 public:
  virtual ~StateMemory() = default;
  virtual int64_t floats() const = 0;
  virtual Status Read(int64_t at, int64_t count, float* out) const = 0;
  virtual Status Write(int64_t at, int64_t count, const float* in) = 0;
  // `from`: memory of the same device, another object.
  virtual Status CopyFrom(const StateMemory& from, int64_t from_at, int64_t at, int64_t count) = 0;
  virtual Status Zero() = 0;
  virtual Status FillNan() = 0;
  // Of the same device. Reads as zero.
  virtual Result<std::unique_ptr<StateMemory>> Another(int64_t count) const = 0;
};

}  // namespace glint::plan
