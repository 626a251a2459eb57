// The ceilings of a device, for people and for machines; of several commands.
#pragma once
#include <string>

#include "cli/json_writer.h"
#include "plan/limits.h"

namespace glint::cli {

// "a launch 0.84 us, ..."; "" for a device that is its own host.
std::string HostLimitsText(const plan::Limits& limits);
// An object.
void WriteLimits(JsonWriter& json, const plan::Limits& limits);

}  // namespace glint::cli
