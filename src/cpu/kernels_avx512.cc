#include "cpu/kernels.h"

namespace glint::cpu {

const Kernels* Avx512Kernels() { return nullptr; }

}  // namespace glint::cpu
