#include "plan/state_part.h"

#include <array>

namespace glint::plan {

std::string_view Name(StatePart::Kind kind) {
  constexpr std::array<std::string_view, static_cast<size_t>(StatePart::Kind::kCount)> kNames = {
      "kda state", "kda kf", "kda delta", "kda g", "conv", "latent", "pooled key", "raw key", "raw gate"};
  return kind < StatePart::Kind::kCount ? kNames[static_cast<size_t>(kind)] : "?";
}

}  // namespace glint::plan
