// The searches' inner loops give the same bits with every instruction set, and what they say is so.
#include "quant/fit_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "quant/fp4.h"

namespace glint::quant {
namespace {

struct Inputs {
  std::vector<float> x, w, a, b;

  Inputs(std::mt19937_64& rng, size_t n) : x(n), w(n), a(kFitLanes), b(kFitLanes) {
    std::normal_distribution<float> normal;
    std::lognormal_distribution<float> log_normal(0, 2);
    for (auto& v : x) v = normal(rng);
    for (auto& v : w) v = rng() % 8 ? log_normal(rng) : 0;
    for (auto& v : a) v = rng() % 8 ? normal(rng) : 0;
    for (auto& v : b) v = normal(rng);
  }
};

// All outputs of all kernels.
std::vector<float> AllKernels(const FitKernels& k, const Inputs& in, int low, int high) {
  const auto l = static_cast<float>(low), h = static_cast<float>(high);
  std::vector<float> out(8 * kFitLanes, NAN);
  const auto at = [&](size_t i) { return out.data() + i * kFitLanes; };
  const size_t n = in.x.size();
  std::vector<float> step(in.a), inverse(kFitLanes);
  for (size_t i = 0; i < kFitLanes; ++i) inverse[i] = 4 / (std::fabs(in.a[i]) + 0.1f);
  k.scale(in.x.data(), in.w.data(), n, l, h, 2, in.a.data(), at(0), at(1));
  k.line(in.x.data(), in.w.data(), n, 17, h, in.b[0], 3, inverse.data(), in.b.data(), at(2), at(3), at(4));
  k.error(in.x.data(), in.w.data(), n, l, h, step.data(), in.b.data(), at(5));
  k.scale_error(in.x.data(), in.w.data(), n, l, h, step.data(), at(6));
  k.fp4_error(in.x.data(), in.w.data(), n, inverse.data(), at(7));
  return out;
}

TEST(FitKernels, EveryInstructionSetGivesTheSameBits) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  int sets = 0;
  for (const FitKernels* kernels : {Avx2FitKernels(), Avx512FitKernels()}) {
    if (!kernels) continue;
    ++sets;
    for (int repeat = 0; repeat < 400; ++repeat) {
      const Inputs in(rng, 1 + rng() % 64);
      const int high = static_cast<int>(1 + rng() % 127), low = rng() % 2 ? -high - 1 : 0;
      const auto want = AllKernels(PlainFitKernels(), in, low, high),
                 got = AllKernels(*kernels, in, low, high);
      ASSERT_EQ(std::memcmp(want.data(), got.data(), want.size() * sizeof(float)), 0)
          << kernels->name << " " << repeat;
    }
  }
  if (sets == 0) GTEST_SKIP() << "one set of kernels here";
}

// Against double: n sums in float, whose magnitudes are those of the sums below.
TEST(FitKernels, ErrorsAreThoseOfTheNearestCodes) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  for (int repeat = 0; repeat < 200; ++repeat) {
    const Inputs in(rng, 32);
    std::vector<float> step(in.a), error(kFitLanes), scale_error(kFitLanes), fp4_error(kFitLanes);
    for (auto& v : step) v = v == 0 ? 0 : std::fabs(v) + 0.01f;
    const FitKernels& k = BestFitKernels();
    k.error(in.x.data(), in.w.data(), 32, 0, 7, step.data(), in.b.data(), error.data());
    k.scale_error(in.x.data(), in.w.data(), 32, -8, 7, step.data(), scale_error.data());
    k.fp4_error(in.x.data(), in.w.data(), 32, step.data(), fp4_error.data());
    for (size_t l = 0; l < kFitLanes; ++l) {
      double line = 0, scale = 0, fp4 = 0, sum = 0;
      for (size_t i = 0; i < 32; ++i) {
        const double x = in.x[i], s = step[l], above = x - in.b[l];
        const auto nearest = [&](double v, double low, double high) {
          return s == 0 ? 0 : std::clamp(std::nearbyint(v / s), low, high);
        };
        line += in.w[i] * std::pow(above - s * nearest(above, 0, 7), 2);
        scale += in.w[i] * std::pow(x - s * nearest(x, -8, 7), 2);
        double least = std::fabs(x);
        for (const int8_t v : kFp4Doubled) least = std::min(least, std::fabs(x - s * v / 2));
        fp4 += in.w[i] * least * least;
        sum += in.w[i] * (above * above + x * x);
      }
      // A tie that rounds the other way in float loses nothing to speak of.
      EXPECT_NEAR(error[l], line, 1e-5 * sum);
      EXPECT_NEAR(scale_error[l], scale, 1e-5 * sum);
      EXPECT_NEAR(fp4_error[l], fp4, 1e-5 * sum);
    }
  }
}

}  // namespace
}  // namespace glint::quant
