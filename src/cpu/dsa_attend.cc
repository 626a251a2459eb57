// spec/model.md 6, step 5, absorbed: each head's query is taken to the latent space, attends to the selected
// latent rows there, and their mix is brought back. One latent row serves as key and value of every head.
#include <algorithm>
#include <cmath>

#include "cpu/stages.h"

namespace glint::cpu {
namespace {

constexpr int64_t kPart = 128;  // entries of the list whose sums run on their own

// mix = sum over the list of softmax(query . latent * scale) * latent. scores [count] and part [rank] are
// scratch.
void Attend(const Kernels& kernels, const float* query, const float* latent, int64_t rank,
            const int32_t* list, int64_t count, float scale, float* scores, float* part, float* mix) {
  for (int64_t i = 0; i < count; ++i) scores[i] = kernels.dot16(query, latent + list[i] * rank, rank) * scale;
  float top = scores[0];
  for (int64_t i = 1; i < count; ++i) top = std::max(top, scores[i]);
  for (int64_t i = 0; i < count; ++i) scores[i] -= top;
  kernels.exp(scores, scores, count);

  float sum = 0;
  for (int64_t begin = 0; begin < count; begin += kPart) {
    const int64_t end = std::min(begin + kPart, count);
    float* const to = begin == 0 ? mix : part;
    std::fill(to, to + rank, 0.0f);
    float part_sum = 0;
    for (int64_t i = begin; i < end; ++i) {
      part_sum += scores[i];
    }
    CombineArgs args{};
    args.a = scores + begin;
    args.a_step = 1;
    args.x = latent;
    args.index = list + begin;
    args.x_stride = rank;
    args.n = end - begin;
    args.dst = to;
    args.rows = 1;
    args.width = rank;
    kernels.combine(args);
    if (begin == 0) {
      sum = part_sum;
    } else {
      sum += part_sum;
      for (int64_t d = 0; d < rank; ++d) mix[d] += part[d];
    }
  }
  for (int64_t d = 0; d < rank; ++d) mix[d] /= sum;
}

}  // namespace

void DsaAttend(const StepContext& c) {
  const auto& w = c.layer->dsa;
  const int64_t heads = c.hp.heads, qk = c.hp.qk_head_dim, v = c.hp.v_head_dim, rank = c.hp.kv_lora_rank;
  const int64_t width = c.hp.max_selected();
  const float* const q = c.Floats(plan::Slot::kQ);
  const int32_t* const selected = c.Ints(plan::Slot::kSelected);
  const int32_t* const counts = c.Ints(plan::Slot::kSelectedCount);
  float* const attended = c.Floats(plan::Slot::kAttended);
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(qk)));
  const How alone = c.Alone();

  c.Parallel(heads, 1, [&](int64_t begin, int64_t end, Scratch& scratch) {
    float* const query = scratch.Floats(0, c.rows * rank);
    float* const mix = scratch.Floats(1, c.rows * rank);
    float* const scores = scratch.Floats(2, width);
    float* const part = scratch.Floats(3, rank);
    for (int64_t h = begin; h < end; ++h) {
      Operand(c, alone, q + h * qk, heads * qk, c.rows, scratch).Times(w.k_b, h, query, rank);
      for (const SegmentView& segment : c.segments) {
        const float* const latent = segment.state->Dsa(c.layer_index()).latent;
        for (int64_t r = segment.first_row; r < segment.first_row + segment.rows; ++r) {
          Attend(*c.how.kernels, query + r * rank, latent, rank, selected + r * width, counts[r], scale,
                 scores, part, mix + r * rank);
        }
      }
      Operand(c, alone, mix, rank, c.rows, scratch).Times(w.v_b, h, attended + h * v, heads * v);
    }
  });
}

}  // namespace glint::cpu
