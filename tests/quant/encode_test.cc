// How well encoders round: against the reference package, limits that are known, and the best that there is.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/half.h"
#include "quant/format.h"
#include "quant/nvfp4.h"

namespace glint::quant {
namespace {

using Bytes = std::vector<std::byte>;
using Floats = std::vector<float>;

constexpr size_t kColumns = 512, kRows = 64;

std::vector<const Format*> Encodable() {
  std::vector<const Format*> out;
  for (const Format& format : Formats())
    if (format.integer() && format.encode) out.push_back(&format);
  return out;
}

std::string TestName(const testing::TestParamInfo<const Format*>& info) {
  return std::string(info.param->name);
}

Floats RoundTrip(const Format& format, const Floats& x, const Floats& importance) {
  Bytes bytes(x.size() / format.block_weights * format.block_bytes);
  Floats decoded(x.size(), NAN);
  format.encode(x.data(), importance.empty() ? nullptr : importance.data(), bytes.data(), x.size());
  format.decode(bytes.data(), decoded.data(), x.size());
  return decoded;
}

// sum w (x - y)^2; w all 1 if empty.
double Error(const Floats& x, const Floats& y, const Floats& w) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double off = static_cast<double>(x[i]) - y[i];
    sum += off * off * (w.empty() ? 1.0 : w[i]);
  }
  return sum;
}

enum class Shape { kNormal, kStudent, kLaplace };
constexpr Shape kShapes[] = {Shape::kNormal, Shape::kStudent, Shape::kLaplace};

Floats Weights(Shape shape, float scale, size_t n, std::mt19937_64& rng) {
  std::normal_distribution<float> normal;
  std::student_t_distribution<float> student(4);
  std::exponential_distribution<float> exponential;
  Floats x(n);
  for (auto& v : x) {
    v = scale * (shape == Shape::kNormal    ? normal(rng)
                 : shape == Shape::kStudent ? student(rng)
                                            : (rng() % 2 ? 1.0f : -1.0f) * exponential(rng));
  }
  return x;
}

// Of kRows rows: every column has one, log-normal, as means of squared activations are.
Floats ByColumn(std::mt19937_64& rng) {
  std::lognormal_distribution<float> log_normal(0, 1);
  Floats importance(kRows * kColumns);
  for (size_t i = 0; i < importance.size(); ++i)
    importance[i] = i < kColumns ? log_normal(rng) : importance[i - kColumns];
  return importance;
}

class Encoder : public testing::TestWithParam<const Format*> {};

// Relative error of normal weights, against rounding without any search. Uniform steps of range / (codes - 1) have a rounding
// error of step / sqrt(12), where the range of a unit is twice its largest magnitude (expected: 2.45 sigma of 32 values,
// 2.15 of 16) or, with a minimum, its highest less its lowest (4.13 sigma of 32, 3.53 of 16). Three levels: the best that there are
// for a normal distribution lose 0.1902 of its variance (Max, Quantizing for Minimum Distortion, 1960); a scale by block can adapt to
// its 256 weights. E2M1: measured with the usual rule for the scale, the power of two (MXFP4) or the E4M3 number (NVFP4) by the
// largest magnitude / 6, in the gguf package and ggml 0.27.
TEST_P(Encoder, NormalWeightsLoseLessThanByPlainRounding) {
  const Format& format = *GetParam();
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  const Floats x = Weights(Shape::kNormal, 0.02f, kRows * kColumns, rng);
  const double relative =
      std::sqrt(Error(x, RoundTrip(format, x, {}), {}) / static_cast<double>(x.size())) / 0.02;
  const auto uniform = [](double range, int codes) { return range / (codes - 1) / std::sqrt(12.0); };
  double limit = 0;
  switch (format.type) {
    case Type::kQ8_0:
      limit = uniform(2 * 2.45, 255);
      break;
    case Type::kQ6_K:
      limit = uniform(2 * 2.15, 64);
      break;
    case Type::kQ5_0:
      limit = uniform(2 * 2.45, 32);
      break;
    case Type::kQ5_1:
    case Type::kQ5_K:
      limit = uniform(4.13, 32);
      break;
    case Type::kQ4_0:
      limit = uniform(2 * 2.45, 16);
      break;
    case Type::kQ4_1:
    case Type::kQ4_K:
      limit = uniform(4.13, 16);
      break;
    case Type::kQ3_K:
      limit = uniform(2 * 2.15, 8);
      break;
    case Type::kQ2_K:
      limit = uniform(3.53, 4);
      break;
    case Type::kTQ1_0:
    case Type::kTQ2_0:
      limit = std::sqrt(0.1902) * 1.02;
      break;
    case Type::kMXFP4:
      limit = 0.1137;
      break;
    case Type::kNVFP4:
      limit = 0.1033;
      break;
    // The published grids: 2 to 3 % above what these searches lose, below what ggml 0.27 was measured to lose.
    case Type::kIQ1_S:
      limit = 0.453;
      break;
    case Type::kIQ1_M:
      limit = 0.420;
      break;
    case Type::kIQ2_XXS:
      limit = 0.334;
      break;
    case Type::kIQ2_XS:
      limit = 0.290;
      break;
    case Type::kIQ2_S:
      limit = 0.2440;
      break;
    case Type::kIQ3_XXS:
      limit = 0.1790;
      break;
    case Type::kIQ3_S:
      limit = 0.1340;
      break;
    case Type::kIQ4_NL:
      limit = 0.0748;
      break;
    case Type::kIQ4_XS:
      limit = 0.0752;
      break;
    default:
      FAIL() << "a new format: state its limit";
  }
  EXPECT_LT(relative, limit);
  RecordProperty("relative_rms", std::to_string(relative));
}

