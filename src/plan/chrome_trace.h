// Timed passes for a viewer (chrome://tracing, Perfetto): the Trace Event Format's JSON object form.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plan/profile.h"

namespace glint::plan {

// One line of time in the picture: passes one after another, each with its layers and their steps inside.
struct TraceTrack {
  std::string name;  // "decode"
  const Plan* plan;
  std::span<const PassTimes> passes;
  std::span<const PassShape> shapes;  // [passes]
};

// {"traceEvents":[...],"displayTimeUnit":"ms"}: complete events ("X") in microseconds, one thread a track. A step's arguments are its
// layer, what serves it, and its bytes.
std::string ChromeTrace(std::string_view process, std::span<const TraceTrack> tracks,
                        const model::HParams& hparams, const model::Weights& weights);

}  // namespace glint::plan
