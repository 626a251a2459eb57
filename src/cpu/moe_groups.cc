#include "cpu/moe_groups.h"

#include "base/mutation.h"

namespace glint::cpu {

std::vector<ExpertGroup> GroupByExpert(const StepContext& c) {
  const int32_t* const ids = c.Ints(plan::Slot::kExpertIds);
  const int64_t pairs = c.rows * c.hp.experts_used;
  const auto used = static_cast<int32_t>(c.hp.experts_used);
  std::vector<ExpertGroup> groups;
  std::vector<int32_t> group_of(static_cast<size_t>(c.hp.experts), -1);
  const bool together = c.how.batched && c.rows > 1;
  for (int64_t p = 0; p < pairs; ++p) {
    int32_t& g = group_of[ids[p]];
    if (g < 0 || !together) {
      g = static_cast<int32_t>(groups.size());
      groups.push_back({ids[p], {}, {}});
    }
    if (Mutated(Mutation::kExpertGetsOneRow) && !groups[g].pairs.empty()) continue;
    groups[g].pairs.push_back(static_cast<int32_t>(p));
    groups[g].rows.push_back(static_cast<int32_t>(p) / used);
  }
  // As their weights lie in memory: what a product asks for behind its tiles is then the next group's.
  if (together) {
    std::sort(groups.begin(), groups.end(),
              [](const ExpertGroup& a, const ExpertGroup& b) { return a.expert < b.expert; });
  }
  return groups;
}

}  // namespace glint::cpu