// By more than could be luck: those with the fewest scales to choose gain 3 % and more of the squared error.
TEST_P(Encoder, ImportanceLowersTheErrorItWeighs) {
  const Format& format = *GetParam();
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  const Floats importance = ByColumn(rng);
  for (const Shape shape : kShapes) {
    const Floats x = Weights(shape, 0.02f, kRows * kColumns, rng);
    const double with = Error(x, RoundTrip(format, x, importance), importance);
    const double without = Error(x, RoundTrip(format, x, {}), importance);
    EXPECT_LT(with, 0.995 * without) << static_cast<int>(shape);
  }
}

// Only ratios count: the same importance for all is like none, whatever it is.
TEST_P(Encoder, EqualImportanceIsLikeNone) {
  const Format& format = *GetParam();
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  const Floats x = Weights(Shape::kStudent, 1, 4096, rng);
  const Floats plain = RoundTrip(format, x, {});
  for (const float all : {0.0f, 0x1p-140f, 0x1p-60f, 1.0f, 0x1p127f})
    EXPECT_EQ(RoundTrip(format, x, Floats(x.size(), all)), plain) << all;
}

// Weights that do not count are still rounded to something of their size, and do not disturb those that do.
TEST_P(Encoder, ZeroImportanceIsNoLicence) {
  const Format& format = *GetParam();
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  const Floats x = Weights(Shape::kNormal, 1, 4096, rng);
  Floats importance(x.size(), 1.0f);
  for (size_t i = 0; i < x.size(); ++i)
    if (i / 32 % 2 == 0 || i % 5 == 0) importance[i] = 0;
  const Floats decoded = RoundTrip(format, x, importance);
  EXPECT_LE(Error(x, decoded, importance), Error(x, RoundTrip(format, x, {}), importance));
  double largest = 0;
  for (const float v : x) largest = std::max(largest, static_cast<double>(std::fabs(v)));
  for (size_t i = 0; i < x.size(); ++i) ASSERT_LE(std::fabs(decoded[i]), 2 * largest) << i;
  Floats without(x.size());  // whole units of no importance
  for (size_t i = 0; i < x.size(); ++i) without[i] = i / 32 % 2 == 0 ? 1.0f : 0.0f;
  EXPECT_LT(Error(x, decoded, without), 0.7 * Error(x, Floats(x.size()), without));
}

