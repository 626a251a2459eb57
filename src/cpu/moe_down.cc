#include "cpu/moe_groups.h"
#include "cpu/stages.h"

namespace glint::cpu {

void MoeDown(const StepContext& c) {
  const model::Matrix& w = c.layer->moe.down;
  const int64_t pairs = c.rows * c.hp.experts_used, d = c.hp.hidden;
  float* const out = c.Floats(plan::Slot::kExpertOut);  // [rows][used][D]
  Operand x(c, c.how, c.Floats(plan::Slot::kMoeHidden), c.hp.expert_ffn, pairs, c.scratch);
  const Activations& all = x.For(w);
  ForOutputs(c, GroupByExpert(c), d, c.hp.expert_ffn,
             [&](const ExpertGroup& group, int64_t begin, int64_t end, int64_t after, Scratch&) {
               ProductPart(*c.how.kernels, w, group.expert, begin, end, all, 0,
                           static_cast<int64_t>(group.pairs.size()), out, d,
                           {group.pairs.data(), group.pairs.data()}, after < 0 ? nullptr : w.Row(after, 0));
             });
}

}  // namespace glint::cpu
