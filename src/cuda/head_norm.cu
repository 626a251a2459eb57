// spec/model.md 3 and 10.2: the mean of the streams (the MTP block has but one), then the final norm.
#include <cuda_runtime.h>

#include "cuda/context.h"
#include "cuda/norm.cuh"
#include "cuda/round.cuh"

namespace glint::cuda {
namespace {

constexpr int kThreads = 1024, kHeld = 4, kMostColumns = kHeld * kThreads;

struct HeadNormArgs {
  const float* in;    // [rows][n][d]
  const float* w;     // [d]
  float *out, *copy;  // [rows][d]; copy: or null
  Digits digits;      // of out; or none
  float eps;
  int d, n;
};

// A block a row of kStreams streams of at most kMostColumns columns, all of which are on their way at once.
template <int kStreams>
__global__ void __launch_bounds__(kThreads) HeadNormKernel(const HeadNormArgs a) {
  __shared__ float row[kMostColumns];
  __shared__ float squares;
  LetNextLaunchBegin();
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  float value[kHeld][kStreams], weight[kHeld];
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int k = i * kThreads + thread;
    weight[i] = k < a.d ? a.w[k] : 0.0f;
  }
  WaitForLaunchesBefore();
  const float* const x = a.in + int64_t{blockIdx.x} * kStreams * a.d;
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int k = i * kThreads + thread;
#pragma unroll
    for (int h = 0; h < kStreams; ++h) value[i][h] = k < a.d ? __ldcg(x + h * a.d + k) : 0.0f;
  }
  float mean[kHeld];
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    mean[i] = value[i][0];
#pragma unroll
    for (int h = 1; h < kStreams; ++h) mean[i] += value[i][h];
    mean[i] = mean[i] / static_cast<float>(kStreams);
    row[i * kThreads + thread] = mean[i];
  }
  __syncthreads();  // the row is there, with zeros behind it, which change no sum of squares
  if (thread < 32) {
    const float sum = SharedSquares(row, (a.d + 511) / 512 * 512, lane);
    if (thread == 0) squares = sum;
  }
  __syncthreads();  // all see the sum
  const float r = InverseRms(squares, a.d, a.eps);
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int k = i * kThreads + thread;
    if (k >= a.d) return;
    const float y = (mean[i] * r) * weight[i];
    const int64_t at = int64_t{blockIdx.x} * a.d + k;
    a.out[at] = y;
    if (a.copy != nullptr) a.copy[at] = y;
    if (a.digits.digits != nullptr) StoreRounded(a.digits, blockIdx.x, k / 32, lane, y);
  }
}

// Any number of streams, any width.
__global__ void __launch_bounds__(kNormThreads) AnyHeadNormKernel(const HeadNormArgs a) {
  __shared__ NormShared shared;
  LetNextLaunchBegin();
  const float* const x = a.in + int64_t{blockIdx.x} * a.n * a.d;
  const int64_t at = int64_t{blockIdx.x} * a.d;
  const auto mean = [&](int64_t k) {
    float sum = x[k];
    for (int h = 1; h < a.n; ++h) sum += x[h * int64_t{a.d} + k];
    return a.n == 1 ? sum : sum / static_cast<float>(a.n);  // by 1 it would be itself
  };
  RmsNorm(shared, a.d, a.eps, a.w, mean, [&](int64_t k, float y) {
    a.out[at + k] = y;
    if (a.copy != nullptr) a.copy[at + k] = y;
  });
}

}  // namespace

Status HeadNorm(const StepContext& c) {
  const bool trunk = c.pass == plan::Pass::kTrunk;
  const model::Vector w = trunk ? c.weights.output_norm : c.weights.nextn[0].shared_head_norm;
  HeadNormArgs args{c.Floats(trunk ? plan::Slot::kStreams : plan::Slot::kResidual),
                    c.On(w),
                    c.Floats(plan::Slot::kFinal),
                    c.batch.final_out,
                    {},
                    c.hp.rms_eps,
                    static_cast<int>(c.hp.hidden),
                    trunk ? static_cast<int>(c.hp.hc_mult) : 1};
  const auto rows = static_cast<unsigned>(c.rows);
  if (args.d > kMostColumns || (args.n != 1 && args.n != 4)) {
    LaunchEarly(c, rows, kNormThreads, 0, AnyHeadNormKernel, args);
    return c.Launched();
  }
  if (args.d % 256 == 0) args.digits = c.MakeDigits(plan::Slot::kFinal);
  LaunchEarly(c, rows, kThreads, 0, args.n == 1 ? HeadNormKernel<1> : HeadNormKernel<4>, args);
  return c.Launched();
}

}  // namespace glint::cuda
