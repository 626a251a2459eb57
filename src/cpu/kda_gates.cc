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
  // Both low-rank pairs: their first halves in one loop, then their second ones.
  const int64_t rank = w.f_a.rows;
  float* const inner = c.scratch.Floats(0, c.rows * 2 * rank);  // [rows][2][rank]
  Products(c.Sharing(2 * rank * c.hp.hidden * c.rows),
           std::array{x.By(w.f_a, inner, 2 * rank), x.By(w.g_a, inner + rank, 2 * rank)});
  Operand f(c, c.how, inner, 2 * rank, c.rows, c.scratch, 2),
      g(c, c.how, inner + rank, 2 * rank, c.rows, c.scratch, 4);
  Products(c.Sharing(2 * rank * width * c.rows),
           std::array{f.By(w.f_b, decay, width), g.By(w.g_b, out_gate, width)});

  c.Parallel(c.rows, 1, [&](int64_t begin, int64_t end, Scratch&) {
    for (int64_t r = begin; r < end; ++r) {
      float* const d = decay + r * width;
      for (int64_t h = 0; h < heads; ++h) {
        for (int64_t i = h * dim; i < (h + 1) * dim; ++i)
          d[i] = w.a[h] * (d[i] + (Mutated(Mutation::kDecayWithoutBias) ? 0.0f : w.dt_bias[i]));
      }
      c.how.kernels->sigmoid(d, width);
      for (int64_t i = 0; i < width; ++i) d[i] = c.hp.gate_lower_bound * d[i];
      c.how.kernels->sigmoid(beta + r * heads, heads);
    }
  });
}

}  // namespace glint::cpu
