// The ceilings of a GPU, measured.
#pragma once
#include "base/progress.h"
#include "cuda/devices.h"
#include "glint/status.h"
#include "plan/limits.h"

namespace glint::cuda {

// kNoRoom if not even 256 MiB of device memory are free; kBadInput "interrupted". About half a second.
Result<plan::Limits> MeasureLimits(const Context& context, const Progress& progress = {});

}  // namespace glint::cuda
