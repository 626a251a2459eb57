// The kernels of fit_kernels.h for registers of kWidth floats. Included once by each fit_kernels*.cc, which is built with the flags of
// an instruction set. All of it is in an unnamed namespace, and no std:: template is used: nothing instantiated here may be
// merged with code of another file and so run where the set is missing.
#pragma once
#include <cstddef>
#include <cstring>

#include "quant/fit_kernels.h"

namespace glint::quant {
namespace {

template <size_t kWidth>
struct FitLoops {
  using V [[gnu::vector_size(kWidth * sizeof(float))]] = float;
  using Mask [[gnu::vector_size(kWidth * sizeof(int))]] = int;
  static constexpr size_t kParts = kFitLanes / kWidth;

  static V All(float v) { return V{} + v; }
  static V Load(const float* at) {
    V v;
    std::memcpy(&v, at, sizeof v);
    return v;
  }
  static void Store(const V& v, float* at) { std::memcpy(at, &v, sizeof v); }
  static V Min(const V& a, const V& b) { return a < b ? a : b; }
  static V Max(const V& a, const V& b) { return a > b ? a : b; }
  static V Abs(const V& v) { return Max(v, -v); }
  // To the nearest integer, ties to even: beyond 1.5 * 2^23 a float has no bits for a fraction. |v| < 2^22.
  static V Nearest(const V& v) { return (v + 12582912.0f) - 12582912.0f; }
  // 1 / v where that is finite, else 0.
  static V Inverse(const V& v) { return Abs(v) > 0x1p-100f ? 1.0f / v : V{}; }

  static void Scale(const float* x, const float* w, size_t n, float low, float high, int rounds,
                    const float* inverse, float* loss, float* scale) {
    const V lowest = All(low), highest = All(high);
    V inv[kParts], best[kParts], at[kParts];
    for (size_t p = 0; p < kParts; ++p) inv[p] = Load(inverse + p * kWidth), best[p] = All(-1), at[p] = V{};
    for (int round = 0; round < rounds; ++round) {
      V xc[kParts] = {}, cc[kParts] = {};
      for (size_t i = 0; i < n; ++i) {
        const V xi = All(x[i]), wi = All(w[i]);
#pragma GCC unroll 4
        for (size_t p = 0; p < kParts; ++p) {
          const V code = Nearest(Max(Min(xi * inv[p], highest), lowest)), weighted = wi * code;
          xc[p] += weighted * xi;
          cc[p] += weighted * code;
        }
      }
      for (size_t p = 0; p < kParts; ++p) {
        // For fixed codes the best scale is xc / cc, and what it saves of sum w x^2 is xc^2 / cc.
        const V s = xc[p] * Inverse(cc[p]), saved = s * xc[p];
        const Mask better = (saved > best[p]) & (cc[p] > 0);
        best[p] = better ? saved : best[p];
        at[p] = better ? s : at[p];
        inv[p] = Inverse(s);
      }
    }
    for (size_t p = 0; p < kParts; ++p) Store(-best[p], loss + p * kWidth), Store(at[p], scale + p * kWidth);
  }

  static void Line(const float* x, const float* w, size_t n, float sum_w, float high, float most, int rounds,
                   const float* inverse, const float* offset, float* loss, float* scale, float* minimum) {
    const V lowest{}, highest = All(high), limit = All(most), sum = All(sum_w);
    V inv[kParts], off[kParts], best[kParts], best_scale[kParts], best_minimum[kParts];
    for (size_t p = 0; p < kParts; ++p) {
      inv[p] = Load(inverse + p * kWidth), off[p] = Load(offset + p * kWidth);
      best[p] = All(-1), best_scale[p] = V{}, best_minimum[p] = V{};
    }
    for (int round = 0; round < rounds; ++round) {
      V c[kParts] = {}, cc[kParts] = {}, xc[kParts] = {};
      for (size_t i = 0; i < n; ++i) {
        const V xi = All(x[i]), wi = All(w[i]);
#pragma GCC unroll 4
        for (size_t p = 0; p < kParts; ++p) {
          const V code = Nearest(Max(Min(xi * inv[p] + off[p], highest), lowest)), weighted = wi * code;
          c[p] += weighted;
          cc[p] += weighted * code;
          xc[p] += weighted * xi;
        }
      }
      for (size_t p = 0; p < kParts; ++p) {
        // Normal equations with sum w x = 0; then with the minimum held where it would be too large.
        const V spread = sum * cc[p] - c[p] * c[p], over = Inverse(spread) * xc[p];
        V s = sum * over, m = -c[p] * over;
        const Mask held = m > limit;
        s = held ? (xc[p] - limit * c[p]) * Inverse(cc[p]) : s;
        m = held ? limit : m;
        // What is left of sum w x^2, taken from it: exact for any scale and minimum with these codes.
        const V saved = 2.0f * s * xc[p] - (s * s * cc[p] + 2.0f * s * m * c[p] + m * m * sum);
        const Mask better = (saved > best[p]) & (s > 0);
        best[p] = better ? saved : best[p];
        best_scale[p] = better ? s : best_scale[p];
        best_minimum[p] = better ? m : best_minimum[p];
        inv[p] = Inverse(s);
        off[p] = -m * inv[p];
      }
    }
    for (size_t p = 0; p < kParts; ++p) {
      Store(-best[p], loss + p * kWidth);
      Store(best_scale[p], scale + p * kWidth);
      Store(best_minimum[p], minimum + p * kWidth);
    }
  }

