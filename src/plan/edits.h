// Plans with a stage left out, or done twice: what `profile --ablate` and `--repeat` run to price it from outside.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "glint/status.h"
#include "plan/plan.h"

namespace glint::plan {

// Whether running the step twice in a row leaves outputs and state as running it once: all that it covers is idempotent, and it updates
// no slot in place.
bool Idempotent(const Step& step);

// Indices of the steps that serve the stage, alone or among others. Empty: it is not in this pass.
std::vector<size_t> StepsOf(const Plan& plan, Stage stage);

// The stages that the plan serves, each once, in the order of the enumeration.
std::vector<Stage> StagesOf(const Plan& plan);

// Who really carries the stage out: "canonical + simd.avx512 threads", "kda.block + threads", with the other stages that a lever does in
// the same step ("with kda.conv, kda.gates"). Different layers may differ: then all are listed.
std::string ServedBy(const Plan& plan, Stage stage);

// The plan without the steps that serve the stage. What reads their outputs finds what the slots held before: run the whole plan once
// before, in the same buffers, and make the plan with keep_all, or that is another slot's content and no valid index.
Plan Without(const Plan& plan, Stage stage);

// The plan with each step that serves the stage done once more: as late in its layer as what it writes is dead (until somebody writes it
// anew), so that its weights have to come from memory again and not from a cache, or right behind itself where that is nowhere. Make the
// plan with keep_all, or a late step writes over others. kBadInput, with the reason, if doing it twice in a row would change the result.
Result<Plan> Repeating(const Plan& plan, Stage stage);

// Stages by name; "all": those of the plan. kBadInput for a name that is unknown (with the list of names), or known and not in this plan.
Result<std::vector<Stage>> FindStages(const Plan& plan, std::span<const std::string> names);
// Checks the names alone, before there is a plan.
Status CheckStageNames(std::span<const std::string> names);

}  // namespace glint::plan
