// spec/model.md 8.2: the chosen experts' gate and up products, then SwiGLU.
#include "cpu/moe_groups.h"
#include "cpu/stages.h"

namespace glint::cpu {

void MoeGateUp(const StepContext& c) {
  const auto& w = c.layer->moe;
  const int64_t width = c.hp.expert_ffn, used = c.hp.experts_used, pairs = c.rows * used;
  float* const hidden = c.Floats(plan::Slot::kMoeHidden);  // [rows][used][expert_ffn]
  float* const g = c.scratch.Floats(0, pairs * width);
  Operand x(c, c.how, c.Floats(plan::Slot::kX), c.hp.hidden, c.rows, c.scratch);
  const auto groups = GroupByExpert(c);
  const auto product = [&](const model::Matrix& matrix, float* out) {
    const Activations& all = x.For(matrix);
    ForOutputs(c, groups, width, c.hp.hidden,
               [&](const ExpertGroup& group, int64_t begin, int64_t end, Scratch&) {
                 ProductPart(*c.how.kernels, matrix, group.expert, begin, end, all, 0,
                             static_cast<int64_t>(group.pairs.size()), out, width,
                             {group.rows.data(), group.pairs.data()});
               });
  };
  product(w.gate, g);
  product(w.up, hidden);
  c.Parallel(pairs, 1, [&](int64_t begin, int64_t end, Scratch&) {
    for (int64_t p = begin; p < end; ++p) {
      c.how.kernels->swiglu(g + p * width, hidden + p * width, c.hp.swiglu_limit, hidden + p * width, width);
    }
  });
}

}  // namespace glint::cpu
