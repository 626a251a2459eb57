// Pairs of a row and an expert, sorted by expert, so that a product reads an expert's weights once for several rows.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace glint::cuda {

// Entries order[first ...] of the pairs, which go through one expert together.
struct PairGroup {
  int32_t expert, first, count;
};

inline constexpr int64_t kMostGroupedExperts = 1024;

// Groups of at most `most` pairs; how many there can be at all.
inline int64_t MostPairGroups(int64_t pairs, int64_t experts, int64_t most) {
  const int64_t full = pairs / most + experts;
  return full < pairs ? full : pairs;
}

// ids [pairs]: the expert of each pair. Writes order [pairs] (pair numbers), groups [MostPairGroups] and *count. All device memory;
// experts <= kMostGroupedExperts. Which pairs share a group with which is not fixed, and no bit of a product depends on it.
void LaunchGroupPairs(const int32_t* ids, int64_t pairs, int64_t experts, int most, int32_t* order,
                      PairGroup* groups, int32_t* count, cudaStream_t stream);

}  // namespace glint::cuda
