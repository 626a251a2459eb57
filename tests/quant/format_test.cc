#include "quant/format.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/half.h"

namespace glint::quant {
namespace {

using Bytes = std::vector<std::byte>;

double FromHalf(const std::byte* at) {
  const auto bits = static_cast<uint32_t>(at[0]) | static_cast<uint32_t>(at[1]) << 8;
  const int exponent = static_cast<int>(bits >> 10 & 31);
  const double sign = bits & 0x8000 ? -1 : 1, mantissa = bits & 1023;
  if (exponent == 31) return mantissa != 0 ? NAN : sign * INFINITY;
  return sign * (exponent ? std::ldexp(1024 + mantissa, exponent - 25) : std::ldexp(mantissa, -24));
}

std::vector<const Format*> EncodableFormats() {
  std::vector<const Format*> out;
  for (const Format& format : Formats())
    if (format.integer() && format.encode) out.push_back(&format);
  return out;
}

std::string TestName(const testing::TestParamInfo<const Format*>& info) {
  return std::string(info.param->name);
}

class EncodableFormat : public testing::TestWithParam<const Format*> {};

struct Encoded {
  Bytes bytes;
  std::vector<float> decoded;
};

Encoded Encode(const Format& format, const std::vector<float>& x) {
  Encoded out{Bytes(x.size() / format.block_weights * format.block_bytes), std::vector<float>(x.size(), NAN)};
  format.encode(x.data(), nullptr, out.bytes.data(), x.size());
  format.decode(out.bytes.data(), out.decoded.data(), x.size());
  return out;
}

// Steps between the least and the largest weight of a unit; what there is at least, where they differ.
double Steps(Type type) {
  switch (type) {
    case Type::kQ8_0:
      return 254;
    case Type::kQ6_K:
      return 63;
    case Type::kQ5_0:
    case Type::kQ5_1:
    case Type::kQ5_K:
      return 31;
    case Type::kQ4_0:
    case Type::kQ4_1:
    case Type::kQ4_K:
      return 15;
    case Type::kQ3_K:
      return 7;
    case Type::kMXFP4:
    case Type::kNVFP4:
      return 6;  // between 4 and 6, and their negatives
    case Type::kQ2_K:
      return 3;
    default:
      return 2;
  }
}

double SquareError(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i)
    sum += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
  return sum;
}

// Every weight is off by at most half a step of its unit, plus what the roundings of scale and minimum shift: the search may
// clip the extremes for the sake of the rest, so the bound is generous there, and it holds at every magnitude.
TEST_P(EncodableFormat, EncodeErrorIsBoundedAtEveryMagnitude) {
  const Format& format = *GetParam();
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  // NVFP4's scales reach from 2^-9 to 448; a tensor's second scale is for the rest.
  const bool narrow = format.type == Type::kNVFP4;
  for (int exponent = narrow ? -4 : -12; exponent <= (narrow ? 11 : 14); ++exponent) {
    std::vector<float> x(256 * 4);
    for (auto& v : x) v = std::ldexp(uniform(rng), exponent);
    const auto decoded = Encode(format, x).decoded;
    const double range = std::ldexp(2.0, exponent);
    const double steps = Steps(format.type);
    for (size_t i = 0; i < x.size(); ++i)
      ASSERT_NEAR(x[i], decoded[i], 1.5 * range / steps) << exponent << " " << i;
  }
}

// What a zero beside a weight may become, as a part of it. The grids of magnitudes have no 0, and not every point: the second of a
// grid's coordinates by the last. IQ1 has its shift, IQ4 the value 1 (with what rounding the scale adds).
double ZeroBecomes(Type type) {
  switch (type) {
    case Type::kIQ1_S:
    case Type::kIQ1_M:
      return 1.0 / 6;
    case Type::kIQ2_XXS:
    case Type::kIQ2_XS:
    case Type::kIQ2_S:
      return 25.0 / 43;
    case Type::kIQ3_XXS:
      return 12.0 / 62;
    case Type::kIQ3_S:
      return 3.0 / 15;
    case Type::kIQ4_NL:
    case Type::kIQ4_XS:
      return 1.2 / 113;
    default:
      return 2e-3;  // within the rounding of the half scales
  }
}

// How much larger a weight may become where a block holds but one value and zeros, as a part of it: linear codes reach it within the
// rounding of scales; a grid may have no point of equal coordinates with the others small.
double Overshoot(Type type) {
  switch (type) {
    case Type::kIQ1_S:
    case Type::kIQ1_M:
    case Type::kIQ4_NL:
    case Type::kIQ4_XS:
      return 0.03;
    case Type::kIQ2_XXS:
      return 0.41;
    case Type::kIQ2_XS:
    case Type::kIQ2_S:
      return 0.12;
    case Type::kIQ3_XXS:
      return 0.25;
    case Type::kIQ3_S:
      return 0.26;
    case Type::kMXFP4:
      return 0.143;  // scales are powers of two: 5.25 lies between 4 and 6, and twice it between 8 and 12
    case Type::kNVFP4:
      return 0.02;
    default:
      return 0.01;
  }
}

TEST_P(EncodableFormat, EncodesSpecialBlocks) {
  const Format& format = *GetParam();
  const std::vector<float> zeros(256);
  EXPECT_EQ(Encode(format, zeros).decoded, zeros);
  for (const float value : {1e-30f, 1e-8f, 1e-3f, 1.0f, -1.0f, 700.0f, 1e9f, 3e38f, -3e38f}) {
    for (const size_t count : {size_t{1}, size_t{17}, size_t{256}}) {
      std::vector<float> x(256);
      std::fill_n(x.begin(), count, value);
      for (const float v : Encode(format, x).decoded) {
        ASSERT_TRUE(std::isfinite(v)) << value;
        ASSERT_LE(std::fabs(v), (1 + Overshoot(format.type)) * std::fabs(value) + 1e-7);
        ASSERT_GE(v / value, -ZeroBecomes(format.type));
      }
    }
  }
  std::vector<float> constant(
      256, 0.25f);  // exactly representable: a unit of equal weights must not lose anything much
  for (const float v : Encode(format, constant).decoded) EXPECT_NEAR(v, 0.25f, 0.25f * 0.01f);
}

TEST_P(EncodableFormat, EncodingWhatWasDecodedLosesNothingMore) {
  const Format& format = *GetParam();
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(256 * 16);
  for (auto& v : x) v = normal(rng);
  const Encoded once = Encode(format, x), twice = Encode(format, once.decoded);
  if (format.type == Type::kQ8_0) {
    EXPECT_EQ(once.bytes, twice.bytes);
  }
  EXPECT_LT(SquareError(once.decoded, twice.decoded), 0.15 * SquareError(x, once.decoded));
  EXPECT_EQ(Encode(format, x).bytes, once.bytes);  // deterministic
}

INSTANTIATE_TEST_SUITE_P(All, EncodableFormat, testing::ValuesIn(EncodableFormats()), TestName);

TEST(Q8_0, CodesAreTheNearestMultiplesOfTheStoredScale) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  const Format& format = *Find(Type::kQ8_0);
  for (int repeat = 0; repeat < 2000; ++repeat) {
    std::vector<float> x(32);
    std::normal_distribution<float> normal(0, std::ldexp(1.0f, static_cast<int>(rng() % 40) - 26));
    for (auto& v : x) v = normal(rng);
    const auto encoded = Encode(format, x);
    const double scale = FromHalf(encoded.bytes.data());
    for (size_t i = 0; i < x.size(); ++i) {
      // The quotient in float is off by at most 2^-23 of 128, so a tie within that may go either way.
      ASSERT_LE(std::fabs(encoded.decoded[i] - x[i]), scale * (0.5 + 0x1p-16)) << repeat << " " << i;
    }
  }
}

