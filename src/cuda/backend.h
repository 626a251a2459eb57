// The CUDA backend: canonical stages, levers, and the states of sequences in the memory of one GPU.
#pragma once
#include <memory>

#include "base/progress.h"
#include "cuda/devices.h"
#include "model/model_data.h"
#include "plan/backend.h"

namespace glint::cuda {

struct BackendOptions {
  // Fills buffers and scratch with NaN before they are written, and memory of a sequence's state that holds nothing of it, so
  // that a stage that reads what nobody wrote, or what was forgotten, shows. For tests; slow.
  bool poison = false;
};

// Copies the model's weights to GPU `ordinal`, which takes a while (progress in bytes). The model must outlive the backend. kNoRoom,
// with the numbers, if they do not fit; nothing is then kept.
Result<std::unique_ptr<plan::Backend>> MakeBackend(const model::ModelData& model, int ordinal,
                                                   const Progress& progress,
                                                   const BackendOptions& options = {});

// The same over weights that another backend of this kind has on its GPU. `model`: a copy of its model.
Result<std::unique_ptr<plan::Backend>> ShareBackend(const model::ModelData& model, const plan::Backend& other,
                                                    const BackendOptions& options = {});

// The GPU's levers; also without a GPU (for `glint plan` and docs).
std::span<const plan::Lever> Levers();

}  // namespace glint::cuda
