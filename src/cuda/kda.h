// The stages between kda.qkv and kda.out over memory of the caller's choice: the canonical stages have theirs in slots, a lever that
// covers several keeps what lies between them to itself.
#pragma once
#include "cuda/context.h"

namespace glint::cuda {

// Layouts are those of the slots: u, qkv [rows][3][H * K]; decay, gate, mixed, out [rows][H * K]; beta [rows][H].
Status KdaQkvOf(const StepContext& c, float* u);
Status KdaConvOf(const StepContext& c, const float* u, float* qkv);
Status KdaGatesOf(const StepContext& c, float* decay, float* beta, float* gate);
Status KdaRecurOf(const StepContext& c, const float* qkv, const float* decay, const float* beta,
                  float* mixed);
Status KdaNormOf(const StepContext& c, const float* mixed, const float* gate, float* out);

}  // namespace glint::cuda
