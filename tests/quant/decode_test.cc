// What every block stands for: decoded as the gguf package decodes it, and the same in the integer form.
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
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "quant/format.h"

namespace glint::quant {
namespace {

using Bytes = std::vector<std::byte>;

constexpr size_t kBlocks = 10240;

std::vector<const Format*> Runnable(bool integer_only) {
  std::vector<const Format*> out;
  for (const Format& format : Formats())
    if (format.runnable() && (format.integer() || !integer_only)) out.push_back(&format);
  return out;
}

// Where the half-precision scales (and minima) lie; other kinds of scales: PutScale.
std::vector<size_t> Halves(Type type) {
  switch (type) {
    case Type::kQ4_1:
    case Type::kQ5_1:
    case Type::kQ4_K:
    case Type::kQ5_K:
      return {0, 2};
    case Type::kQ2_K:
      return {80, 82};
    case Type::kQ3_K:
      return {108};
    case Type::kQ6_K:
      return {208};
    case Type::kTQ1_0:
      return {52};
    case Type::kTQ2_0:
      return {64};
    case Type::kF32:
    case Type::kIQ1_M:
    case Type::kMXFP4:
    case Type::kNVFP4:
      return {};
    default:
      return {0};
  }
}

// Makes the block's super scales of one kind: 0 zero, 1 the largest, 2 subnormal, 3 the smallest, 4 infinite, 5 NaN.
void PutScale(Type type, std::byte* block, int kind, std::mt19937_64& rng) {
  const auto half = [&] {
    const unsigned sign = rng() % 2 ? 0x8000 : 0, some = 1 + static_cast<unsigned>(rng() % 1023);
    const unsigned magnitude[] = {0, 0x7bff, some, 1, 0x7c00, 0x7c00 | some};
    return static_cast<uint16_t>(sign | magnitude[kind]);
  };
  for (const size_t at : Halves(type)) {
    const uint16_t h = half();
    std::memcpy(block + at, &h, 2);
  }
  if (type == Type::kIQ1_M) {  // in the top nibbles of four words
    const unsigned h = half();
    for (size_t n = 0; n < 4; ++n)
      block[49 + 2 * n] =
          (block[49 + 2 * n] & std::byte{15}) | static_cast<std::byte>((h >> (4 * n) & 15) << 4);
  }
  constexpr uint8_t kExponent[] = {0, 254, 1, 2, 252, 255};
  if (type == Type::kMXFP4) block[0] = std::byte{kExponent[kind]};
  constexpr uint8_t kE4M3[] = {0, 0x7e, 5, 1, 0xff, 0x7f};
  if (type == Type::kNVFP4) std::fill_n(block, 4, std::byte{kE4M3[kind]});
}

// Blocks of every kind, at an odd address: data() + 1. Zeros; ones; then by turns plain random bytes, random bytes half of which are
// all ones or zeros (so that sub-scales are the largest and the smallest), and each kind of super scale.
Bytes MakeBlocks(const Format& format, std::mt19937_64& rng) {
  Bytes bytes(kBlocks * format.block_bytes + 1);
  for (size_t n = 0; n < kBlocks; ++n) {
    std::byte* const block = bytes.data() + 1 + n * format.block_bytes;
    const size_t turn = n % 10;
    for (size_t i = 0; i < format.block_bytes; ++i) {
      const uint64_t random = rng();
      block[i] = static_cast<std::byte>(random);
      if (n == 0 || (turn == 2 && random >> 62 == 0)) block[i] = std::byte{0};
      if (n == 1 || (turn == 2 && random >> 62 == 1)) block[i] = std::byte{255};
    }
    if (turn >= 4) PutScale(format.type, block, static_cast<int>(turn) - 4, rng);
  }
  return bytes;
}

std::vector<float> Decode(const Format& format, const Bytes& bytes) {
  std::vector<float> out(kBlocks * format.block_weights, 12345.0f);
  format.decode(bytes.data() + 1, out.data(), out.size());
  return out;
}

// Equal bits, minus zero too; any NaN is like another.
bool Same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

struct ScratchFolder {
  std::filesystem::path path;

