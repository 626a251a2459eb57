// What follows the products of dsa.q, dsa.kv and dsa.index: norms, and what is kept of the rows. For each stage alone or for all at once.
#pragma once
#include "cuda/context.h"

namespace glint::cuda {

// Rows that products have left in device memory; null: not to be finished here.
struct DsaFinishing {
  float* queries = nullptr;  // low-rank query rows: in place
  float* latents = nullptr;  // in place, and appended to the cache
  // Index keys, in place, with their gates as they are; also pooled keys of the pools that the pass completes, and the ring of both.
  float *keys = nullptr, *gates = nullptr;
  // y[r] = product . x[r] in the same launch, for rows of the width of the residual; only where FinishesProduct.
  const model::Matrix* product = nullptr;
  const float* x = nullptr;
  float* y = nullptr;
};

// Few rows, and plain weights.
bool FinishesProduct(const StepContext& c, const model::Matrix& matrix);

Status FinishDsaRows(const StepContext& c, const DsaFinishing& what);

}  // namespace glint::cuda
