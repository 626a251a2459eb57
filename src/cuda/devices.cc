#include "cuda/devices.h"

#include <fmt/core.h>

#include <utility>

#include "cuda/probe.h"
#include "cuda/status.h"

namespace glint::cuda {

Result<std::vector<DeviceInfo>> ListDevices() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver) {
    cudaGetLastError();
    return std::vector<DeviceInfo>{};  // without a driver the runtime calls it "insufficient"
  }
  if (Status s = Check(error, "counting GPUs"); !s.ok()) return s;

  std::vector<DeviceInfo> devices;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    cudaDeviceProp p{};
    if (Status s =
            Check(cudaGetDeviceProperties(&p, ordinal), fmt::format("asking GPU {} what it is", ordinal));
        !s.ok())
      return s;
    devices.push_back({ordinal, p.name, p.major, p.minor, p.multiProcessorCount, p.totalGlobalMem,
                       static_cast<int>(p.sharedMemPerBlockOptin)});
  }
  return devices;
}

Result<Context> Context::Create(int ordinal) {
  auto devices = ListDevices();
  if (!devices.ok()) return devices.status();
  if (ordinal < 0 || static_cast<size_t>(ordinal) >= devices->size())
    return Status(Code::kNotFound, fmt::format("no GPU {}: this machine has {}", ordinal, devices->size()));
  Context context((*devices)[static_cast<size_t>(ordinal)]);
  if (Status s = context.Enter(); !s.ok()) return s;
  int compiled = 0;  // 90 for compute_90
  if (Status s = Check(CompiledFor(compiled),
                       fmt::format("asking for what GPU {}'s kernels were compiled", ordinal));
      !s.ok())
    return s;
  context.device_.compiled_major = compiled / 10;
  for (cudaStream_t* stream : {&context.stream_, &context.side_.stream}) {
    Status s = Check(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), "creating a stream");
    if (!s.ok()) return s;
  }
  for (cudaEvent_t* event : {&context.side_.forked, &context.side_.joined}) {
    Status s = Check(cudaEventCreateWithFlags(event, cudaEventDisableTiming), "making an event");
    if (!s.ok()) return s;
  }
  return context;
}

Context::Context(Context&& other) noexcept
    : device_(std::move(other.device_)),
      stream_(std::exchange(other.stream_, nullptr)),
      side_(std::exchange(other.side_, {})) {}

Context& Context::operator=(Context&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(stream_, other.stream_);
  std::swap(side_, other.side_);
  return *this;
}

Context::~Context() {
  if (side_.forked) cudaEventDestroy(side_.forked);
  if (side_.joined) cudaEventDestroy(side_.joined);
  if (side_.stream) cudaStreamDestroy(side_.stream);
  if (stream_) cudaStreamDestroy(stream_);
}

Status Context::Enter() const {
  return Check(cudaSetDevice(device_.ordinal), fmt::format("choosing GPU {}", device_.ordinal));
}

Status Context::Wait() const {
  cudaError_t error = cudaStreamSynchronize(side_.stream);
  if (error == cudaSuccess) error = cudaStreamSynchronize(stream_);
  return Check(error, fmt::format("waiting for GPU {} ({})", device_.ordinal, device_.name));
}

}  // namespace glint::cuda
