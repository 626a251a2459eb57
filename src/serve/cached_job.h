// A job that goes on from what the prefix cache has, and leaves behind what others may go on from.
#pragma once
#include <vector>

#include "serve/prefix_cache.h"
#include "serve/scheduler.h"

namespace glint::serve {

// Completes a job that is about to be submitted, and has its prompt and its other callbacks: its session comes from the cache, and is kept at
// `marks`, where the cache says, and at the job's end, whatever ended it. Reads the disk if that has a longer beginning than memory; the
// cache outlives the job.
// A job that failed in a way that may be its state's fault takes with it what it went on from.
void GoOnFromCache(PrefixCache& cache, std::vector<PrefixCache::Position> marks, Job& job);

}  // namespace glint::serve
