#include "cpu/kernels.h"

namespace glint::cpu {

const Kernels* NeonKernels() { return nullptr; }

}  // namespace glint::cpu
