#include "cuda/memory.h"

#include <fmt/core.h>

#include "base/memory.h"
#include "cuda/status.h"

namespace glint::cuda {

Result<DeviceMemory> DeviceMemory::Take(const Context& context, uint64_t bytes, std::string_view what) {
  DeviceMemory memory;
  if (bytes == 0) return memory;
  if (Status status = context.Enter(); !status.ok()) return status;
  size_t free = 0, total = 0;
  if (Status status = Check(cudaMemGetInfo(&free, &total), "asking for free device memory"); !status.ok())
    return status;
  void* data = nullptr;
  const cudaError_t error = Seen(cudaMalloc(&data, bytes));
  if (error != cudaSuccess) cudaFree(data);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return Status(Code::kNoRoom, fmt::format("{} needs {} of GPU {} ({}), which has {} of {} free", what,
                                             FormatBytes(bytes), context.device().ordinal,
                                             context.device().name, FormatBytes(free), FormatBytes(total)));
  }
  if (error != cudaSuccess) return Failed(error, fmt::format("taking device memory for {}", what));
  memory.data_ = static_cast<std::byte*>(data);
  memory.bytes_ = bytes;
  memory.device_ = context.device().ordinal;
  return memory;
}

DeviceMemory::~DeviceMemory() {
  if (data_ == nullptr) return;
  int current = 0;
  cudaGetDevice(&current);
  cudaSetDevice(device_);
  cudaFree(data_);
  cudaSetDevice(current);
}

Result<PinnedMemory> PinnedMemory::Take(uint64_t bytes, std::string_view what) {
  PinnedMemory memory;
  if (bytes == 0) return memory;
  void* data = nullptr;
  Status status = Check(cudaHostAlloc(&data, bytes, cudaHostAllocPortable),
                        fmt::format("taking {} of pinned host memory for {}", FormatBytes(bytes), what));
  if (!status.ok()) {
    if (data != nullptr) cudaFreeHost(data);
    return status;
  }
  memory.data_ = static_cast<std::byte*>(data);
  memory.bytes_ = bytes;
  return memory;
}

PinnedMemory::~PinnedMemory() {
  if (data_ != nullptr) cudaFreeHost(data_);
}

}  // namespace glint::cuda
