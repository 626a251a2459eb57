// Which rows each expert works on, and loops over them: shared by the routed experts' stages.
#pragma once
#include <algorithm>
#include <vector>

#include "cpu/context.h"

namespace glint::cpu {

// Pairs of a row and one of its experts, numbered row * experts_used + k, that go through one expert
// together.
struct ExpertGroup {
  int64_t expert;
  std::vector<int32_t> pairs;  // ascending
  std::vector<int32_t> rows;   // of the pairs
};

// how.batched: one group for each expert in use, so that its weights are read once. Otherwise a group for
// each pair.
std::vector<ExpertGroup> GroupByExpert(const StepContext& c);

// fn(group, begin, end, after, scratch) over outputs [0, outputs) of each group, cut anywhere. Each output is a sum over `columns`.
// after: the expert whose outputs from 0 on come next in this thread; negative: those of this one from `end` on, or nothing.
template <class F>
void ForOutputs(const StepContext& c, const std::vector<ExpertGroup>& groups, int64_t outputs,
                int64_t columns, F&& fn) {
  // 32 outputs are 128 bytes of a row: threads seldom share a cache line.
  const auto all = static_cast<int64_t>(groups.size());
  c.Parallel(all * outputs, c.Share(all * outputs, columns, 32),
             [&](int64_t begin, int64_t end, Scratch& scratch) {
               while (begin < end) {
                 const int64_t group = begin / outputs, first = begin % outputs;
                 const int64_t last = std::min(outputs, first + end - begin);
                 const int64_t after = last == outputs && group + 1 < all ? groups[group + 1].expert : -1;
                 fn(groups[group], first, last, after, scratch);
                 begin += last - first;
               }
             });
}

}  // namespace glint::cpu
