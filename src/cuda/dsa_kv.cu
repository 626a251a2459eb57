// spec/model.md 6, step 2: the latent row of each token, appended to the cache.
#include "cuda/norm.h"
#include "cuda/product.h"

namespace glint::cuda {
namespace {

constexpr int kThreads = 128;

// A block a row of the batch.
__global__ void __launch_bounds__(kThreads)
    StoreLatentKernel(const RowView* rows, int layer, const float* latent, int64_t rank) {
  const RowView row = rows[blockIdx.x];
  const float* const from = latent + int64_t{blockIdx.x} * rank;
  float* const to = row.layers[layer].latent + row.position * rank;
  for (int64_t d = threadIdx.x; d < rank; d += kThreads) to[d] = from[d];
}

}  // namespace

Status DsaKv(const StepContext& c) {
  const auto& w = c.layer->dsa;
  const int64_t rank = c.hp.kv_lora_rank;
  float* const latent = c.Floats(plan::Slot::kLatent);
  Operand x(c, c.Floats(plan::Slot::kX), c.hp.hidden, c.rows, c.hp.hidden);
  if (Status s = x.Times(w.kv_a, latent, rank); !s.ok()) return s;
  if (Status s = RmsNormRows(c, latent, w.kv_a_norm, c.hp.rms_eps, latent, c.rows, rank); !s.ok()) return s;
  StoreLatentKernel<<<static_cast<unsigned>(c.rows), kThreads, 0, c.stream>>>(c.batch.rows, c.layer_index(),
                                                                              latent, rank);
  return c.Launched();
}

}  // namespace glint::cuda