// Any finite weights with any importance: patterns of bits, so that zeros, subnormal and huge numbers lie side by side.
// Scales that units share are for those whose errors count: large weights of no importance must not make the others coarser.
TEST_P(Encoder, UnitsOfNoImportanceLeaveTheOthersAlone) {
  const Format& format = *GetParam();
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  constexpr size_t kBlock = 256, kIdle = 32;  // whole units of every format
  double usual = 0, beside_large = 0;
  for (size_t repeat = 0; repeat < 8; ++repeat) {
    Floats x = Weights(Shape::kNormal, 1, kBlock, rng), w(kBlock, 1);
    const size_t at = repeat * kIdle;
    std::fill_n(w.begin() + static_cast<long>(at), kIdle, 0.0f);
    usual += Error(x, RoundTrip(format, x, w), w);
    for (size_t i = at; i < at + kIdle; ++i) x[i] *= 100;
    beside_large += Error(x, RoundTrip(format, x, w), w);
  }
  EXPECT_LE(beside_large, 1.001 * usual) << format.name;
}

// What is not refused for its size (quant/range.h) is rounded as well as the same weights of size 1.
TEST_P(Encoder, TheLargestThatIsAllowedLosesNoMore) {
  const Format& format = *GetParam();
  if (format.type == Type::kNVFP4) return;  // its second scale, beside the blocks, brings weights into reach
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> normal;
  Floats x(kColumns);
  for (float& v : x) v = normal(rng);
  float most = 0;
  for (const float v : x) most = std::max(most, std::fabs(v));
  Floats unit = x, large = x;
  for (size_t i = 0; i < x.size(); ++i) unit[i] = x[i] / most, large[i] = unit[i] * 65504;
  const double small_error = Error(unit, RoundTrip(format, unit, {}), {}) / Error(unit, Floats(x.size()), {});
  const double large_error =
      Error(large, RoundTrip(format, large, {}), {}) / Error(large, Floats(x.size()), {});
  // Scales and minima end at a half's largest, where a fit at times would go further. Of 1,000 seeds a format: 1.052 at most.
  EXPECT_LT(large_error, 1.1 * small_error);
}

// Next to nothing is rounded to nothing, not to the least that a half can scale.
TEST_P(Encoder, TinyWeightsDoNotGrow) {
  const Format& format = *GetParam();
  if (format.type == Type::kMXFP4 || format.type == Type::kNVFP4) return;  // scales that are no halves
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  for (const float size : {1e-12f, 1e-30f, 1e-38f, 1e-40f, 1e-44f}) {
    Floats x(kColumns);
    for (float& v : x) v = size * static_cast<float>(static_cast<int>(rng() % 201) - 100) / 100;
    for (const float v : RoundTrip(format, x, {})) ASSERT_LE(std::fabs(v), 2 * size) << size;
  }
}

