#include "plan/buffers.h"

#include <algorithm>

#include "base/mutation.h"

namespace glint::plan {
namespace {

constexpr uint64_t kAlignment = 64;  // a cache line, and the widest vector

bool Contains(const std::vector<Slot>& slots, Slot slot) {
  return std::find(slots.begin(), slots.end(), slot) != slots.end();
}

// Both sorted, none overlapping within itself.
bool Meet(const std::vector<Life>& a, const std::vector<Life>& b) {
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    if (a[i].last < b[j].first) {
      ++i;
    } else if (b[j].last < a[i].first) {
      ++j;
    } else {
      return true;
    }
  }
  return false;
}

}  // namespace

std::vector<Life> Lives(std::span<const Step> steps, Slot slot) {
  std::vector<Life> lives;
  for (int i = 0; i < static_cast<int>(steps.size()); ++i) {
    const bool read = Contains(steps[i].in, slot), written = Contains(steps[i].out, slot);
    if (!read && !written) continue;
    if (lives.empty() || (written && !read)) {
      lives.push_back({i, i});
    } else {
      lives.back().last = Mutated(Mutation::kLifeOneStepShort) ? i - 1 : i;
    }
  }
  return lives;
}

BufferLayout LayOut(std::span<const Step> steps, const model::HParams& hp, int rows, bool keep_all) {
  constexpr auto kSlots = static_cast<size_t>(Slot::kCount);
  BufferLayout layout;
  layout.places.resize(kSlots);
  std::vector<std::vector<Life>> lives(kSlots);
  std::vector<size_t> order;
  for (size_t s = 0; s < kSlots; ++s) {
    const auto slot = static_cast<Slot>(s);
    if (slot == Slot::kLogits) continue;  // the caller's memory
    lives[s] = Lives(steps, slot);
    if (lives[s].empty()) continue;
    auto& place = layout.places[s];
    place.bytes = 4 * static_cast<uint64_t>(Width(slot, hp)) * static_cast<uint64_t>(rows);
    place.first_step = lives[s].front().first;
    place.last_step = lives[s].back().last;
    if (place.bytes != 0) order.push_back(s);
  }
  // Largest first, each at the lowest offset free of the slots it meets: close to the best there is for a few
  // dozen slots.
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return layout.places[a].bytes > layout.places[b].bytes; });
  std::vector<size_t> placed;
  for (const size_t s : order) {
    auto& place = layout.places[s];
    std::vector<size_t> taken;
    for (const size_t other : placed) {
      if (keep_all || Meet(lives[s], lives[other])) taken.push_back(other);
    }
    std::sort(taken.begin(), taken.end(),
              [&](size_t a, size_t b) { return layout.places[a].offset < layout.places[b].offset; });
    for (const size_t other : taken) {
      const auto& o = layout.places[other];
      if (place.offset + place.bytes <= o.offset) break;
      place.offset = std::max(place.offset, (o.offset + o.bytes + kAlignment - 1) / kAlignment * kAlignment);
    }
    layout.total_bytes = std::max(layout.total_bytes, place.offset + place.bytes);
    placed.push_back(s);
  }
  return layout;
}

}  // namespace glint::plan
