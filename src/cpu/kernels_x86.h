// The tables of the x86 instruction sets. Reach them through Avx2Kernels and Avx512Kernels, which ask the processor.
#pragma once
#include "cpu/kernels.h"

namespace glint::cpu {

extern const Kernels kAvx2Table, kAvx512Table;

}  // namespace glint::cpu
