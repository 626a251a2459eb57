// Addresses without memory behind them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>

#include "glint/status.h"

namespace glint {

// A range of this process's addresses that nothing else gets and that faults when it is touched: names for data that lies
// elsewhere, each as unlike the others as if it were here. Takes no memory, whatever its size.
class AddressRange {
 public:
  // kNoRoom if the system grants no such range (RLIMIT_AS, or more than there are addresses). Zero bytes: an empty range.
  static Result<AddressRange> Reserve(uint64_t bytes);
  AddressRange(AddressRange&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  AddressRange& operator=(AddressRange&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~AddressRange();

  const std::byte* data() const { return data_; }
  uint64_t size() const { return size_; }

 private:
  AddressRange() = default;
  const std::byte* data_ = nullptr;
  uint64_t size_ = 0;
};

}  // namespace glint
