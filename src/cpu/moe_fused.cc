// Lever moe.fused, serving moe.gate_up: gate, up and SwiGLU of an expert's outputs in one go, so that neither
// product leaves the thread and the threads meet once.
#include "cpu/moe_groups.h"
#include "cpu/stages.h"

namespace glint::cpu {

void MoeFused(const StepContext& c) {
  const auto& w = c.layer->moe;
  const int64_t width = c.hp.expert_ffn;
  float* const hidden = c.Floats(plan::Slot::kMoeHidden);
  const Kernels& kernels = *c.how.kernels;
  Operand x(c, c.how, c.Floats(plan::Slot::kX), c.hp.hidden, c.rows, c.scratch);
  const Activations &for_gate = x.For(w.gate), &for_up = x.For(w.up);
  ForOutputs(c, GroupByExpert(c), width, 2 * c.hp.hidden,
             [&](const ExpertGroup& group, int64_t begin, int64_t end, Scratch& scratch) {
               const auto n = static_cast<int64_t>(group.pairs.size());
               float* const g = scratch.Floats(0, n * width);
               float* const u = scratch.Floats(1, n * width);
               const RowLists rows{group.rows.data(), nullptr};
               ProductPart(kernels, w.gate, group.expert, begin, end, for_gate, 0, n, g, width, rows);
               ProductPart(kernels, w.up, group.expert, begin, end, for_up, 0, n, u, width, rows);
               for (int64_t r = 0; r < n; ++r) {
                 kernels.swiglu(g + r * width + begin, u + r * width + begin, c.hp.swiglu_limit,
                                hidden + group.pairs[r] * width + begin, end - begin);
               }
             });
}

}  // namespace glint::cpu
