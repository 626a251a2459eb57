// plan::BestId on the GPU, so that 620 KB of logits need not travel to the host for one id. One launch of about 4 us on an H200: each
// block finds the best of its stretch, and the last to finish the best of those.
#include "cuda/best.h"

#include "cuda/math.cuh"

namespace glint::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;

// Grid: stretches x rows. keys: [rows][gridDim.x].
__global__ void __launch_bounds__(kThreads) BestKernel(const BestArgs a) {
  __shared__ uint64_t of_warp[kWarps];
  __shared__ bool last;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int64_t row = blockIdx.y, stretch = (a.usable + gridDim.x - 1) / gridDim.x;
  const int64_t begin = stretch * blockIdx.x, end = begin + stretch < a.usable ? begin + stretch : a.usable;
  const float* const logits = a.logits + row * a.vocab;

  uint64_t best = 0;  // of no logit
#pragma unroll 8
  for (int64_t id = begin + thread; id < end; id += kThreads) {
    const float logit = logits[id];
    const uint64_t key =
        logit > -INFINITY ? RankKey(logit, static_cast<uint32_t>(id)) : 0;  // NaN is not above
    best = key > best ? key : best;
  }
  best = WarpMax(best);
  if (lane == 0) of_warp[warp] = best;
  __syncthreads();  // the warps' best are there
  if (warp == 0) {
    best = WarpMax(lane < kWarps ? of_warp[lane] : 0);
    if (lane == 0) {
      a.keys[row * gridDim.x + blockIdx.x] = best;
      __threadfence();  // the key before the arrival
      last = atomicAdd(a.arrived, 1u) == gridDim.x * gridDim.y - 1;
      __threadfence();  // the other blocks' arrivals before their keys
    }
  }
  __syncthreads();  // `last` is known
  if (!last) return;
  if (thread == 0) *a.arrived = 0;
  for (int64_t r = warp; r < a.rows; r += kWarps) {
    best = 0;
    for (unsigned i = static_cast<unsigned>(lane); i < gridDim.x; i += 32) {
      const uint64_t key = __ldcg(reinterpret_cast<const unsigned long long*>(a.keys) + r * gridDim.x + i);
      best = key > best ? key : best;
    }
    best = WarpMax(best);
    if (lane == 0) a.best[r] = best == 0 ? -1 : static_cast<int32_t>(RankedIndex(best));
  }
}

}  // namespace

void LaunchBest(const BestArgs& args, cudaStream_t stream) {
  const int64_t stretches = BestKeys(args.rows) / args.rows;
  const dim3 grid(static_cast<unsigned>(stretches), static_cast<unsigned>(args.rows));
  BestKernel<<<grid, kThreads, 0, stream>>>(args);
}

}  // namespace glint::cuda
