#include "quant/fit_kernels_x86.h"

#if defined(__x86_64__)
#include "quant/fit_kernels_lanes.h"

namespace glint::quant {

extern const FitKernels kAvx512FitTable = FitLoops<16>::Table("avx512");

}  // namespace glint::quant
#endif
