// Owned memory of a device, and pinned memory of the host.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "cuda/devices.h"

namespace glint::cuda {

// Freed with the object, on the device it is of.
class DeviceMemory {
 public:
  // kNoRoom, with what for, how much, and how much is free. Zero bytes give a valid, empty object.
  static Result<DeviceMemory> Take(const Context& context, uint64_t bytes, std::string_view what);
  DeviceMemory() = default;
  DeviceMemory(DeviceMemory&& other) noexcept { *this = std::move(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(data_, other.data_), std::swap(bytes_, other.bytes_), std::swap(device_, other.device_);
    return *this;
  }
  ~DeviceMemory();
  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
  int device_ = 0;
};

// Host memory that a device reads and writes directly.
class PinnedMemory {
 public:
  static Result<PinnedMemory> Take(uint64_t bytes, std::string_view what);
  PinnedMemory() = default;
  PinnedMemory(PinnedMemory&& other) noexcept { *this = std::move(other); }
  PinnedMemory& operator=(PinnedMemory&& other) noexcept {
    std::swap(data_, other.data_), std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~PinnedMemory();
  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace glint::cuda
