// The tables of the x86 instruction sets. Reach them through Avx2FitKernels and Avx512FitKernels, which ask the processor.
#pragma once
#include "quant/fit_kernels.h"

namespace glint::quant {

extern const FitKernels kAvx2FitTable, kAvx512FitTable;

}  // namespace glint::quant
