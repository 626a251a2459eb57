// The CPU backend: canonical stages, levers, and the states of sequences in host memory.
#pragma once
#include <memory>

#include "base/thread_pool.h"
#include "model/glm_flash/hparams.h"
#include "model/glm_flash/weights.h"
#include "plan/backend.h"

namespace glint::cpu {

// hp and weights must outlive the backend. threads >= 1.
std::unique_ptr<plan::Backend> MakeBackend(const model::HParams& hp, const model::Weights& weights, int threads);

// The CPU's levers with what is available here; also without a model (for `glint plan` and docs).
std::span<const plan::Lever> Levers();

}  // namespace glint::cpu