  explicit ScratchFolder(uint64_t seed)
      : path(std::filesystem::temp_directory_path() / ("glint_blocks_" + std::to_string(seed))) {
    std::filesystem::create_directory(path);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder() { std::filesystem::remove_all(path); }
};

TEST(Decode, EqualsTheReferencePackage) {
  if (std::string_view(GLINT_PYTHON).empty()) GTEST_SKIP() << "GLINT_PYTHON is not set: no reference package";
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::printf("%zu blocks of each format, seed %llu\n", kBlocks, static_cast<unsigned long long>(seed));
  std::mt19937_64 rng(seed);
  const ScratchFolder scratch(seed);
  const std::filesystem::path& folder = scratch.path;
  const auto formats = Runnable(false);
  std::string command =
      "'" GLINT_PYTHON "' '" GLINT_SOURCE_DIR "/tests/quant/referee_blocks.py' '" + folder.string() + "'";
  std::vector<std::vector<float>> decoded;
  for (const Format* format : formats) {
    const Bytes bytes = MakeBlocks(*format, rng);
    std::ofstream(folder / (std::string(format->name) + ".blocks"), std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data() + 1),
               static_cast<std::streamsize>(bytes.size() - 1));
    decoded.push_back(Decode(*format, bytes));
    command += " " + std::string(format->name);
  }
  const std::unique_ptr<FILE, int (*)(FILE*)> package(popen(command.c_str(), "r"), pclose);
  ASSERT_NE(package, nullptr) << command;
  std::vector<float> want;
  for (size_t f = 0; f < formats.size(); ++f) {
    const Format& format = *formats[f];
    want.assign(decoded[f].size(), 0);
    ASSERT_EQ(std::fread(want.data(), sizeof(float), want.size(), package.get()), want.size()) << command;
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_TRUE(Same(want[i], decoded[f][i]))
          << format.name << " block " << i / format.block_weights << " weight " << i % format.block_weights
          << ": " << want[i] << " and " << decoded[f][i];
    }
  }
  std::ifstream sizes(folder / "sizes");
  uint32_t number;
  size_t weights, bytes;
  for (std::string name; sizes >> number >> name >> weights >> bytes;) {
    const Format* const format = Find(static_cast<Type>(number));
    // Q8_1 never lies in a file; its block has been 36 bytes since its two scales became halves, which the package missed.
    if (!format || format->type == Type::kQ8_1) continue;
    EXPECT_EQ(Find(name), format) << number;
    EXPECT_EQ(format->block_weights, weights) << name;
    EXPECT_EQ(format->block_bytes, bytes) << name;
  }
}

std::string TestName(const testing::TestParamInfo<const Format*>& info) {
  return std::string(info.param->name);
}

class IntegerFormat : public testing::TestWithParam<const Format*> {};

// In double scale * code + minimum is exact, and decode is it, rounded once; exactly it in a format without minima.
TEST_P(IntegerFormat, DecodeIsTheIntegerFormRoundedOnce) {
  const Format& format = *GetParam();
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  ASSERT_TRUE(format.unit == 16 || format.unit == 32);
  ASSERT_EQ(format.block_weights % format.unit, 0u);
  const Bytes bytes = MakeBlocks(format, rng);
  const auto decoded = Decode(format, bytes);
  Unpacked u;
  for (size_t n = 0; n < kBlocks; ++n) {
    std::memset(&u, 0x7f, sizeof u);
    format.unpack(bytes.data() + 1 + n * format.block_bytes, u);
    for (size_t i = 0; i < format.block_weights; ++i) {
      const double product = static_cast<double>(u.scale[i / format.unit]) * u.code[i];
      const float minimum = u.minimum[i / format.unit], got = decoded[n * format.block_weights + i];
      const double weight = format.minima ? product + minimum : product;
      ASSERT_TRUE(Same(static_cast<float>(weight), got)) << n << " " << i << ": " << weight << " and " << got;
      if (format.minima) continue;
      ASSERT_TRUE(weight == got || std::isnan(weight) || format.type == Type::kMXFP4) << n << " " << i;
      ASSERT_EQ(minimum, 0) << n;
    }
  }
}

// FNV-1a of the decoded bits of fixed blocks, as the package decodes them: referees where the package is not at hand.
TEST_P(IntegerFormat, KnownBlocksHaveTheKnownWeights) {
  struct Known {
    Type type;
    uint64_t hash;
  };
  constexpr Known kKnown[] = {
      {Type::kQ8_0, 0x98efc88655bf31c1},    {Type::kQ6_K, 0x7d110fafabdd24e9},
      {Type::kQ5_K, 0xce4e7892620dcc87},    {Type::kQ5_0, 0x2d20dc14a1949914},
      {Type::kQ5_1, 0xb92b2a679966837},     {Type::kQ4_K, 0xcf9fa0302611ede0},
      {Type::kQ4_0, 0xf45e456bfaaf6287},    {Type::kQ4_1, 0x742eac1ba98283f2},
      {Type::kQ3_K, 0xef82c129f2da46f5},    {Type::kQ2_K, 0x226024c325c643e2},
      {Type::kIQ4_NL, 0x99caecd863ce9bad},  {Type::kIQ4_XS, 0xc0f2a2b1d89a7e5b},
      {Type::kIQ3_S, 0x4f4ebcac739b8a57},   {Type::kIQ3_XXS, 0x21a6558bafa579ef},
      {Type::kIQ2_S, 0xf48ac502c4aad22f},   {Type::kIQ2_XS, 0xfc6919904cc5040},
      {Type::kIQ2_XXS, 0x9e8a23ebe8898b25}, {Type::kIQ1_M, 0xb8b4f1c783bc8886},
      {Type::kIQ1_S, 0x8452e1ca6b17da6f},   {Type::kMXFP4, 0x2aa5e94e57a2794b},
      {Type::kNVFP4, 0xb6ea1af2c1565094},   {Type::kTQ1_0, 0xaab81043ac8aef09},
      {Type::kTQ2_0, 0x8f12231f99f6bd5a},
  };
  const Format& format = *GetParam();
  std::mt19937_64 rng(20261130);
  const Bytes bytes = MakeBlocks(format, rng);
  uint64_t hash = 0xcbf29ce484222325u;
  for (const float v : Decode(format, bytes)) {
    const uint32_t bits = std::isnan(v) ? 0x7fc00000u : std::bit_cast<uint32_t>(v);
    for (int i = 0; i < 32; i += 8) hash = (hash ^ (bits >> i & 255u)) * 0x100000001b3u;
  }
  const auto* const known = std::find_if(std::begin(kKnown), std::end(kKnown),
                                         [&](const Known& k) { return k.type == format.type; });
  ASSERT_NE(known, std::end(kKnown)) << format.name << ", 0x" << std::hex << hash;
  EXPECT_EQ(known->hash, hash) << std::hex << "0x" << hash;
}

INSTANTIATE_TEST_SUITE_P(All, IntegerFormat, testing::ValuesIn(Runnable(true)), TestName);

// The blocks of the tests above reach every point of every grid: seen as its distinct runs of codes, without their signs where a
// format stores those, and with both shifts where it stores a shift.
TEST(Decode, TheBlocksReachEveryGridPoint) {
  struct GridFormat {
    Type type;
    size_t columns, points;
    bool signs;
  };
  for (const GridFormat& grid : {GridFormat{Type::kIQ2_XXS, 8, 256, true},
                                 {Type::kIQ2_XS, 8, 512, true},
                                 {Type::kIQ2_S, 8, 1024, true},
                                 {Type::kIQ3_XXS, 4, 256, true},
                                 {Type::kIQ3_S, 4, 512, true},
                                 {Type::kIQ1_S, 8, 2 * 2048, false},
                                 {Type::kIQ1_M, 8, 2 * 2048, false}}) {
    const Format& format = *Find(grid.type);
    std::mt19937_64 rng(20261130);
    const Bytes bytes = MakeBlocks(format, rng);
    std::set<std::vector<int>> points;
    Unpacked u;
    for (size_t n = 0; n < kBlocks; ++n) {
      format.unpack(bytes.data() + 1 + n * format.block_bytes, u);
      for (size_t i = 0; i < format.block_weights; i += grid.columns) {
        std::vector<int> point(u.code + i, u.code + i + grid.columns);
        for (int& v : point) v = grid.signs ? std::abs(v) : v;
        points.insert(point);
      }
    }
    EXPECT_EQ(points.size(), grid.points) << format.name;
  }
}

// All 65,536 halves and bfloats, against the exact value in double.
TEST(Decode, EveryHalfAndBFloat) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    for (const auto& [type, mantissa_bits, bias] : {std::tuple{Type::kF16, 10, 15}, {Type::kBF16, 7, 127}}) {
      const auto stored = static_cast<uint16_t>(bits);
      float got;
      Find(type)->decode(reinterpret_cast<const std::byte*>(&stored), &got, 1);
      const int mantissa = static_cast<int>(bits & ((1u << mantissa_bits) - 1));
      const int exponent = static_cast<int>(bits >> mantissa_bits) & (2 * bias + 1);
      double want = std::ldexp(exponent ? mantissa + (1 << mantissa_bits) : mantissa,
                               std::max(exponent, 1) - bias - mantissa_bits);
      if (exponent == 2 * bias + 1)
        want = mantissa ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
      if (bits & 0x8000) want = -want;
      ASSERT_TRUE(Same(static_cast<float>(want), got)) << Name(type) << " " << std::hex << bits;
    }
  }
}

}  // namespace
}  // namespace glint::quant
