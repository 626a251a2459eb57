// What every backend checks before it runs a pass: the engine has checked what a user can get wrong; this guards the memory against
// our own mistakes.
#pragma once
#include "model/glm_flash/hparams.h"
#include "plan/backend.h"
#include "plan/grid_sequence.h"

namespace glint::plan {

// is_ours: whether a state is one of the backend's. Positions, room, ids and rows must fit the plan and the states.
Status CheckPass(const model::HParams& hp, const Plan& plan, const Batch& batch,
                 bool (*is_ours)(const GridSequence& state), std::string_view backend);

}  // namespace glint::plan
