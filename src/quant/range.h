// Which weights have a place in a format.
#pragma once
#include <limits>

#include "quant/format.h"

namespace glint::quant {

// The least magnitude that is refused: it has no place in a float, or in the half that scales a block. Infinity where every float has
// one.
inline float TooLarge(Type type) {
  switch (type) {
    case Type::kF32:
    case Type::kMXFP4:  // scales by powers of two up to the largest
    case Type::kNVFP4:  // has a second scale, a float
      return std::numeric_limits<float>::infinity();
    case Type::kBF16:
      return 0x1.ffp127f;  // rounds to infinity
    case Type::kQ8_0:
      return 65504.0f * 125;  // the largest code is 125 at the least (quant/q8_0.h), and the scale a half
    default:
      return 65520;  // as a half it rounds to infinity; half the distance above the largest
  }
}

}  // namespace glint::quant