TEST(FloatFormats, RoundTripAndRound) {
  const std::vector<float> x{0.0f, -0.0f, 1.0f, -2.5f, 1e-40f, 65504.0f, 3.14159274f};
  for (const Type type : {Type::kF32, Type::kF16, Type::kBF16}) {
    const Format& format = *Find(type);
    EXPECT_FALSE(format.integer());
    const auto decoded = Encode(format, x).decoded;
    for (size_t i = 0; i < x.size(); ++i) {
      const float want = type == Type::kF32   ? x[i]
                         : type == Type::kF16 ? HalfToFloat(FloatToHalf(x[i]))
                                              : BFloatToFloat(FloatToBFloat(x[i]));
      EXPECT_EQ(std::bit_cast<uint32_t>(want), std::bit_cast<uint32_t>(decoded[i]));
    }
  }
}

TEST(Formats, TableIsConsistent) {
  for (const Format& format : Formats()) {
    EXPECT_EQ(Find(format.type), &format);
    EXPECT_EQ(Find(format.name), &format);
    EXPECT_EQ(Name(format.type), format.name);
    EXPECT_TRUE(format.runnable() || !format.encode);
    EXPECT_TRUE(1024 % format.block_weights == 0) << "parts of a product hold whole blocks";
    EXPECT_LE(format.block_weights, 256u);
  }
  EXPECT_EQ(Find("Q4_K"), Find(Type::kQ4_K));
  EXPECT_EQ(Find("q4_k_m"), nullptr);
  EXPECT_EQ(Find(static_cast<Type>(4)), nullptr);  // types 4 and 5 were withdrawn from GGUF
  EXPECT_EQ(Name(static_cast<Type>(99)), "unknown");
}

TEST(RowBytes, WholeBlocksOrAnErrorThatSaysWhat) {
  EXPECT_EQ(*RowBytes(*Find("q4_k"), 4096), 16u * 144);
  EXPECT_EQ(*RowBytes(*Find("q8_0"), 0), 0u);
  EXPECT_EQ(*RowBytes(*Find("f32"), 3), 12u);
  const auto odd = RowBytes(*Find("q8_0"), 4097);
  ASSERT_FALSE(odd.ok());
  EXPECT_EQ(odd.status().code(), Code::kBadInput);
  EXPECT_EQ(odd.status().message(), "4097 columns; q8_0 needs a multiple of 32");
  EXPECT_FALSE(RowBytes(*Find("f32"), ~uint64_t{0}).ok());
}

}  // namespace
}  // namespace glint::quant
