// spec/model.md 4.2: the sublayer's output spread over the streams, the streams mixed. In place.
#include <algorithm>

#include "base/mutation.h"
#include "cpu/stages.h"

namespace glint::cpu {

void HcPost(const StepContext& c) {
  const int64_t d = c.hp.hidden, n = c.hp.hc_mult;
  float* const streams = c.Floats(plan::Slot::kStreams);
  const float* const branch = c.Floats(plan::Slot::kBranch);
  const float* const post = c.Floats(plan::Slot::kPost);
  const float* const comb = c.Floats(plan::Slot::kComb);
  c.Parallel(c.rows, 1, [&](int64_t begin, int64_t end, Scratch& scratch) {
    float* const next = scratch.Floats(0, n * d);
    for (int64_t r = begin; r < end; ++r) {
      float* const x = streams + r * n * d;
      for (int64_t h = 0; h < n; ++h) {
        float* const out = next + h * d;
        for (int64_t i = 0; i < d; ++i) out[i] = post[r * n + h] * branch[r * d + i];
      }
      CombineArgs args{};  // destination h takes source j with comb[j][h]
      args.a = comb + r * n * n;
      args.a_row = 1;
      args.a_step = n;
      args.x = x;
      args.x_stride = d;
      args.n = n;
      args.dst = next;
      args.dst_stride = d;
      if (Mutated(Mutation::kCombTransposed)) std::swap(args.a_row, args.a_step);
      args.rows = n;
      args.width = d;
      c.how.kernels->combine(args);
      std::copy(next, next + n * d, x);
    }
  });
}

}  // namespace glint::cpu
