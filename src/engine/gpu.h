// The GPUs of this machine, if glint was built for them: the one place of the engine that knows whether it was.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/progress.h"
#include "model/model_data.h"
#include "plan/backend.h"

namespace glint::engine {

// kBadInput for a word that names no device, there or not.
Status CheckDevice(std::string_view device);

// What --device says: "cpu"; "cuda" or "cuda:N"; "auto": GPU 0 where there is one that answers. Empty: the CPU.
// kBadInput for another word; kNotFound for a GPU that is not there, saying which there are or that glint was built without CUDA.
// `notes`: gets a line if "auto" found a GPU that does not answer.
Result<std::optional<int>> ChooseGpu(std::string_view device, std::vector<std::string>& notes);

// Copies the weights to the GPU. The model must outlive the backend.
Result<std::unique_ptr<plan::Backend>> MakeGpuBackend(const model::ModelData& model, int gpu,
                                                      const Progress& progress);
// A second one over the weights that `other` has on the same GPU: of a copy of its model.
Result<std::unique_ptr<plan::Backend>> ShareGpuBackend(const model::ModelData& model,
                                                       const plan::Backend& other);

// Empty without CUDA.
std::span<const plan::Lever> GpuLevers();

}  // namespace glint::engine
