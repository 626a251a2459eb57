// spec/model.md 8.2, step 4: experts in ascending id, then the shared one.
#include <algorithm>

#include "cpu/stages.h"

namespace glint::cpu {

void MoeCombine(const StepContext& c) {
  const int64_t d = c.hp.hidden, used = c.hp.experts_used;
  const float* const expert_out = c.Floats(plan::Slot::kExpertOut);
  const float* const weights = c.Floats(plan::Slot::kExpertWeights);
  const float* const shared = c.Floats(plan::Slot::kSharedOut);
  float* const branch = c.Floats(plan::Slot::kBranch);
  c.Parallel(c.rows, 1, [&](int64_t begin, int64_t end, Scratch&) {
    for (int64_t r = begin; r < end; ++r) {
      float* const out = branch + r * d;
      std::fill(out, out + d, 0.0f);
      CombineArgs args{};
      args.a = weights + r * used;
      args.a_step = 1;
      args.x = expert_out + r * used * d;
      args.x_stride = d;
      args.n = used;
      args.dst = out;
      args.rows = 1;
      args.width = d;
      c.how.kernels->combine(args);
      for (int64_t i = 0; i < d; ++i) out[i] += shared[r * d + i];
    }
  });
}

}  // namespace glint::cpu
