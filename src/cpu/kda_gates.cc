// spec/model.md 5.2 and 5.5: forget gate (log-decay), beta, and the output gate before its sigmoid.
#include "base/mutation.h"
#include "cpu/stages.h"

namespace glint::cpu {

void KdaGates(const StepContext& c) {
  const int64_t width = c.hp.kda_width(), dim = c.hp.kda_head_dim, heads = c.hp.kda_heads;
  const auto& w = c.layer->kda;
  float* const decay = c.Floats(plan::Slot::kDecay);
  float* const beta = c.Floats(plan::Slot::kBeta);
  float* const out_gate = c.Floats(plan::Slot::kOutGate);

  Operand x(c, c.how, c.Floats(plan::Slot::kX), c.hp.hidden, c.rows, c.scratch);
  x.Times(w.beta, 0, beta, heads);
  const auto low_rank = [&](const model::Matrix& a, const model::Matrix& b, float* out) {
    float* const inner = c.scratch.Floats(0, c.rows * a.rows);
    x.Times(a, 0, inner, a.rows);
    Operand(c, c.how, inner, a.rows, c.rows, c.scratch, 2).Times(b, 0, out, width);
  };
  low_rank(w.f_a, w.f_b, decay);
  low_rank(w.g_a, w.g_b, out_gate);

  c.Parallel(c.rows, 1, [&](int64_t begin, int64_t end, Scratch&) {
    for (int64_t r = begin; r < end; ++r) {
      float* const g = decay + r * width;
      for (int64_t h = 0; h < heads; ++h) {
        for (int64_t i = h * dim; i < (h + 1) * dim; ++i)
          g[i] = w.a[h] * (g[i] + (Mutated(Mutation::kDecayWithoutBias) ? 0.0f : w.dt_bias[i]));
      }
      c.how.kernels->sigmoid(g, width);
      for (int64_t i = 0; i < width; ++i) g[i] = c.hp.gate_lower_bound * g[i];
      c.how.kernels->sigmoid(beta + r * heads, heads);
    }
  });
}

}  // namespace glint::cpu
