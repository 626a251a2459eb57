#include "engine/gpu.h"

#include <fmt/core.h>

#include <charconv>

#ifdef GLINT_WITH_CUDA
#include "cuda/backend.h"
#include "cuda/devices.h"
#endif

namespace glint::engine {
namespace {

constexpr std::string_view kCuda = "cuda";

Status Unknown(std::string_view device) {
  return {Code::kBadInput, fmt::format("unknown device '{}'; there are: auto, cpu, cuda, cuda:N", device)};
}

// "cuda" is 0, "cuda:3" is 3.
Result<int> OrdinalOf(std::string_view device) {
  if (device == kCuda) return 0;
  int ordinal = 0;
  const std::string_view number = device.substr(std::min(device.size(), kCuda.size() + 1));
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), ordinal);
  const bool whole = error == std::errc() && end == number.data() + number.size() && ordinal >= 0;
  if (!device.starts_with(std::string(kCuda) + ":") || !whole) return Unknown(device);
  return ordinal;
}

}  // namespace

Status CheckDevice(std::string_view device) {
  if (device == "cpu" || device == "auto") return {};
  return OrdinalOf(device).status();
}

#ifdef GLINT_WITH_CUDA

Result<std::optional<int>> ChooseGpu(std::string_view device, std::vector<std::string>& notes) {
  if (device == "cpu") return std::optional<int>();
  auto devices = cuda::ListDevices();
  if (device == "auto") {
    if (!devices.ok())
      notes.push_back(
          fmt::format("it runs on the CPU: a GPU does not answer ({})", devices.status().message()));
    if (!devices.ok() || devices->empty()) return std::optional<int>();
    return std::optional<int>(0);
  }
  auto ordinal = OrdinalOf(device);
  if (!ordinal.ok()) return ordinal.status();
  if (!devices.ok()) return devices.status();
  if (static_cast<size_t>(*ordinal) >= devices->size()) {
    std::string there;
    for (const cuda::DeviceInfo& d : *devices) there += fmt::format(" cuda:{} ({})", d.ordinal, d.name);
    return Status(Code::kNotFound, fmt::format("there is no GPU {}{}", *ordinal,
                                               there.empty() ? ": this machine has none that answers"
                                                             : "; there are" + there));
  }
  return std::optional<int>(*ordinal);
}

Result<std::unique_ptr<plan::Backend>> MakeGpuBackend(const model::ModelData& model, int gpu,
                                                      const Progress& progress) {
  return cuda::MakeBackend(model, gpu, progress);
}
Result<std::unique_ptr<plan::Backend>> ShareGpuBackend(const model::ModelData& model,
                                                       const plan::Backend& other) {
  return cuda::ShareBackend(model, other);
}
std::span<const plan::Lever> GpuLevers() { return cuda::Levers(); }

#else

Result<std::optional<int>> ChooseGpu(std::string_view device, std::vector<std::string>&) {
  if (device == "cpu" || device == "auto") return std::optional<int>();
  if (auto ordinal = OrdinalOf(device); !ordinal.ok()) return ordinal.status();
  return Status(
      Code::kNotFound,
      fmt::format("device '{}': this glint was built without CUDA (build it with the preset 'cuda')",
                  device));
}

Result<std::unique_ptr<plan::Backend>> MakeGpuBackend(const model::ModelData&, int, const Progress&) {
  return Status(Code::kInternal, "built without CUDA");
}
Result<std::unique_ptr<plan::Backend>> ShareGpuBackend(const model::ModelData&, const plan::Backend&) {
  return Status(Code::kInternal, "built without CUDA");
}
std::span<const plan::Lever> GpuLevers() { return {}; }

#endif

}  // namespace glint::engine
