#include "cli/limits_report.h"

#include <fmt/core.h>

#include <string_view>

#include "cli/units.h"

namespace glint::cli {
namespace {

void WriteRate(JsonWriter& json, std::string_view key, const plan::Rate& rate) {
  json.Key(key).BeginObject().Member("best", rate.best).Member("median", rate.median).EndObject();
}
void WriteCost(JsonWriter& json, std::string_view key, const plan::Cost& cost) {
  json.Key(key).BeginObject().Member("best", cost.best).Member("median", cost.median).EndObject();
}

}  // namespace

std::string HostLimitsText(const plan::Limits& limits) {
  if (!limits.host) return "";
  const plan::HostLimits& h = *limits.host;
  std::string text = fmt::format("a launch in a graph {:.2f} us", h.launch.best * 1e6);
  if (h.early_launch.best > 0) text += fmt::format(" ({:.2f} us dependent)", h.early_launch.best * 1e6);
  return text +
         fmt::format(", a barrier of all blocks {:.2f} us; copies: {} GB/s to the GPU, {} GB/s from it",
                     h.barrier.best * 1e6, Rate(h.to_device.best / 1e9), Rate(h.from_device.best / 1e9));
}

void WriteLimits(JsonWriter& json, const plan::Limits& limits) {
  json.BeginObject().Member("threads", limits.threads).Member("instructions", limits.instructions);
  json.Member("read_bytes", limits.read_bytes);
  WriteRate(json, "read_bytes_per_second", limits.read);
  WriteRate(json, "integer_products_per_second", limits.integer_products);
  WriteRate(json, "byte_products_per_second", limits.byte_products);
  WriteRate(json, "float_products_per_second", limits.float_products);
  if (limits.host) {
    const plan::HostLimits& h = *limits.host;
    json.Member("launches", h.launches);
    WriteCost(json, "launch_seconds", h.launch);
    if (h.early_launch.best > 0) WriteCost(json, "dependent_launch_seconds", h.early_launch);
    json.Member("barriers", h.barriers);
    WriteCost(json, "barrier_seconds", h.barrier);
    json.Member("copy_bytes", h.copy_bytes);
    WriteRate(json, "copy_to_device_bytes_per_second", h.to_device);
    WriteRate(json, "copy_from_device_bytes_per_second", h.from_device);
  }
  json.EndObject();
}

}  // namespace glint::cli
