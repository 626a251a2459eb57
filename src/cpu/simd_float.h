// Products with float weights, and the element-wise kernels, for any instruction set. Dot16 has 16 lanes whatever the width of a
// register, so V16 names operations on 16 floats at once (one, two or four registers).
//
// Included once by each kernels_ISA.cc; why everything is unnamed and without std:: templates: cpu/simd_integer.h.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/mutation.h"
#include "cpu/kernels.h"

namespace glint::cpu {
namespace {

// Activation rows that are kept in L2 while all weight rows pass by.
constexpr int64_t kFloatTileRows = 32;

template <class S>
struct F32Weights {
  static constexpr size_t kBytes = 4;
  static inline S Load(const std::byte* at) { return S::LoadF32(at); }
};
template <class S>
struct F16Weights {
  static constexpr size_t kBytes = 2;
  static inline S Load(const std::byte* at) { return S::LoadF16(at); }
};
template <class S>
struct BF16Weights {
  static constexpr size_t kBytes = 2;
  static inline S Load(const std::byte* at) { return S::LoadBF16(at); }
};

// The last n < 16 products of a Dot16: lanes 0 ... n - 1 go on, the others keep what they have (adding 0 would turn a -0).
template <class S, class W>
inline S Tail(S lanes, const std::byte* w, const float* x, int64_t n) {
  std::byte padded[16 * W::kBytes] = {};
  std::memcpy(padded, w, static_cast<size_t>(n) * W::kBytes);
  float weight[16], lane[16];
  W::Load(padded).Store(weight);
  lanes.Store(lane);
  for (int64_t i = 0; i < (Mutated(Mutation::kSimdTailDropped) ? n - 1 : n); ++i)
    lane[i] = __builtin_fmaf(weight[i], x[i], lane[i]);
  return S::LoadF32(reinterpret_cast<const std::byte*>(lane));
}

// Dot16 of O weight rows with the R activation rows x[r], to y[r][o]: O * R independent chains of fmas.
template <class S, class W, int O, int R>
inline void DotTile(const std::byte* w, size_t row_bytes, const float* const* x, int64_t n, float* const* y) {
  S acc[O][R];
  for (int o = 0; o < O; ++o)
    for (int r = 0; r < R; ++r) acc[o][r] = S::Zero();
  int64_t k = 0;
  for (; k + 16 <= n; k += 16) {
    S in[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) in[r] = S::LoadF32(reinterpret_cast<const std::byte*>(x[r] + k));
#pragma GCC unroll 8
    for (int o = 0; o < O; ++o) {
      const S weight = W::Load(w + static_cast<size_t>(o) * row_bytes + static_cast<size_t>(k) * W::kBytes);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) acc[o][r] = S::Fma(weight, in[r], acc[o][r]);
    }
  }
  for (int o = 0; o < O; ++o) {
    for (int r = 0; r < R; ++r) {
      S lanes = acc[o][r];
      if (k < n)
        lanes = Tail<S, W>(lanes, w + static_cast<size_t>(o) * row_bytes + static_cast<size_t>(k) * W::kBytes,
                           x[r] + k, n - k);
      y[r][o] = lanes.Sum();
    }
  }
}

// Activation rows [r, r + R) with O weight rows from row o on.
template <class S, class W, int O, int R>
inline void DotTileOf(const RowsArgs& a, int64_t o, int64_t r) {
  const float* x[R];
  float* y[R];
  for (int j = 0; j < R; ++j) {
    x[j] = a.x + (a.take ? a.take[r + j] : r + j) * a.x_stride;
    y[j] = a.y + (a.put ? a.put[r + j] : r + j) * a.y_stride + o;
  }
  DotTile<S, W, O, R>(a.weights + static_cast<size_t>(o) * a.row_bytes, a.row_bytes, x, a.columns, y);
}

// All activation rows [first, end) with O weight rows from row o on.
template <class S, class W, int O>
inline void DotRows(const RowsArgs& a, int64_t o, int64_t first, int64_t end) {
  int64_t r = first;
  for (; r + S::kGroup <= end; r += S::kGroup) DotTileOf<S, W, O, S::kGroup>(a, o, r);
  for (; r < end; ++r) DotTileOf<S, W, O, 1>(a, o, r);
}

template <class S, class W>
void FloatRows(const RowsArgs& a) {
  for (int64_t r = a.first; r < a.first + a.count; r += kFloatTileRows) {
    const int64_t left = a.first + a.count - r, end = r + (left < kFloatTileRows ? left : kFloatTileRows);
    int64_t o = a.begin;
    if (end - r < S::kGroup)  // few rows: more weight rows at once, to keep as many loads in flight
      for (; o + S::kDecodeRows <= a.end; o += S::kDecodeRows) DotRows<S, W, S::kDecodeRows>(a, o, r, end);
    for (; o + S::kWeightRows <= a.end; o += S::kWeightRows) DotRows<S, W, S::kWeightRows>(a, o, r, end);
    for (; o < a.end; ++o) DotRows<S, W, 1>(a, o, r, end);
  }
}

template <class S>
float Dot16(const float* x, const float* y, int64_t n) {
  float out;
  float* const to = &out;
  DotTile<S, F32Weights<S>, 1, 1>(reinterpret_cast<const std::byte*>(x), 0, &y, n, &to);
  return out;
}

// R rows of a with N rows of x.
template <class S, int R, int N>
inline void DotsTile(const DotsArgs& d, int64_t r, int64_t i) {
  const float* a[R];
  const float* x[N];
  for (int j = 0; j < R; ++j) a[j] = d.a + (r + j) * d.a_stride;
  for (int m = 0; m < N; ++m) x[m] = d.x + (d.index ? d.index[i + m] : i + m) * d.x_stride;
  S acc[R][N];
  for (int j = 0; j < R; ++j)
    for (int m = 0; m < N; ++m) acc[j][m] = S::Zero();
  int64_t k = 0;
  for (; k + 16 <= d.width; k += 16) {
    S in[R];
#pragma GCC unroll 8
    for (int j = 0; j < R; ++j) in[j] = S::LoadF32(reinterpret_cast<const std::byte*>(a[j] + k));
#pragma GCC unroll 8
    for (int m = 0; m < N; ++m) {
      const S row = S::LoadF32(reinterpret_cast<const std::byte*>(x[m] + k));
#pragma GCC unroll 8
      for (int j = 0; j < R; ++j) acc[j][m] = S::Fma(in[j], row, acc[j][m]);
    }
  }
  for (int j = 0; j < R; ++j) {
    for (int m = 0; m < N; ++m) {
      S lanes = acc[j][m];
      if (k < d.width)
        lanes = Tail<S, F32Weights<S>>(lanes, reinterpret_cast<const std::byte*>(a[j] + k), x[m] + k,
                                       d.width - k);
      d.out[(r + j) * d.out_row + (i + m) * d.out_step] = lanes.Sum();
    }
  }
}

template <class S, int N>
inline void DotsColumns(const DotsArgs& d, int64_t i) {
  int64_t r = 0;
  for (; r + S::kGroup <= d.rows; r += S::kGroup) DotsTile<S, S::kGroup, N>(d, r, i);
  for (; r < d.rows; ++r) DotsTile<S, 1, N>(d, r, i);
}

// A few rows of x at a time meet all rows of a while they are in the first-level cache.
template <class S>
void Dots(const DotsArgs& d) {
  int64_t i = 0;
  for (; i + S::kGroup <= d.n; i += S::kGroup) DotsColumns<S, S::kGroup>(d, i);
  for (; i < d.n; ++i) DotsColumns<S, 1>(d, i);
}

template <class V>
void Axpy(float a, const float* x, float* dst, int64_t n) {
  int64_t i = 0;
  for (; i + V::kLanes <= n; i += V::kLanes)
    V::Store(dst + i, V::Fma(V::Set1(a), V::Load(x + i), V::Load(dst + i)));
  for (; i < n; ++i) dst[i] = __builtin_fmaf(a, x[i], dst[i]);
}

// R rows of dst and C registers of columns from j on: R * C sums stay in registers over all terms.
template <class V, int R, int C>
inline void CombineTile(const CombineArgs& c, int64_t r, int64_t j) {
  float* const dst = c.dst + r * c.dst_stride + j;
  const float* const a = c.a + r * c.a_row;
  typename V::F acc[R][C];
  for (int o = 0; o < R; ++o)
    for (int k = 0; k < C; ++k) acc[o][k] = V::Load(dst + o * c.dst_stride + k * V::kLanes);
  for (int64_t i = 0; i < c.n; ++i) {
    const float* const row = c.x + (c.index ? c.index[i] : i) * c.x_stride + j;
    typename V::F in[C];
#pragma GCC unroll 8
    for (int k = 0; k < C; ++k) in[k] = V::Load(row + k * V::kLanes);
#pragma GCC unroll 8
    for (int o = 0; o < R; ++o) {
      const auto weight = V::Set1(a[o * c.a_row + i * c.a_step]);
#pragma GCC unroll 8
      for (int k = 0; k < C; ++k) acc[o][k] = V::Fma(weight, in[k], acc[o][k]);
    }
  }
  for (int o = 0; o < R; ++o)
    for (int k = 0; k < C; ++k) V::Store(dst + o * c.dst_stride + k * V::kLanes, acc[o][k]);
}

// Columns [j, j + C registers) of all rows: the terms' columns stay in the first-level cache from one group of rows to the next.
template <class V, int C>
inline void CombineColumns(const CombineArgs& c, int64_t j) {
  constexpr int kMost = V::kLanes == 16 ? 8 : 4;  // rows: 16 sums of 32 registers, 8 of 16
  int64_t r = 0;
  for (; r + kMost <= c.rows; r += kMost) CombineTile<V, kMost, C>(c, r, j);
  if (kMost > 4 && r + 4 <= c.rows) CombineTile<V, 4, C>(c, r, j), r += 4;
  if (r + 2 <= c.rows) CombineTile<V, 2, C>(c, r, j), r += 2;
  if (r < c.rows) CombineTile<V, 1, C>(c, r, j);
}

template <class V>
void Combine(const CombineArgs& c) {
  int64_t j = 0;
  // Few rows take more columns: enough chains to hide the latency of an fma, and x is read in longer pieces.
  if (c.rows == 1)
    for (; j + 8 * V::kLanes <= c.width; j += 8 * V::kLanes) CombineTile<V, 1, 8>(c, 0, j);
  else if (c.rows == 2 && V::kLanes == 16)
    for (; j + 8 * V::kLanes <= c.width; j += 8 * V::kLanes) CombineTile<V, 2, 8>(c, 0, j);
  if (c.rows < 4)
    for (; j + 4 * V::kLanes <= c.width; j += 4 * V::kLanes) CombineColumns<V, 4>(c, j);
  for (; j + 2 * V::kLanes <= c.width; j += 2 * V::kLanes) CombineColumns<V, 2>(c, j);
  for (; j + V::kLanes <= c.width; j += V::kLanes) CombineColumns<V, 1>(c, j);
  if (j == c.width) return;
  for (int64_t r = 0; r < c.rows; ++r) {
    for (int64_t i = 0; i < c.n; ++i) {
      const float* const row = c.x + (c.index ? c.index[i] : i) * c.x_stride;
      const float weight = c.a[r * c.a_row + i * c.a_step];
      float* const dst = c.dst + r * c.dst_stride;
      for (int64_t k = j; k < c.width; ++k) dst[k] = __builtin_fmaf(weight, row[k], dst[k]);
    }
  }
}

// base/math.h, lane by lane; arguments beyond the range are computed at its ends and replaced afterwards.
template <class V>
inline typename V::F ExpLanes(typename V::F x) {
  const auto low = V::Set1(-87.33654f), high = V::Set1(88.72283f);
  const auto in = V::Min(V::Max(x, low), high);
  const auto shift = V::Set1(12582912.0f);
  const auto n = V::Sub(V::Fma(in, V::Set1(1.44269504f), shift), shift);
  auto r = V::Fma(n, V::Set1(-0.693145752f), in);
  r = V::Fma(n, V::Set1(-1.42860677e-6f), r);
  auto p = V::Set1(1.38145383e-3f);
  p = V::Fma(p, r, V::Set1(8.36874545e-3f));
  p = V::Fma(p, r, V::Set1(4.16683890e-2f));
  p = V::Fma(p, r, V::Set1(1.66665211e-1f));
  p = V::Fma(p, r, V::Set1(4.99999940e-1f));
  p = V::Fma(p, r, V::Set1(1.0f));
  p = V::Fma(p, r, V::Set1(1.0f));
  const auto exponent = V::Nearest(n);
  const auto half = V::Sra(exponent, 1);
  const auto rest = V::Sub(exponent, half);
  const auto bias = V::Set1(127);
  auto y = V::Mul(V::Mul(p, V::AsFloat(V::Shl(V::Add(half, bias), 23))),
                  V::AsFloat(V::Shl(V::Add(rest, bias), 23)));
  y = V::IfLess(x, low, V::Set1(0.0f), y);
  y = V::IfLess(high, x, V::Set1(__builtin_inff()), y);
  return V::IfNaN(x, y);
}

// out[i] = fn(in[0][i], in[1][i], ...) a register at a time; a shorter last one is padded with zeros.
template <class V, int N, class Fn>
inline void ForLanes(const float* const (&in)[N], float* out, int64_t n, Fn fn) {
  typename V::F v[N];
  int64_t i = 0;
  for (; i + V::kLanes <= n; i += V::kLanes) {
    for (int k = 0; k < N; ++k) v[k] = V::Load(in[k] + i);
    V::Store(out + i, fn(v));
  }
  if (i == n) return;
  float padded[V::kLanes] = {};
  for (int k = 0; k < N; ++k) {
    std::memcpy(padded, in[k] + i, static_cast<size_t>(n - i) * sizeof(float));
    v[k] = V::Load(padded);
  }
  V::Store(padded, fn(v));
  std::memcpy(out + i, padded, static_cast<size_t>(n - i) * sizeof(float));
}

template <class V>
void ExpAll(const float* x, float* dst, int64_t n) {
  ForLanes<V, 1>({x}, dst, n, [](const typename V::F* v) { return ExpLanes<V>(v[0]); });
}

// 1 + Exp(-x)
template <class V>
inline typename V::F OnePlusExp(typename V::F x) {
  const auto minus = V::AsFloat(V::Xor(V::AsInt(x), V::Set1(static_cast<int32_t>(0x80000000u))));
  return V::Add(V::Set1(1.0f), ExpLanes<V>(minus));
}

template <class V>
void Sigmoids(float* x, int64_t n) {
  ForLanes<V, 1>({x}, x, n,
                 [](const typename V::F* v) { return V::Div(V::Set1(1.0f), OnePlusExp<V>(v[0])); });
}

// Min and Max give their second argument if one is a NaN, as std::min and std::max give their first.
template <class V>
void SwiGlu(const float* gate, const float* up, float limit, float* h, int64_t n) {
  const auto most = V::Set1(limit), least = V::Set1(-limit);
  ForLanes<V, 2>({gate, up}, h, n, [=](const typename V::F* v) {
    const auto g = V::Min(most, v[0]);
    const auto u = Mutated(Mutation::kUpNotClamped) ? v[1] : V::Min(most, V::Max(least, v[1]));
    return V::Mul(V::Div(g, OnePlusExp<V>(g)), u);
  });
}

template <class V>
void Conv(const ConvArgs& c) {
  int64_t i = 0;
  for (; c.taps == 4 && i + V::kLanes <= c.n; i += V::kLanes) {
    const std::byte* channel[V::kLanes];  // four taps each: a dword apiece
    for (int l = 0; l < V::kLanes; ++l) channel[l] = reinterpret_cast<const std::byte*>(c.w + (i + l) * 4);
    typename V::I w[4];
    V::Dwords4(channel, 0, w);
    auto sum = V::Set1(0.0f);
    for (int tap = 0; tap < 4; ++tap)
      if (c.in[tap]) sum = V::Fma(V::AsFloat(w[tap]), V::Load(c.in[tap] + i), sum);
    V::Store(c.out + i, V::Div(sum, OnePlusExp<V>(sum)));
  }
  for (int64_t k = i; k < c.n; ++k) {
    c.out[k] = 0;
    for (int64_t tap = 0; tap < c.taps; ++tap)
      if (c.in[tap]) c.out[k] = __builtin_fmaf(c.w[k * c.taps + tap], c.in[tap][k], c.out[k]);
  }
  if (i < c.n)
    ForLanes<V, 1>({c.out + i}, c.out + i, c.n - i,
                   [](const typename V::F* v) { return V::Div(v[0], OnePlusExp<V>(v[0])); });
}

template <class V>
void Round(const float* x, int64_t n, int64_t stride, float most, int16_t* digits, float* scales,
           int32_t* sums) {
  constexpr int kRegisters = 32 / V::kLanes;
  for (int64_t at = 0; at < n; at += 32, digits += stride * 32, scales += stride, sums += stride * 2) {
    float padded[32];
    const float* in = x + at;
    if (n - at < 32) {
      std::memset(padded, 0, sizeof padded);
      std::memcpy(padded, in, static_cast<size_t>(n - at) * sizeof(float));
      in = padded;
    }
    // Magnitudes order as their bits do, and NaN and infinity come last.
    const auto magnitude_mask = V::Set1(0x7fffffff);
    auto largest = V::Set1(0);
    for (int i = 0; i < 32; i += V::kLanes)
      largest = V::Max(largest, V::And(V::AsInt(V::Load(in + i)), magnitude_mask));
    const int32_t bits = V::Largest(largest);
    float max;
    std::memcpy(&max, &bits, sizeof max);
    sums[0] = sums[1] = 0;
    if (bits >= 0x7f800000 || max < kSmallestScaled) {
      std::memset(digits, 0, 32 * sizeof(int16_t));
      *scales = bits >= 0x7f800000 ? __builtin_nanf("") : 0.0f;
      continue;
    }
    *scales = max / most;
    const auto inverse = V::Set1(most / max);
    const auto limit = V::Set1(most), minus_limit = V::Set1(-most);
    typename V::I n32[kRegisters];
    for (int i = 0; i < kRegisters; ++i) {
      // Limits are integers, so clamping before the rounding gives what clamping after it would.
      const auto scaled = V::Mul(V::Load(in + i * V::kLanes), inverse);
      n32[i] = V::Nearest(V::Min(V::Max(scaled, minus_limit), limit));
    }
    for (int half = 0; half < 2; ++half) {
      const int first = Mutated(Mutation::kSimdSumsOfOneHalf) ? 0 : half * kRegisters / 2;
      auto sum = n32[first];
      for (int i = 1; i < kRegisters / 2; ++i) sum = V::Add(sum, n32[first + i]);
      sums[half] = V::Sum(sum);
    }
    V::PutDigits(n32, digits);
  }
}

}  // namespace
}  // namespace glint::cpu
