// spec/model.md 4.1: three small mixes of the streams (pre, post, comb) and the collapsed input of a sublayer.
#include <cuda_runtime.h>

#include "cuda/async.cuh"
#include "cuda/context.h"
#include "cuda/hc_pre.h"
#include "cuda/hc_sinkhorn.cuh"
#include "cuda/launch.h"
#include "cuda/norm.cuh"
#include "cuda/product.h"

namespace glint::cuda {
namespace {

constexpr int kMostStreams = 16;  // HParams' check allows no more

struct HcPreArgs {
  const float* streams;            // [rows][n][D]
  const float* z;                  // [rows][2n + n * n] the products with fn, not yet divided by the RMS
  const float *scale, *base;       // [3], [2n + n * n]
  float *collapsed, *post, *comb;  // [rows][D], [rows][n], [rows][n][n]
  int64_t d;
  int n;
  int64_t iters;
  float rms_eps, hc_eps;
};

// A block a row. The first warp mixes (some 40 dependent steps) while the others collapse.
__global__ void __launch_bounds__(kNormThreads) HcPreKernel(const HcPreArgs a) {
  __shared__ NormShared shared;
  __shared__ float pre[kMostStreams], m[kMostStreams * kMostStreams];
  LetNextLaunchBegin();
  WaitForLaunchesBefore();
  const int thread = static_cast<int>(threadIdx.x), n = a.n, mix = 2 * n + n * n;
  const int64_t row = blockIdx.x, d = a.d;
  const float* const x = a.streams + row * n * d;

  // The norm is a scalar, so it is applied to the products; they are fetched while it is taken.
  float z = 0, scale = 0, base = 0;
  const auto fetch = [&](int i) {
    z = a.z[row * mix + i], scale = a.scale[i < n ? 0 : i < 2 * n ? 1 : 2], base = a.base[i];
  };
  if (thread < mix) fetch(thread);
  float held[kNormHeld];
  const float rms = InverseRms(SumOfSquares<kNormPart>(shared, n * d, held, [&](int64_t k) { return x[k]; }),
                               n * d, a.rms_eps);
  for (int i = thread; i < mix; i += kNormThreads) {
    if (i != thread) fetch(i);
    const float logit = fmaf(z * rms, scale, base);
    if (i < n) {
      pre[i] = Sigmoid(logit) + a.hc_eps;
    } else if (i < 2 * n) {
      a.post[row * n + i - n] = 2.0f * Sigmoid(logit);
    } else {
      m[i - 2 * n] = logit;
    }
  }
  __syncthreads();  // pre and m are there

  if (thread < 32) {
    float* const comb = a.comb + row * n * n;
    if (n == 4) {
      const float entry = SinkhornOfFour(m[thread & 15], a.iters, a.hc_eps);
      if (thread < 16) comb[thread] = entry;
    } else {
      Sinkhorn(m, n, a.iters, a.hc_eps, comb);
    }
    return;
  }
  float* const out = a.collapsed + row * d;
  if (n == 4) {
#pragma unroll 4
    for (int64_t i = thread - 32; i < d; i += kNormThreads - 32) {
      float sum = 0;
#pragma unroll
      for (int h = 0; h < 4; ++h) sum = fmaf(pre[h], x[h * d + i], sum);
      out[i] = sum;
    }
  } else {
    for (int64_t i = thread - 32; i < d; i += kNormThreads - 32) {
      float sum = 0;
      for (int h = 0; h < n; ++h) sum = fmaf(pre[h], x[h * d + i], sum);
      out[i] = sum;
    }
  }
}

}  // namespace

Status HcPreOf(const StepContext& c, const model::HcSite& site, float* collapsed) {
  const int64_t d = c.hp.hidden, n = c.hp.hc_mult, mix = c.hp.hc_mix();
  const float* const streams = c.Floats(plan::Slot::kStreams);
  float* const z = c.scratch.Take<float>(c.rows * mix);
  if (z == nullptr) return NoScratch(c);
  Operand x(c, streams, n * d, c.rows, n * d);
  if (Status s = x.Times(site.fn, z, mix); !s.ok()) return s;

  HcPreArgs args{};
  args.streams = streams;
  args.z = z;
  args.scale = c.On(site.scale), args.base = c.On(site.base);
  args.collapsed = collapsed;
  args.post = c.Floats(plan::Slot::kPost), args.comb = c.Floats(plan::Slot::kComb);
  args.d = d, args.n = static_cast<int>(n), args.iters = c.hp.sinkhorn_iters;
  args.rms_eps = c.hp.rms_eps, args.hc_eps = c.hp.hc_eps;
  LaunchEarly(c, static_cast<unsigned>(c.rows), kNormThreads, 0, HcPreKernel, args);
  return c.Launched();
}

Status HcPre(const StepContext& c) {
  const model::HcSite& site = c.step.site == plan::Step::Site::kAttn ? c.layer->hc_attn : c.layer->hc_ffn;
  return HcPreOf(c, site, c.Floats(plan::Slot::kCollapsed));
}

}  // namespace glint::cuda
