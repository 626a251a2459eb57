#include "cuda/pair_groups.h"

#include "cuda/async.cuh"

namespace glint::cuda {
namespace {

constexpr int kThreads = static_cast<int>(kMostGroupedExperts);

// sums[i] becomes the sum of the entries before i; the total is returned. All threads come.
__device__ int SumBefore(int* sums) {
  const int i = static_cast<int>(threadIdx.x), own = sums[i];
  for (int apart = 1; apart < kThreads; apart *= 2) {
    const int lower = i >= apart ? sums[i - apart] : 0;
    __syncthreads();  // everybody has read
    sums[i] += lower;
    __syncthreads();  // everybody has written
  }
  const int total = sums[kThreads - 1];
  __syncthreads();  // everybody has the total
  sums[i] -= own;
  __syncthreads();  // the sums before are there
  return total;
}

// One block; thread e has expert e.
__global__ void __launch_bounds__(kThreads)
    GroupPairsKernel(const int32_t* ids, int pairs, int most, int32_t* order, PairGroup* groups,
                     int32_t* count) {
  __shared__ int first[kThreads], group[kThreads], taken[kThreads];
  LetNextLaunchBegin();
  const int e = static_cast<int>(threadIdx.x);
  taken[e] = 0;
  __syncthreads();  // the counters are zero
  for (int i = e; i < pairs; i += kThreads) atomicAdd(taken + ids[i], 1);
  __syncthreads();  // all pairs are counted
  const int own = taken[e], own_groups = (own + most - 1) / most;
  first[e] = own;
  group[e] = own_groups;
  taken[e] = 0;
  __syncthreads();  // what is to be added up is there
  SumBefore(first);
  const int total = SumBefore(group);
  for (int g = 0; g < own_groups; ++g)
    groups[group[e] + g] = {e, first[e] + g * most, min(most, own - g * most)};
  for (int i = e; i < pairs; i += kThreads) {
    const int expert = ids[i];
    order[first[expert] + atomicAdd(taken + expert, 1)] = i;
  }
  if (e == 0) *count = total;
}

}  // namespace

void LaunchGroupPairs(const int32_t* ids, int64_t pairs, int64_t, int most, int32_t* order, PairGroup* groups,
                      int32_t* count, cudaStream_t stream) {
  GroupPairsKernel<<<1, kThreads, 0, stream>>>(ids, static_cast<int>(pairs), most, order, groups, count);
}

}  // namespace glint::cuda