TEST_P(Encoder, AnythingFiniteDecodesToSomethingFinite) {
  const Format& format = *GetParam();
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  const auto any = [&](int kind) {
    float v = 0;
    do {
      auto bits = static_cast<uint32_t>(rng());
      if (kind == 1) bits &= 0x807fffffu;  // subnormal
      if (kind == 2) bits |= 0x7f000000u;  // huge
      if (kind == 3 && rng() % 4 != 0) bits = 0;
      v = std::bit_cast<float>(bits);
    } while (!std::isfinite(v));
    return v;
  };
  for (int repeat = 0; repeat < 256; ++repeat) {
    Floats x(256), importance(256);
    for (auto& v : x) v = any(repeat % 4);
    for (auto& v : importance) v = std::fabs(any(repeat / 4 % 4));
    float largest = 0;
    for (const float v : x) largest = std::max(largest, std::fabs(v));
    for (const bool weighed : {false, true}) {
      for (const float v : RoundTrip(format, x, weighed ? importance : Floats())) {
        ASSERT_TRUE(std::isfinite(v)) << repeat;
        ASSERT_LE(std::fabs(v) / 2, largest + 0x1p-24f) << repeat;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Encoder, testing::ValuesIn(Encodable()), TestName);

// Blocks whose best line would begin below the least half, -65504: nearly as good as the best scale of all for a line that begins there.
TEST(Encode, LinesBeginAtTheLeastHalf) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  constexpr float kLeast = -65504;
  for (const auto& [type, high] : {std::pair(Type::kQ4_1, 15.0f), std::pair(Type::kQ5_1, 31.0f)}) {
    const Format& format = *Find(type);
    double ours = 0, best = 0;
    for (int repeat = 0; repeat < 64; ++repeat) {
      Floats x = Weights(Shape::kNormal, 1, 32, rng);
      const float low = *std::min_element(x.begin(), x.end());
      for (float& v : x) v = std::min(v / low * kLeast, -kLeast);
      const float plain = (*std::max_element(x.begin(), x.end()) - kLeast) / high;
      double least = Error(x, Floats(x.size()), {});
      for (uint16_t half = FloatToHalf(0.7f * plain); half < FloatToHalf(1.3f * plain); ++half) {
        const float scale = HalfToFloat(half);
        Floats y(x.size());
        for (size_t i = 0; i < x.size(); ++i)
          y[i] = kLeast + scale * std::clamp(std::round((x[i] - kLeast) / scale), 0.0f, high);
        least = std::min(least, Error(x, y, {}));
      }
      best += least;
      ours += Error(x, RoundTrip(format, x, {}), {});
    }
    EXPECT_LE(ours, 1.02 * best) << format.name;
  }
}

// The package's own encoders, for the formats it has them for; with importance it has none, and must be beaten in that too.
TEST(Encode, NoWorseThanTheReferencePackage) {
  if (std::string_view(GLINT_PYTHON).empty()) GTEST_SKIP() << "GLINT_PYTHON is not set: no reference package";
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  const auto folder = std::filesystem::temp_directory_path() / ("glint_encode_" + std::to_string(seed));
  std::filesystem::create_directory(folder);
  const Floats importance = ByColumn(rng);
  std::vector<Floats> x;
  Floats all;
  for (const Shape shape : kShapes) {
    x.push_back(Weights(shape, 0.02f, kRows * kColumns, rng));
    all.insert(all.end(), x.back().begin(), x.back().end());
  }
  std::ofstream(folder / "weights", std::ios::binary)
      .write(reinterpret_cast<const char*>(all.data()),
             static_cast<std::streamsize>(all.size() * sizeof(float)));
  std::string command =
      "'" GLINT_PYTHON "' '" GLINT_SOURCE_DIR "/tests/quant/referee_encode.py' '" + folder.string() + "'";
  for (const Format* format : Encodable()) command += " " + std::string(format->name);
  {
    const std::unique_ptr<FILE, int (*)(FILE*)> package(popen(command.c_str(), "r"), pclose);
    ASSERT_NE(package, nullptr) << command;
    char line[256];
    while (std::fgets(line, sizeof line, package.get()) != nullptr) continue;
  }
  int compared = 0;
  for (const Format* format : Encodable()) {
    std::ifstream in(folder / std::string(format->name), std::ios::binary);
    if (!in) continue;
    Bytes bytes(all.size() / format->block_weights * format->block_bytes);
    in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    ASSERT_EQ(static_cast<size_t>(in.gcount()), bytes.size()) << format->name;
    ++compared;
    for (size_t shape = 0; shape < x.size(); ++shape) {
      Floats theirs(x[shape].size());
      format->decode(bytes.data() + bytes.size() / x.size() * shape, theirs.data(), theirs.size());
      for (const Floats& w : {Floats(), importance}) {
        EXPECT_LE(Error(x[shape], RoundTrip(*format, x[shape], w), w), 1.01 * Error(x[shape], theirs, w))
            << format->name << (w.empty() ? "" : " with importance, ") << " distribution " << shape;
      }
    }
  }
  std::filesystem::remove_all(folder);
  EXPECT_GE(compared, 8);  // q4_0, q4_1, q5_0, q5_1, q8_0, tq1_0, tq2_0, mxfp4
}

// Blocks with one scale, against every scale there is, in double: the best within 1 %, in the sum over 24 blocks; exactly the best
// where the search tries all powers of two there could be. Q8_0 is not here: it uses no scale at which a weight is out of reach.
TEST(Encode, OneScaleIsNearlyTheBestOfAll) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  struct Case {
    Type type;
    size_t weights;
    double limit;
  };
  constexpr double kFp4[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (const Case& c : {Case{Type::kQ4_0, 32, 1.01},
                        {Type::kQ5_0, 32, 1.01},
                        {Type::kTQ2_0, 256, 1.0001},
                        {Type::kMXFP4, 32, 1.00001},
                        {Type::kNVFP4, 16, 1.005}}) {
    const Format& format = *Find(c.type);
    const bool fp4 = c.type == Type::kMXFP4 || c.type == Type::kNVFP4;
    const int low = c.type == Type::kQ4_0 ? -8 : c.type == Type::kQ5_0 ? -16 : -1;
    const int high = low == -1 ? 1 : -low - 1;
    std::vector<double> scales;
    if (c.type == Type::kMXFP4) {
      for (int exponent = -20; exponent < 12; ++exponent) scales.push_back(std::ldexp(1.0, exponent));
    } else if (c.type == Type::kNVFP4) {
      for (int bits = 1; bits < 127; ++bits) scales.push_back(2 * NVFP4::Scale(static_cast<uint8_t>(bits)));
    } else {
      for (uint16_t half = 0x2000; half < 0x5800; ++half) {
        scales.push_back(HalfToFloat(half));
        if (low != -1) scales.push_back(-scales.back());
      }
    }
    std::lognormal_distribution<float> log_normal;
    double ours = 0, best = 0;
    for (int repeat = 0; repeat < 24; ++repeat) {
      const Floats x = Weights(kShapes[repeat % 3], 0.5f, 256, rng);
      Floats w(256, 1.0f);
      if (repeat % 2)
        for (auto& v : w) v = log_normal(rng);
      const Floats decoded = RoundTrip(format, x, w);
      ours += Error(Floats(x.begin(), x.begin() + static_cast<long>(c.weights)),
                    Floats(decoded.begin(), decoded.begin() + static_cast<long>(c.weights)), w);
      double least = std::numeric_limits<double>::infinity();
      for (const double scale : scales) {
        double error = 0;
        for (size_t i = 0; i < c.weights && error < least; ++i) {
          double off = x[i] - scale * std::clamp<double>(std::nearbyint(x[i] / scale), low, high);
          if (fp4) {
            const double magnitude = std::fabs(x[i]) / scale;
            off = magnitude;
            for (const double v : kFp4)
              if (std::fabs(magnitude - v) < std::fabs(off)) off = magnitude - v;
            off *= scale;
          }
          error += w[i] * off * off;
        }
        least = std::min(least, error);
      }
      best += least;
    }
    EXPECT_LE(ours, c.limit * best) << format.name;
    EXPECT_GE(ours, 0.99999 * best) << format.name << ": the test does not try all";
  }
}

// Weights of any size lose the same under the tensor's scale, and the largest is never clipped.
TEST(NVFP4, TheTensorScaleBringsWeightsIntoReach) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  const Format& format = *Find(Type::kNVFP4);
  for (int exponent = -120; exponent <= 120; exponent += 24) {
    Floats x = Weights(Shape::kNormal, std::ldexp(1.0f, exponent), 4096, rng);
    float largest = 0;
    for (const float v : x) largest = std::max(largest, std::fabs(v));
    const float scale = NVFP4::TensorScale(largest);
    Floats divided = x;
    for (auto& v : divided) v /= scale;
    Floats decoded = RoundTrip(format, divided, {});
    for (auto& v : decoded) v *= scale;
    for (auto* side : {&x, &decoded})
      for (auto& v : *side) v = std::ldexp(v, -exponent);
    EXPECT_LT(std::sqrt(Error(x, decoded, {}) / Error(x, Floats(x.size()), {})), 0.088) << exponent;
    for (size_t i = 0; i < x.size(); ++i)
      ASSERT_NEAR(decoded[i], x[i], 0.26 * std::fabs(x[i]) + 0.3) << exponent << " " << i;
  }
  EXPECT_EQ(NVFP4::TensorScale(0), 1);
  EXPECT_TRUE(std::isnormal(NVFP4::TensorScale(std::numeric_limits<float>::denorm_min())));
  EXPECT_TRUE(std::isnormal(NVFP4::TensorScale(std::numeric_limits<float>::max())));
}

}  // namespace
}  // namespace glint::quant
