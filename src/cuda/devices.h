// The GPUs of this machine, and one GPU made ready for work.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "glint/status.h"

namespace glint::cuda {

struct DeviceInfo {
  int ordinal = 0;           // as the CUDA runtime counts them
  std::string name;          // "NVIDIA H200"
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  uint64_t memory_bytes = 0;
  int shared_bytes = 0;  // shared memory that a block can ask for
  // Of a context: the major capability that the kernels running there were compiled for, which may be less than the device's. Code
  // for less has neither early launches nor clusters in it, so that the host must not count on them.
  int compiled_major = 0;
};

// Empty where there is no GPU or no driver: that is no error. kDevice: there is one and it does not answer.
Result<std::vector<DeviceInfo>> ListDevices();

// A second stream, for work of a step that goes beside that on the first, and the events that order the two.
struct Side {
  cudaStream_t stream = nullptr;
  cudaEvent_t forked = nullptr, joined = nullptr;
};

// A GPU with streams of its own. Nothing in this backend is global: whoever works on a device holds its
// context, and a process may hold several, of one device or of different ones. Threads: one caller at a time.
class Context {
 public:
  // kNotFound: no such device (says which there are).
  static Result<Context> Create(int ordinal);
  Context(Context&& other) noexcept;
  Context& operator=(Context&& other) noexcept;
  ~Context();

  const DeviceInfo& device() const { return device_; }
  cudaStream_t stream() const { return stream_; }
  const Side& side() const { return side_; }
  // Makes the device the calling thread's current one, which allocations and launches need.
  Status Enter() const;
  // Waits for all work on the streams; reports what any of it did wrong.
  Status Wait() const;

 private:
  explicit Context(DeviceInfo device) : device_(std::move(device)) {}
  DeviceInfo device_;
  cudaStream_t stream_ = nullptr;
  Side side_;
};

}  // namespace glint::cuda
