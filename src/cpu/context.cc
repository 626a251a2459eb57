#include "cpu/context.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/math.h"
#include "base/mutation.h"

namespace glint::cpu {

float* Scratch::Floats(size_t i, int64_t n) {
  auto& area = areas_[i];
  if (area.size() < static_cast<size_t>(n)) area.resize(static_cast<size_t>(n));
  if (poison_) std::fill(area.begin(), area.end(), std::numeric_limits<float>::quiet_NaN());
  return area.data();
}

const Activations& Operand::For(const model::Matrix& w) {
  const quant::Format* format = quant::Find(w.type);
  const size_t kind = format != nullptr && format->integer() ? 1 : 0;
  Activations& prepared = scratch_.Prepared(first_ + kind);
  if (!ready_[kind]) {
    Prepare(how_, w, x_, x_stride_, rows_, prepared);
    ready_[kind] = true;
  }
  return prepared;
}

float InverseRms(const Kernels& kernels, const float* x, int64_t n, float eps) {
  return 1.0f / std::sqrt(kernels.dot16(x, x, n) / static_cast<float>(n) + eps);
}

void RmsNorm(const Kernels& kernels, const float* x, model::Vector w, float eps, float* y) {
  const auto n = static_cast<int64_t>(w.size());
  const float r = InverseRms(kernels, x, n, eps);
  for (int64_t i = 0; i < n; ++i) y[i] = (x[i] * r) * w[i];
}

void SublayerNorm(const StepContext& c, model::Vector w) {
  const int64_t d = c.hp.hidden;
  const float* const in =
      c.Floats(c.pass == plan::Pass::kTrunk ? plan::Slot::kCollapsed : plan::Slot::kResidual);
  float* const out = c.Floats(plan::Slot::kX);
  c.Parallel(c.rows, 1, [&](int64_t begin, int64_t end, Scratch&) {
    for (int64_t r = begin; r < end; ++r) RmsNorm(*c.how.kernels, in + r * d, w, c.hp.rms_eps, out + r * d);
  });
}

void DecodeRow(const model::Matrix& w, int64_t row, float* out) {
  quant::Find(w.type)->decode(w.Row(0, row), out, static_cast<size_t>(w.columns));
  for (int64_t i = 0; w.scales && i < w.columns; ++i) out[i] *= w.scales[0];
}

uint64_t RankKey(float score, uint32_t index) {
  uint32_t rank = 0;  // NaN
  if (!std::isnan(score)) {
    const auto bits = std::bit_cast<uint32_t>(score == 0 ? 0.0f : score);  // both zeros are one score
    rank = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  }
  return uint64_t{rank} << 32 | (Mutated(Mutation::kTieToTheHigher) ? index : ~index);
}

}  // namespace glint::cpu
