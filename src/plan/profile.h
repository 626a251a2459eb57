// What a pass's time is made of: times of its steps put together by stage and lever, beside the bytes that they have to move.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "plan/backend.h"
#include "plan/step_bytes.h"

namespace glint::plan {

struct Quartiles {
  double low = 0, median = 0, high = 0;
};
// Between neighbours where a quartile falls between two values; zeros for none.
Quartiles QuartilesOf(std::vector<double> values);
// Of a pass, from repetitions of a run of passes, [repetitions][passes]: the quartiles of each pass over the repetitions, averaged over
// the passes. So a rare disturbance of one pass does not count, and what happens in one pass of sixteen (the end of a block) does.
Quartiles TypicalOf(std::span<const std::vector<double>> runs);

// One timed pass, and what its caller did around it (sampling, looking up the plan), in seconds.
struct PassTimes {
  std::vector<StepTime> steps;
  double whole = 0;    // the pass from outside
  double outside = 0;  // before and after it
};

// Repetitions of one run: the same passes from the same state, so that they differ by nothing but the machine's mood.
struct ProfileInput {
  const Plan& plan;
  const model::HParams& hparams;
  const model::Weights& weights;
  std::span<const PassShape> shapes;              // [passes]
  std::span<const std::vector<PassTimes>> timed;  // [repetitions][passes]
  // [repetitions][passes] seconds, outside included, with nobody timing steps
  std::span<const std::vector<double>> untimed;
  bool per_layer = false;
};

// Steps of the same stages, lever and modifiers (and layer, if asked).
struct ProfileRow {
  std::vector<Stage> covers;
  const Lever* lever = nullptr;
  std::vector<const Lever*> modifiers;
  int layer = -1;     // -1: of all layers
  int calls = 0;      // a pass
  Quartiles seconds;  // a pass (TypicalOf)
  StepBytes bytes;    // a pass
};

// All a pass, and typical; medians add up: rows + rest + outside + clock = total.
struct Profile {
  std::vector<ProfileRow> rows;  // in the order of the stages
  double rest = 0;               // of the pass, in no step
  double outside = 0;            // of the pass
  double clock = 0;              // what timing the steps took, as far as the device knows (StepTime)
  Quartiles total;
  Quartiles untimed;  // with nobody timing steps: whether the sum can be believed
  StepBytes bytes;
  double seconds_in_steps() const { return undisturbed() - rest - outside; }
  double undisturbed() const { return total.median - clock; }  // to be compared with `untimed`
};

Profile MakeProfile(const ProfileInput& input);

}  // namespace glint::plan
