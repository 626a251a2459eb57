#include "model/file_type.h"

namespace glint::model {

using quant::Type;

uint32_t FileType(Type type) {
  switch (type) {
    case Type::kF32:
      return 0;
    case Type::kF16:
      return 1;
    case Type::kQ4_0:
      return 2;
    case Type::kQ4_1:
      return 3;
    case Type::kQ8_0:
      return 7;
    case Type::kQ5_0:
      return 8;
    case Type::kQ5_1:
      return 9;
    case Type::kQ2_K:
      return 10;
    case Type::kQ3_K:
      return 11;
    case Type::kQ4_K:
      return 14;
    case Type::kQ5_K:
      return 16;
    case Type::kQ6_K:
      return 18;
    case Type::kIQ2_XXS:
      return 19;
    case Type::kIQ2_XS:
      return 20;
    case Type::kIQ3_XXS:
      return 23;
    case Type::kIQ1_S:
      return 24;
    case Type::kIQ4_NL:
      return 25;
    case Type::kIQ3_S:
      return 26;
    case Type::kIQ2_S:
      return 28;
    case Type::kIQ4_XS:
      return 30;
    case Type::kIQ1_M:
      return 31;
    case Type::kBF16:
      return 32;
    case Type::kTQ1_0:
      return 36;
    case Type::kTQ2_0:
      return 37;
    case Type::kMXFP4:
      return 38;
    case Type::kNVFP4:
      return 39;
    default:
      return 1024;  // "guessed"
  }
}

}  // namespace glint::model
