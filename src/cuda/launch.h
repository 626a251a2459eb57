// What launches of several stages have in common.
#pragma once
#include <cstdint>
#include <string>

#include "cuda/context.h"

namespace glint::cuda {

// Blocks of `threads` that cover n items; 1 for none, since a launch of no blocks is an error.
inline unsigned Blocks(int64_t n, int threads) {
  return n <= 0 ? 1u : static_cast<unsigned>((n + threads - 1) / threads);
}

// The step's temporary memory (ScratchBytes) is too small: our own mistake.
inline Status NoScratch(const StepContext& c) {
  return {Code::kInternal, std::string(plan::Name(c.step.stage)) +
                               ": its temporary memory is used up; ScratchBytes is too small"};
}

// Before a launch with so much dynamic shared memory; more than 48 KiB must be asked for. False: the device has not got it, and the
// next Launched says so.
template <class Kernel>
bool AllowShared(Kernel* kernel, int bytes) {
  return bytes <= 48 * 1024 ||
         cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes) == cudaSuccess;
}

}  // namespace glint::cuda
