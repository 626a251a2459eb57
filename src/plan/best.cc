#include "plan/best.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/mutation.h"

namespace glint::plan {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

// Of numbers above -infinity; that if there are none. Lanes that do not meet, so that compilers use vectors.
float Highest(std::span<const float> values) {
  std::array<float, 16> lanes;
  lanes.fill(kLowest);
  size_t i = 0;
  for (; i + lanes.size() <= values.size(); i += lanes.size()) {
    for (size_t l = 0; l < lanes.size(); ++l) lanes[l] = values[i + l] > lanes[l] ? values[i + l] : lanes[l];
  }
  for (; i < values.size(); ++i) lanes[0] = values[i] > lanes[0] ? values[i] : lanes[0];
  return *std::max_element(lanes.begin(), lanes.end());
}

}  // namespace

int32_t BestId(std::span<const float> logits) {
  constexpr size_t kBlock = 1024;
  float highest = kLowest;
  size_t block = 0;  // the first that holds it
  for (size_t i = 0; i < logits.size(); i += kBlock) {
    const float here = Highest(logits.subspan(i, std::min(kBlock, logits.size() - i)));
    const bool later = Mutated(Mutation::kBestOfALaterBlock) && here == highest && here > kLowest;
    if (here > highest || later) highest = here, block = i;
  }
  if (highest == kLowest) return -1;
  const auto first = logits.begin() + static_cast<std::ptrdiff_t>(block);
  return static_cast<int32_t>(std::find(first, logits.end(), highest) - logits.begin());
}

}  // namespace glint::plan
