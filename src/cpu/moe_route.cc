// spec/model.md 8.2, steps 1 to 3: the router's choice, in ascending expert id, and its weights.
#include <algorithm>

#include "base/math.h"
#include "base/mutation.h"
#include "cpu/stages.h"

namespace glint::cpu {

void MoeRoute(const StepContext& c) {
  const auto& w = c.layer->moe;
  const int64_t experts = c.hp.experts, used = c.hp.experts_used;
  float* const logits = c.Floats(plan::Slot::kRouterLogits);
  int32_t* const ids = c.Ints(plan::Slot::kExpertIds);
  float* const weights = c.Floats(plan::Slot::kExpertWeights);
  Operand(c, c.how, c.Floats(plan::Slot::kX), c.hp.hidden, c.rows, c.scratch)
      .Times(w.router, 0, logits, experts);

  c.Parallel(c.rows, 1, [&](int64_t begin, int64_t end, Scratch& scratch) {
    auto& keys = scratch.Keys();
    for (int64_t r = begin; r < end; ++r) {
      const float* const logit = logits + r * experts;
      // The bias only selects; the weights are the plain sigmoids.
      keys.resize(static_cast<size_t>(experts));
      for (int64_t e = 0; e < experts; ++e) {
        keys[e] = RankKey(Sigmoid(logit[e]) + w.router_bias[e], static_cast<uint32_t>(e));
      }
      const auto cut = keys.begin() + used;
      if (used < experts) std::nth_element(keys.begin(), cut, keys.end(), std::greater<>());
      int32_t* const id = ids + r * used;
      for (int64_t k = 0; k < used; ++k) id[k] = static_cast<int32_t>(RankedIndex(keys[k]));
      std::sort(id, id + used);
      if (Mutated(Mutation::kExpertsUnsorted)) std::reverse(id, id + used);
      float* const weight = weights + r * used;
      float sum = 0;
      for (int64_t k = 0; k < used; ++k) {
        weight[k] = Sigmoid(logit[id[k]]);
        if (Mutated(Mutation::kWeightsWithTheBias)) weight[k] += w.router_bias[id[k]];
        sum += weight[k];
      }
      for (int64_t k = 0; k < used; ++k) {
        weight[k] = c.hp.routed_scale * weight[k];
        if (c.hp.norm_topk) weight[k] /= sum + c.hp.router_eps;
      }
    }
  });
}

}  // namespace glint::cpu