  static void Error(const float* x, const float* w, size_t n, float low, float high, const float* step,
                    const float* minimum, float* error) {
    const V lowest = All(low), highest = All(high);
    V s[kParts], m[kParts], inv[kParts], sum[kParts] = {};
    for (size_t p = 0; p < kParts; ++p)
      s[p] = Load(step + p * kWidth), m[p] = Load(minimum + p * kWidth), inv[p] = Inverse(s[p]);
    for (size_t i = 0; i < n; ++i) {
      const V xi = All(x[i]), wi = All(w[i]);
#pragma GCC unroll 4
      for (size_t p = 0; p < kParts; ++p) {
        const V above = xi - m[p], code = Nearest(Max(Min(above * inv[p], highest), lowest));
        const V off = above - s[p] * code;
        sum[p] += wi * off * off;
      }
    }
    for (size_t p = 0; p < kParts; ++p) Store(sum[p], error + p * kWidth);
  }

  static void ScaleError(const float* x, const float* w, size_t n, float low, float high, const float* step,
                         float* error) {
    const V lowest = All(low), highest = All(high);
    V s[kParts], inv[kParts], sum[kParts] = {};
    for (size_t p = 0; p < kParts; ++p) s[p] = Load(step + p * kWidth), inv[p] = Inverse(s[p]);
    for (size_t i = 0; i < n; ++i) {
      const V xi = All(x[i]), wi = All(w[i]);
#pragma GCC unroll 4
      for (size_t p = 0; p < kParts; ++p) {
        const V off = xi - s[p] * Nearest(Max(Min(xi * inv[p], highest), lowest));
        sum[p] += wi * off * off;
      }
    }
    for (size_t p = 0; p < kParts; ++p) Store(sum[p], error + p * kWidth);
  }

  // Steps of E2M1 are 0.5 below 2, 1 below 4 and 2 below 6.
  static void Fp4Error(const float* x, const float* w, size_t n, const float* step, float* error) {
    V s[kParts], inv[kParts], sum[kParts] = {};
    for (size_t p = 0; p < kParts; ++p) s[p] = Load(step + p * kWidth), inv[p] = Inverse(s[p]);
    for (size_t i = 0; i < n; ++i) {
      const float magnitude = x[i] < 0 ? -x[i] : x[i];
      const V xi = All(magnitude), wi = All(w[i]);
#pragma GCC unroll 4
      for (size_t p = 0; p < kParts; ++p) {
        const V y = Min(xi * inv[p], All(6));
        V unit = y < 4 ? All(1) : All(2), per = y < 4 ? All(1) : All(0.5f);
        unit = y < 2 ? All(0.5f) : unit, per = y < 2 ? All(2) : per;
        const V off = xi - s[p] * (Nearest(y * per) * unit);
        sum[p] += wi * off * off;
      }
    }
    for (size_t p = 0; p < kParts; ++p) Store(sum[p], error + p * kWidth);
  }

  static constexpr FitKernels Table(const char* name) {
    return {name, Scale, Line, Error, ScaleError, Fp4Error};
  }
};

}  // namespace
}  // namespace glint::quant
