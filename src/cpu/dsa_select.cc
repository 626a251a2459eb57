// spec/model.md 7.3 and 7.4: which positions a query attends to: the best complete pools, and the open tail.
#include <algorithm>
#include <cmath>

#include "base/mutation.h"
#include "cpu/stages.h"

namespace glint::cpu {
namespace {

struct Query {
  const float* q;       // [heads][dim]
  const float* w;       // [heads]
  const float* pooled;  // [pools][dim]
  int64_t heads, dim;
  float scale;  // heads^-1/2 * dim^-1/2
};

// dots: scratch [kPools][heads].
constexpr int64_t kPools = 64;
void Score(const Kernels& kernels, const Query& query, int64_t begin, int64_t end, float* dots,
           float* scores) {
  for (; begin < end; begin += kPools) {
    const int64_t n = std::min(kPools, end - begin);
    DotsArgs args{};
    args.a = query.q, args.a_stride = query.dim, args.rows = query.heads;
    args.x = query.pooled + begin * query.dim, args.x_stride = query.dim, args.n = n, args.width = query.dim;
    args.out = dots, args.out_row = 1, args.out_step = query.heads;
    kernels.dots(args);
    for (int64_t p = 0; p < n; ++p) {
      float sum = 0;
      for (int64_t h = 0; h < query.heads; ++h) {
        // std::max(NaN, 0) is NaN: it must not turn into a score of zero.
        sum = std::fma(query.w[h], std::max(dots[p * query.heads + h], 0.0f), sum);
      }
      scores[begin + p] = sum * query.scale;
    }
  }
}

// The `keep` best of `pools` in ascending order, as positions.
void TakeBest(const float* scores, int64_t pools, int64_t keep, int64_t pool, std::vector<uint64_t>& keys,
              int32_t* out) {
  keys.resize(static_cast<size_t>(pools));
  for (int64_t p = 0; p < pools; ++p) keys[p] = RankKey(scores[p], static_cast<uint32_t>(p));
  const auto cut = keys.begin() + keep;
  std::nth_element(keys.begin(), cut, keys.end(), std::greater<>());
  for (auto key = keys.begin(); key != cut; ++key) *key = RankedIndex(*key);
  std::sort(keys.begin(), cut);
  for (int64_t i = 0; i < keep; ++i) {
    for (int64_t s = 0; s < pool; ++s)
      *out++ = static_cast<int32_t>(static_cast<int64_t>(keys[i]) * pool + s);
  }
}

}  // namespace

void DsaSelect(const StepContext& c) {
  const int64_t heads = c.hp.index_heads, dim = c.hp.index_head_dim, pool = c.hp.index_kpool;
  const int64_t keep = c.hp.pools_kept() - (Mutated(Mutation::kSelectsOnePoolLess) ? 1 : 0),
                width = c.hp.max_selected();
  const float* const q = c.Floats(plan::Slot::kIndexQ);
  const float* const w = c.Floats(plan::Slot::kIndexW);
  int32_t* const selected = c.Ints(plan::Slot::kSelected);
  int32_t* const counts = c.Ints(plan::Slot::kSelectedCount);
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(heads * dim)));
  const Kernels& kernels = *c.how.kernels;

  for (const SegmentView& segment : c.segments) {
    const float* const pooled = segment.state->Dsa(c.layer_index()).pooled;
    // Scores of a row; `scores` null: computed here, by this thread alone.
    const auto select = [&](int64_t row, const float* scores, Scratch& scratch) {
      const int64_t r = segment.first_row + row, visible = segment.position + row + 1, pools = visible / pool;
      int32_t* out = selected + r * width;
      if (pools <= keep) {  // everything: no score is needed
        for (int64_t p = 0; p < visible; ++p) out[p] = static_cast<int32_t>(p);
        counts[r] =
            static_cast<int32_t>(Mutated(Mutation::kSelectsNotItself) && visible > 1 ? visible - 1 : visible);
      } else {
        if (scores == nullptr) {
          float* const own = scratch.Floats(0, pools);
          Score(kernels, {q + r * heads * dim, w + r * heads, pooled, heads, dim, scale}, 0, pools,
                scratch.Floats(1, kPools * heads), own);
          scores = own;
        }
        TakeBest(scores, pools, keep, pool, scratch.Keys(), out);
        int64_t count = keep * pool;
        for (int64_t p = pools * pool; p < visible; ++p) out[count++] = static_cast<int32_t>(p);
        counts[r] = static_cast<int32_t>(count);
      }
      std::fill(out + counts[r], out + width, -1);
    };
    if (c.how.pool != nullptr && segment.rows < c.how.pool->threads()) {
      // Too few rows to share out: share out each row's pools.
      for (int64_t row = 0; row < segment.rows; ++row) {
        const int64_t r = segment.first_row + row, pools = (segment.position + row + 1) / pool;
        float* scores = nullptr;
        if (pools > keep) {
          scores = c.scratch.Floats(0, pools);
          const Query query{q + r * heads * dim, w + r * heads, pooled, heads, dim, scale};
          c.Parallel(pools, 64, [&](int64_t begin, int64_t end, Scratch& worker) {
            Score(kernels, query, begin, end, worker.Floats(1, kPools * heads), scores);
          });
        }
        select(row, scores, c.scratch);
      }
    } else {
      c.Parallel(segment.rows, 1, [&](int64_t begin, int64_t end, Scratch& scratch) {
        for (int64_t row = begin; row < end; ++row) select(row, nullptr, scratch);
      });
    }
  }
}

}  // namespace glint::cpu
