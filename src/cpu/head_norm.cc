// spec/model.md 3 and 10.2: the mean of the streams (the MTP block has but one), then the final norm.
#include <algorithm>

#include "base/mutation.h"
#include "cpu/stages.h"

namespace glint::cpu {

void HeadNorm(const StepContext& c) {
  const int64_t d = c.hp.hidden, n = c.hp.hc_mult;
  const bool trunk = c.pass == plan::Pass::kTrunk;
  const float* const in = c.Floats(trunk ? plan::Slot::kStreams : plan::Slot::kResidual);
  const model::Vector w = trunk ? c.weights.output_norm : c.weights.nextn[0].shared_head_norm;
  float* const out = c.Floats(plan::Slot::kFinal);
  c.Parallel(c.rows, 1, [&](int64_t begin, int64_t end, Scratch&) {
    for (int64_t r = begin; r < end; ++r) {
      float* const y = out + r * d;
      if (trunk) {
        const float* const x = in + r * n * d;
        std::copy(x, x + d, y);
        for (int64_t h = Mutated(Mutation::kMeanWithoutAStream) ? 2 : 1; h < n; ++h) {
          for (int64_t i = 0; i < d; ++i) y[i] += x[h * d + i];
        }
        for (int64_t i = 0; i < d; ++i) y[i] /= static_cast<float>(n);
      } else {
        std::copy(in + r * d, in + (r + 1) * d, y);
      }
      RmsNorm(*c.how.kernels, y, w, c.hp.rms_eps, y);
      if (c.batch.final_out != nullptr) std::copy(y, y + d, c.batch.final_out + r * d);
    }
  });
}

}  // namespace glint::cpu
