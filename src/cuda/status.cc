#include "cuda/status.h"

#include <fmt/core.h>

namespace glint::cuda {

Status Check(cudaError_t error, std::string_view doing) {
  if (error == cudaSuccess) return {};
  cudaGetLastError();
  const Code code = error == cudaErrorMemoryAllocation ? Code::kNoRoom : Code::kDevice;
  return {code, fmt::format("{}: {} ({})", doing, cudaGetErrorName(error), cudaGetErrorString(error))};
}

}  // namespace glint::cuda
