// From the CUDA runtime's error codes to ours.
#pragma once
#include <cuda_runtime_api.h>

#include <string_view>

#include "glint/status.h"

namespace glint::cuda {

// Ok for cudaSuccess; else kNoRoom (out of device memory) or kDevice, with `doing`, the runtime's name of the
// error and its explanation: "launching kda.recur: cudaErrorInvalidConfiguration (invalid configuration
// argument)". Clears the thread's pending error, so that the next check does not report this one again.
//
// A launch returns at once: what its kernel does wrong appears at a later call, whose check then reports it.
Status Check(cudaError_t error, std::string_view doing);

}  // namespace glint::cuda
