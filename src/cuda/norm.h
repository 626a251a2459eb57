// The RMS norm of rows that a product has left in device memory.
#pragma once
#include <cstdint>

#include "cuda/context.h"

namespace glint::cuda {

// out[r][i] = (in[r][i] * 1 / sqrt(Dot16(in[r], in[r]) / n + eps)) * w[i] for rows of n = w.size() floats; out may be in.
Status RmsNormRows(const StepContext& c, const float* in, model::Vector w, float eps, float* out,
                   int64_t rows, int64_t n);

}  // namespace glint::cuda
