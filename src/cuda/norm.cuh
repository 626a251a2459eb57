// The RMS norm of wide rows by a block of threads: the order of sums is the definition's, a row's loads are all in flight at once.
#pragma once
#include <cstdint>

#include "cuda/ahead.cuh"
#include "cuda/async.cuh"
#include "cuda/math.cuh"

namespace glint::cuda {

constexpr int kNormThreads = 256;                     // of every kernel that uses this header
constexpr int kNormHeld = 16;                         // columns of a chunk that a thread loads
constexpr int kNormChunk = kNormThreads * kNormHeld;  // columns that are in shared memory at once
constexpr int kNormPart = 1024;                       // of sums that are defined in parts

struct NormShared {
  float chunk[2][kNormChunk];
  float sum;
};

// Dot16(x, x) of the n entries load(k), for all threads of the block. Sixteen lanes add up one chunk from shared memory while all
// threads load the next one: a lane's chain of fmas is what takes the time. held[i]: the last chunk's column
// i * kNormThreads + threadIdx.x, 0 past the end. Once in a kernel. kPart: kNormPart for the sum of Dot16 over parts of so many
// columns, in order, instead; the lanes of each part of a chunk then work at once.
template <int kPart = 0, class Load>
__device__ inline float SumOfSquares(NormShared& shared, int64_t n, float (&held)[kNormHeld], Load&& load) {
  const int thread = static_cast<int>(threadIdx.x);
  const auto fetch = [&](int64_t first) {
#pragma unroll
    for (int i = 0; i < kNormHeld; ++i) {
      const int64_t k = first + i * kNormThreads + thread;
      held[i] = k < n ? load(k) : 0.0f;
    }
  };
  const auto keep = [&](float* chunk) {
#pragma unroll
    for (int i = 0; i < kNormHeld; ++i) chunk[i * kNormThreads + thread] = held[i];
  };
  fetch(0);
  keep(shared.chunk[0]);
  __syncthreads();  // the first chunk is there
  static_assert(kPart == 0 || kNormChunk == 4 * kPart);
  float lane = 0;  // kPart: the sum so far
  int at = 0;
  for (int64_t first = 0; first < n; first += kNormChunk, at ^= 1) {
    const bool more = first + kNormChunk < n;
    if (more) fetch(first + kNormChunk);
    if (thread < 32) {  // zeros past the end change no sum of squares
      const int64_t left = n - first;
      const int columns = static_cast<int>(left < kNormChunk ? left : kNormChunk);
      if constexpr (kPart == 0) {  // both halves of the warp do the same
        const int steps = (columns + 15) / 16;
        const float* const x = shared.chunk[at] + (thread & 15);
#pragma unroll 16
        for (int i = 0; i < steps; ++i) lane = fmaf(x[i * 16], x[i * 16], lane);
      } else {  // a half has two parts: its own of the first two, and of the second two
        const float* const x = shared.chunk[at] + thread / 16 * kPart + (thread & 15);
        float a = 0, b = 0;
#pragma unroll 16
        for (int i = 0; i < kPart / 16; ++i) {
          a = fmaf(x[i * 16], x[i * 16], a);
          b = fmaf(x[2 * kPart + i * 16], x[2 * kPart + i * 16], b);
        }
        a = SumLanes16(a), b = SumLanes16(b);
        const float part[4] = {__shfl_sync(0xffffffffu, a, 0), __shfl_sync(0xffffffffu, a, 16),
                               __shfl_sync(0xffffffffu, b, 0), __shfl_sync(0xffffffffu, b, 16)};
        lane = first == 0 ? part[0] : lane + part[0];
        for (int i = 1; i < 4; ++i)
          if (i * kPart < columns) lane += part[i];
      }
    }
    if (more) {
      keep(shared.chunk[at ^ 1]);  // whose reader passed the barrier before this chunk
      __syncthreads();             // the next chunk is there, and this one is read
    }
  }
  if (thread < 32) {
    if constexpr (kPart == 0) lane = SumLanes16(lane);
    if (thread == 0) shared.sum = lane;
  }
  __syncthreads();  // all see the sum
  return shared.sum;
}

// Dot16 of `columns` (a multiple of 512) entries with themselves, by a warp whose halves do the same.
__device__ inline float SharedSquares(const float* x, int columns, int lane) {
  constexpr int kAhead = 16;
  float sum = 0;
  x += lane % 16;
  const auto fetch = [&](float(&to)[kAhead], int first) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) to[i] = x[16 * (first + i)];
  };
  const auto add = [&](const float(&v)[kAhead]) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) sum = fmaf(v[i], v[i], sum);
  };
  TakeInOrder<float[kAhead], kAhead>(columns / 16, fetch, add);
  return SumLanes16(sum);
}

__device__ inline float InverseRms(float sum_of_squares, int64_t n, float eps) {
  return 1.0f / sqrtf(sum_of_squares / static_cast<float>(n) + eps);
}

// store(k, (load(k) * r) * w[k]) for a row of n. In place is allowed: a thread stores what it alone loads.
// Waits for the launches before, and asks for w before that.
template <class Load, class Store>
__device__ inline void RmsNorm(NormShared& shared, int64_t n, float eps, const float* __restrict__ w,
                               Load&& load, Store&& store) {
  const int thread = static_cast<int>(threadIdx.x);
  float held[kNormHeld], weight[kNormHeld];
  const bool all_held = n <= kNormChunk;
  if (all_held) {  // on their way while the launches before end and the sum is taken
#pragma unroll
    for (int i = 0; i < kNormHeld; ++i) {
      const int k = i * kNormThreads + thread;
      weight[i] = k < n ? w[k] : 0.0f;
    }
  }
  WaitForLaunchesBefore();
  const float r = InverseRms(SumOfSquares(shared, n, held, load), n, eps);
  if (all_held) {
#pragma unroll
    for (int i = 0; i < kNormHeld; ++i) {
      const int k = i * kNormThreads + thread;
      if (k < n) store(int64_t{k}, (held[i] * r) * weight[i]);
    }
  } else {
    for (int64_t k = thread; k < n; k += kNormThreads) store(k, (load(k) * r) * w[k]);
  }
}

}  // namespace glint::cuda
