// The tables of the x86 instruction sets. Reach them through Avx2Kernels, Avx512Kernels and Avx512VbmiKernels, which ask the processor.
#pragma once
#include "cpu/kernels.h"

namespace glint::cpu {

extern const Kernels kAvx2Table, kAvx512Table, kAvx512VbmiTable;

// Products with the weights of a family of formats; false: not one of it. In files of their own to compile side by side.
bool BlockRowsAvx2(const RowsArgs& a);
bool SuperblockRowsAvx2(const RowsArgs& a);
bool GridRowsAvx2(const RowsArgs& a);
bool BlockRowsAvx512(const RowsArgs& a);
bool SuperblockRowsAvx512(const RowsArgs& a);
bool GridRowsAvx512(const RowsArgs& a);
bool GridRowsAvx512Vbmi(const RowsArgs& a);

}  // namespace glint::cpu
