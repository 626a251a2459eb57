// The CPU backend: canonical stages, levers, and the states of sequences in host memory.
#pragma once
#include <memory>

#include "base/thread_pool.h"
#include "model/glm_flash/hparams.h"
#include "model/glm_flash/weights.h"
#include "plan/backend.h"

namespace glint::cpu {

struct BackendOptions {
  // Fills buffers and scratch with NaN before they are written, and memory of a sequence's state that holds nothing of it, so
  // that a stage that reads what nobody wrote, or what was forgotten, shows. For tests; slow.
  bool poison = false;
  // Hands work to other threads however little it is, so that small models exercise it too. For tests; slow.
  bool share_all = false;
};

// hp and weights must outlive the backend. threads >= 1.
std::unique_ptr<plan::Backend> MakeBackend(const model::HParams& hp, const model::Weights& weights,
                                           int threads, const BackendOptions& options = {});

// The CPU's levers with what is available here; also without a model (for `glint plan` and docs).
std::span<const plan::Lever> Levers();

}  // namespace glint::cpu
