// Matrix products in the canonical arithmetic (docs/design.md, "The canonical arithmetic, in full"): integer block products for
// quantised weights, Dot16 for F32, F16 and BF16. Every kernel table gives the same bits.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "model/matrix.h"

namespace glint::cpu {

// Activation rows made ready for one kind of weights: rounded to 16-bit digits per block of 32 with one scale (and the sum of the digits
// of every 16 columns, for minima), or the floats as they are.
struct Activations {
  int64_t rows = 0, columns = 0, padded = 0;  // padded: columns up to a multiple of 32
  const float* x = nullptr;                   // [rows] x_stride apart (float weights)
  int64_t x_stride = 0;
  std::vector<int16_t> digits;                // [rows][padded]
  std::vector<float> scales;                  // [rows][padded / 32]
  std::vector<int32_t> sums;                  // [rows][padded / 16]
};

// One way of computing (scalar, AVX2, AVX-512, NEON). The scalar one is the definition.
struct Kernels {
  const char* name;
  // y[r * y_stride + o] for weight rows o in [begin, end) of a slice and activation rows r in [0, x.rows).
  // Reads each weight row once for all activation rows. y counts from weight row 0.
  void (*rows)(const model::Matrix& w, int64_t slice, int64_t begin, int64_t end, const Activations& x, float* y,
               int64_t y_stride);
  void (*round)(const float* x, int64_t n, int16_t* digits, float* scales, int32_t* sums);  // one row of Activations
  float (*dot16)(const float* x, const float* y, int64_t n);
  // dst[i] = fma(a, x[i], dst[i])
  void (*axpy)(float a, const float* x, float* dst, int64_t n);
  // dst[i] = Exp(x[i])
  void (*exp)(const float* x, float* dst, int64_t n);
};

const Kernels& ScalarKernels();
const Kernels* Avx2Kernels();    // null if this machine or build has none
const Kernels* Avx512Kernels();
const Kernels* NeonKernels();

// How a step's products are to be carried out: set by the modifiers of a plan's step.
struct How {
  const Kernels* kernels;   // never null
  ThreadPool* pool;         // null: this thread alone
  bool batched;             // weights read once for all rows; otherwise row by row (same bits)
};

// Rounds rows of x (x_stride floats apart) for weights of w's format.
void Prepare(const How& how, const model::Matrix& w, const float* x, int64_t x_stride, int64_t rows, Activations& out);

// y[r][o] = W[slice][o] . x[r] for all rows; y_stride floats between rows of y.
void Product(const How& how, const model::Matrix& w, int64_t slice, const Activations& x, float* y, int64_t y_stride);
// The same, preparing x itself.
void Product(const How& how, const model::Matrix& w, int64_t slice, const float* x, int64_t x_stride, int64_t rows,
             float* y, int64_t y_stride);

}  // namespace glint::cpu
