// The inner loops of the encoders' searches: sixteen candidate scales (or scales and minima) tried on one unit at a time, one a lane.
// No lane meets another and every sum runs over the weights in order, so that the bits do not depend on the instruction set.
//
// Arguments: x, w: [n], the weights and what an error of each costs; all lane arrays: [kFitLanes]. Codes are the nearest within
// [low, high], ties to even. Everything is finite; a step or a determinant of 0 gives codes of 0 and a loss of 1.
#pragma once
#include <cstddef>

namespace glint::quant {

inline constexpr size_t kFitLanes = 16;

struct FitKernels {
  const char* name;

  // Lane: a first guess of 1 / scale for x ~ scale * code, improved by least squares `rounds` times. loss is minus what the best scale
  // seen saves of sum w x^2 with the codes it came from, 1 where all codes were 0; scale has the sign of the inverse or the other.
  void (*scale)(const float* x, const float* w, size_t n, float low, float high, int rounds,
                const float* inverse, float* loss, float* scale);

  // Lane: a first guess, code = inverse * x + offset, of x ~ scale * code + minimum with code in [0, high] and minimum <= most,
  // improved by least squares `rounds` times. x must have the weighted mean 0; sum_w is that of w.
  void (*line)(const float* x, const float* w, size_t n, float sum_w, float high, float most, int rounds,
               const float* inverse, const float* offset, float* loss, float* scale, float* minimum);

  // error[lane] = sum w (x - (step * code + minimum))^2, code the nearest.
  void (*error)(const float* x, const float* w, size_t n, float low, float high, const float* step,
                const float* minimum, float* error);

  // The same without a minimum.
  void (*scale_error)(const float* x, const float* w, size_t n, float low, float high, const float* step,
                      float* error);

  // The same with the values of E2M1 (quant/fp4.h) in place of codes.
  void (*fp4_error)(const float* x, const float* w, size_t n, const float* step, float* error);
};

// What this processor runs fastest; all give the same bits. The other functions are for the test of that.
const FitKernels& BestFitKernels();
const FitKernels& PlainFitKernels();
const FitKernels* Avx2FitKernels();    // null: not here
const FitKernels* Avx512FitKernels();  // null: not here

}  // namespace glint::quant
