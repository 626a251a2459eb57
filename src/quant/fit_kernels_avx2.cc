#include "quant/fit_kernels_x86.h"

#if defined(__x86_64__)
#include "quant/fit_kernels_lanes.h"

namespace glint::quant {

extern const FitKernels kAvx2FitTable = FitLoops<8>::Table("avx2");

}  // namespace glint::quant
#endif
