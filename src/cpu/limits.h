// The ceilings of this machine, measured with a pool's threads.
#pragma once
#include "base/progress.h"
#include "base/thread_pool.h"
#include "glint/status.h"
#include "plan/limits.h"

namespace glint::cpu {

struct LimitOptions {
  uint64_t read_bytes =
      0;           // 0: 1 GiB, or four times the caches where those are larger, if the machine has the room
  int passes = 9;  // of each kind
  double seconds = 0.01;  // an arithmetic pass takes at least
};

// kNoRoom if the memory that is free does not hold twice the caches; kBadInput "interrupted". About a second.
Result<plan::Limits> MeasureLimits(ThreadPool& pool, const Progress& progress = {},
                                   const LimitOptions& options = {});

}  // namespace glint::cpu
