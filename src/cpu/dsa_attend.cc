// spec/model.md 6, step 5, absorbed: each head's query is taken to the latent space, attends to the selected
// latent rows there, and their mix is brought back. One latent row serves as key and value of every head.
#include <algorithm>
#include <cmath>

#include "base/mutation.h"
#include "cpu/stages.h"

namespace glint::cpu {
namespace {

constexpr int64_t kPart = 128;  // entries of the list whose sums run on their own
// Heads that attend together, so that a latent row is loaded once for all of them.
constexpr int64_t kHeads = 8;
constexpr int64_t kRows = 128;  // rows that share an unpacked head of k_b and v_b; bounds the scratch

// What `heads` <= kHeads heads of one token attend to, and with what.
struct Attention {
  const float* latent;  // rows of `rank`
  const int32_t* list;  // [count] ascending
  const float* query;   // [heads], query_stride apart
  float* mix;           // the same: receives sum over the list of softmax(query . latent * scale) * latent
  int64_t heads, rank, count, query_stride;
  float scale;
};

// scores: scratch [count][kHeads]; part: [kHeads][rank].
void Attend(const Kernels& kernels, const Attention& t, float* scores, float* part) {
  if (t.heads < kHeads) std::fill(scores, scores + t.count * kHeads, 0.0f);
  DotsArgs dots{};
  dots.a = t.query, dots.a_stride = t.query_stride, dots.rows = t.heads;
  dots.x = t.latent, dots.index = t.list, dots.x_stride = t.rank, dots.n = t.count;
  dots.width = t.rank;
  dots.out = scores, dots.out_row = 1, dots.out_step = kHeads;
  kernels.dots(dots);
  float top[kHeads], sum[kHeads];
  for (int64_t i = 0; i < t.count; ++i) {
    float* const s = scores + i * kHeads;
    for (int64_t h = 0; h < kHeads; ++h) {
      s[h] *= t.scale;
      top[h] = i == 0 ? s[h] : std::max(top[h], s[h]);
    }
  }
  for (int64_t i = 0; i < t.count; ++i) {
    for (int64_t h = 0; h < kHeads; ++h) scores[i * kHeads + h] -= top[h];
  }
  kernels.exp(scores, scores, t.count * kHeads);

  for (int64_t begin = 0; begin < t.count; begin += kPart) {
    const int64_t end = std::min(begin + kPart, t.count);
    float part_sum[kHeads] = {};
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t h = 0; h < kHeads; ++h) part_sum[h] += scores[i * kHeads + h];
    }
    for (int64_t h = 0; h < kHeads; ++h) sum[h] = begin == 0 ? part_sum[h] : sum[h] + part_sum[h];
    CombineArgs args{};
    args.a = scores + begin * kHeads;
    args.a_row = 1, args.a_step = kHeads;
    args.x = t.latent;
    args.index = t.list + begin;
    args.x_stride = t.rank;
    args.n = end - begin;
    args.dst = begin == 0 ? t.mix : part;
    args.dst_stride = begin == 0 ? t.query_stride : t.rank;
    args.rows = t.heads, args.width = t.rank;
    for (int64_t h = 0; h < t.heads; ++h) std::fill_n(args.dst + h * args.dst_stride, t.rank, 0.0f);
    kernels.combine(args);
    for (int64_t h = 0; begin > 0 && h < t.heads; ++h) {
      for (int64_t d = 0; d < t.rank; ++d) t.mix[h * t.query_stride + d] += part[h * t.rank + d];
    }
  }
  for (int64_t h = 0; h < t.heads; ++h) {
    for (int64_t d = 0; d < t.rank; ++d) t.mix[h * t.query_stride + d] /= sum[h];
  }
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
  float* const kept = c.Keeps(plan::Slot::kMix) ? c.Floats(plan::Slot::kMix) : nullptr;
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(qk)));
  const How alone = c.Alone();

  const int64_t threads = c.how.pool != nullptr ? c.how.pool->threads() : 1;
  const int64_t together = std::clamp(heads / threads, int64_t{1}, kHeads);
  c.Parallel(heads, together, [&](int64_t begin, int64_t end, Scratch& scratch) {
    float* const query = scratch.Floats(0, together * kRows * rank);  // [together][kRows][rank]
    float* const mix = scratch.Floats(1, together * kRows * rank);
    float* const scores = scratch.Floats(2, width * kHeads);
    float* const part = scratch.Floats(3, kHeads * rank);
    for (int64_t head = begin; head < end; head += together) {
      const int64_t n = std::min(together, end - head);
      const SegmentView* segment = c.segments.data();
      for (int64_t first = 0; first < c.rows; first += kRows) {
        const int64_t rows = std::min(kRows, c.rows - first);
        for (int64_t h = 0; h < n; ++h)
          Operand(c, alone, q + (first * heads + head + h) * qk, heads * qk, rows, scratch)
              .Times(w.k_b, head + h, query + h * kRows * rank, rank);
        for (int64_t r = first; r < first + rows; ++r) {
          if (r == segment->first_row + segment->rows) ++segment;
          const float* const latent = segment->state->Dsa(c.layer_index()).latent;
          const int64_t at = (r - first) * rank;
          const int64_t count =
              counts[r] - (Mutated(Mutation::kAttendsNotToTheLast) && counts[r] > 1 ? 1 : 0);
          Attend(*c.how.kernels,
                 {latent, selected + r * width, query + at, mix + at, n, rank, count, kRows * rank, scale},
                 scores, part);
        }
        for (int64_t h = 0; kept != nullptr && h < n; ++h) {
          for (int64_t r = 0; r < rows; ++r)
            std::copy_n(mix + (h * kRows + r) * rank, rank, kept + ((first + r) * heads + head + h) * rank);
        }
        for (int64_t h = 0; h < n; ++h)
          Operand(c, alone, mix + h * kRows * rank, rank, rows, scratch)
              .Times(w.v_b, head + h, attended + (first * heads + head + h) * v, heads * v);
      }
    }
  });
}

}  // namespace glint::cpu
