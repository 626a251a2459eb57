// spec/model.md 5.1 and 5.2: a short causal convolution over time, SiLU, then q and k to unit length head by
// head.
#include <algorithm>
#include <cmath>

#include "base/mutation.h"
#include "cpu/stages.h"

namespace glint::cpu {
namespace {

// Rows of one sequence as the convolution sees them: of this pass, or kept from before, or nothing before the
// start.
struct History {
  const float* pass;  // [rows][3 * width]
  const float* kept;  // [ring][3 * width]
  int64_t position, ring, channels;
  const float* Row(int64_t p) const {
    if (p < 0) return nullptr;
    return p >= position ? pass + (p - position) * channels : kept + p % ring * channels;
  }
};

}  // namespace

void KdaConv(const StepContext& c) {
  const int64_t width = c.hp.kda_width(), dim = c.hp.kda_head_dim, taps = c.hp.conv_kernel,
                channels = 3 * width;
  const auto& w = c.layer->kda;
  const std::array<model::Vector, 3> conv = {w.conv_q, w.conv_k, w.conv_v};
  const Kernels& kernels = *c.how.kernels;
  const float* const u = c.Floats(plan::Slot::kU);
  float* const qkv = c.Floats(plan::Slot::kQkv);
  const float q_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim)));

  for (const SegmentView& segment : c.segments) {
    const plan::StateLayout& layout = segment.state->layout();
    float* const kept = segment.state->Kda(c.layer_index()).conv;
    const History history{u + segment.first_row * channels, kept, segment.position, layout.conv_ring,
                          channels};

    // One piece of work is a head of q, k or v, over all rows.
    c.Parallel(
        3 * c.hp.kda_heads, c.Share(3 * c.hp.kda_heads, 64 * dim * segment.rows, 1),
        [&](int64_t begin, int64_t end, Scratch&) {
          // Rows outside: what a row holds for these pieces lies together.
          std::vector<const float*> in(static_cast<size_t>(taps));
          for (int64_t row = 0; row < segment.rows; ++row) {
            for (int64_t piece = begin; piece < end; ++piece) {
              const int64_t part = piece / c.hp.kda_heads, channel = piece * dim;  // of the 3 * width
              float* const out = qkv + (segment.first_row + row) * channels + channel;
              for (int64_t tap = 0; tap < taps; ++tap) {
                const float* const from = history.Row(segment.position + row - (taps - 1) + tap);
                in[static_cast<size_t>(tap)] = from == nullptr ? nullptr : from + channel;
              }
              kernels.conv({conv[part].data() + (channel - part * width) * taps, in.data(), taps, dim, out});
              if (part == 2) continue;
              const float norm = std::sqrt(kernels.dot16(out, out, dim) + c.hp.l2_eps);
              for (int64_t j = 0; j < dim; ++j) out[j] = out[j] / norm;
              if (part == 0) {
                for (int64_t j = 0; j < dim; ++j) out[j] = out[j] * q_scale;
              }
            }
          }
        });

    // Only now, when nobody reads the history any more, the pass's last rows take its place.
    const int64_t stale = Mutated(Mutation::kConvRingStale) ? segment.rows : 0;
    for (int64_t r = std::max(stale, segment.rows - layout.conv_ring); r < segment.rows; ++r) {
      const float* const row = history.pass + r * channels;
      std::copy(row, row + channels, kept + (segment.position + r) % layout.conv_ring * channels);
    }
  }
}

}  // namespace glint::cpu
