// spec/model.md 10.2, steps 2 and 3: the next token's embedding and the trunk's hidden state, each
// normalised, projected together.
#include <algorithm>

#include "base/mutation.h"
#include "cpu/stages.h"

namespace glint::cpu {

void MtpInput(const StepContext& c) {
  const auto& w = c.weights.nextn[0];
  const int64_t d = c.hp.hidden;
  float* const joined = c.scratch.Floats(0, c.rows * 2 * d);  // [rows][embedding | hidden]
  c.Parallel(c.rows, 1, [&](int64_t begin, int64_t end, Scratch&) {
    for (int64_t r = begin; r < end; ++r) {
      float* const row = joined + r * 2 * d;
      DecodeRow(c.weights.embedding, c.batch.tokens[r], row);
      RmsNorm(*c.how.kernels, row, w.enorm, c.hp.rms_eps, row);
      RmsNorm(*c.how.kernels, c.batch.hidden_in + r * d, w.hnorm, c.hp.rms_eps, row + d);
    }
  });
  if (Mutated(Mutation::kMtpHalvesSwapped)) {
    for (int64_t r = 0; r < c.rows; ++r)
      std::swap_ranges(joined + 2 * r * d, joined + (2 * r + 1) * d, joined + (2 * r + 1) * d);
  }
  if (c.Keeps(plan::Slot::kJoined)) std::copy_n(joined, c.rows * 2 * d, c.Floats(plan::Slot::kJoined));
  Operand(c, c.how, joined, 2 * d, c.rows, c.scratch).Times(w.eh_proj, 0, c.Floats(plan::Slot::kResidual), d);
}

}  // namespace glint::cpu
