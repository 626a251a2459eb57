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
  const Activations &for_gate = x.For(w.gate), &for_up = x.For(w.up);
  // Both products and the activation of some outputs after one another: nobody waits for others in between, and what is to be read next is
  // known.
  ForOutputs(c, GroupByExpert(c), width, 2 * c.hp.hidden,
             [&](const ExpertGroup& group, int64_t begin, int64_t end, int64_t after, Scratch&) {
               const auto rows = static_cast<int64_t>(group.pairs.size());
               const RowLists lists{group.rows.data(), group.pairs.data()};
               ProductPart(*c.how.kernels, w.gate, group.expert, begin, end, for_gate, 0, rows, g, width,
                           lists, w.up.Row(group.expert, begin));
               ProductPart(*c.how.kernels, w.up, group.expert, begin, end, for_up, 0, rows, hidden, width,
                           lists, after < 0 ? w.gate.Row(group.expert, end) : w.gate.Row(after, 0));
               for (const int32_t p : group.pairs) {
                 float* const h = hidden + p * width + begin;
                 c.how.kernels->swiglu(g + p * width + begin, h, c.hp.swiglu_limit, h, end - begin);
               }
             });
}

}  // namespace glint::cpu
