#include "cpu/kernels.h"

namespace glint::cpu {

const Kernels* Avx2Kernels() { return nullptr; }

}  // namespace glint::cpu
