// spec/model.md 10.2, steps 2 and 3: the next token's embedding and the trunk's hidden state, each normalised, projected together.
#include <cuda_runtime.h>

#include "cuda/context.h"
#include "cuda/launch.h"
#include "cuda/norm.cuh"
#include "cuda/product.h"

namespace glint::cuda {
namespace {

// Grid: rows x {embedding, hidden}. joined [rows][embedding | hidden] comes with the embeddings, which are normalised in place.
__global__ void __launch_bounds__(kNormThreads)
    JoinKernel(const float* hidden, const float* __restrict__ enorm, const float* __restrict__ hnorm,
               float eps, int64_t d, float* joined) {
  __shared__ NormShared shared;
  LetNextLaunchBegin();
  const int64_t row = blockIdx.x;
  const bool second = blockIdx.y == 1;
  float* const out = joined + row * 2 * d + (second ? d : 0);
  const float* const in = second ? hidden + row * d : out;
  RmsNorm(
      shared, d, eps, second ? hnorm : enorm, [&](int64_t k) { return in[k]; },
      [&](int64_t k, float y) { out[k] = y; });
}

}  // namespace

Status MtpInput(const StepContext& c) {
  const auto& w = c.weights.nextn[0];
  const int64_t d = c.hp.hidden;
  float* const joined = c.scratch.Take<float>(c.rows * 2 * d);
  if (joined == nullptr) return NoScratch(c);
  if (Status s = DecodeRows(c, c.weights.embedding, joined, 2 * d); !s.ok()) return s;
  const dim3 grid(static_cast<unsigned>(c.rows), 2);
  LaunchEarly(c, grid, kNormThreads, 0, JoinKernel, c.batch.hidden_in, c.On(w.enorm), c.On(w.hnorm),
              c.hp.rms_eps, d, joined);
  if (Status s = c.Launched("norms of its two halves"); !s.ok()) return s;
  Operand x(c, joined, 2 * d, c.rows, 2 * d);
  return x.Times(w.eh_proj, c.Floats(plan::Slot::kResidual), d);
}

}  // namespace glint::cuda
