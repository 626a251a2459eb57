// A plan for people and for scripts.
#pragma once
#include <string>

#include "plan/plan.h"

namespace glint::plan {

// A table of steps (runs of equal layers are shown once), the levers in use, and the buffers.
std::string Describe(const Plan& plan, const PlanRequest& request);

// {"pass","rows","steps":[{"stages","layer","site","lever","modifiers","in","out","advances_state","weight_bytes"}],
//  "levers":[{"name","kind","used","available","default","bitwise","tolerance","covers","summary"}],
//  "buffers":[{"slot","offset","bytes","first_step","last_step"}],"buffer_bytes","weight_bytes"}
std::string DescribeJson(const Plan& plan, const PlanRequest& request);

// The table of levers alone, with what is in use where a plan is given (null: none).
std::string DescribeLevers(std::span<const Lever> levers, const Plan* plan);

}  // namespace glint::plan
