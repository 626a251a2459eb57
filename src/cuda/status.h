// From the CUDA runtime's error codes to ours.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <string_view>

#include "glint/status.h"

namespace glint::cuda {

// Ok for cudaSuccess; else kNoRoom (out of device memory) or kDevice, with `doing`, the runtime's name of the
// error and its explanation: "launching kda.recur: cudaErrorInvalidConfiguration (invalid configuration
// argument)". Clears the thread's pending error, so that the next check does not report this one again.
//
// A launch returns at once: what its kernel does wrong appears at a later call, whose check then reports it.
Status Check(cudaError_t error, std::string_view doing);

// Check in two steps, for who makes the words of `doing` only where something went wrong: the error to go by, and its status.
cudaError_t Seen(cudaError_t error);
Status Failed(cudaError_t error, std::string_view doing);

// For tests: while it lives, the n-th check of the process (from 0) and all later ones see `error` whatever the runtime said, as when
// the device vanishes then; with `once`, that check alone. Checks made and not failed still happen: the device is there, so that what
// is released can be counted. One at a time.
class FailingChecks {
 public:
  FailingChecks(int64_t n, cudaError_t error, bool once = false);
  ~FailingChecks();
  FailingChecks(const FailingChecks&) = delete;
  FailingChecks& operator=(const FailingChecks&) = delete;
  int64_t made() const;  // checks since it lives
};

}  // namespace glint::cuda
