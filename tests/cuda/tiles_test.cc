// Needs no GPU.
#include "cuda/tiles.h"

#include <gtest/gtest.h>

#include <bit>
#include <random>
#include <vector>

#include "base/half.h"
#include "quant/iq_grids.h"

namespace glint::cuda {
namespace {

using quant::Type;

TEST(Tiles, EveryLayoutIsAPermutationOfItsFormatsBytes) {
  int layouts = 0;
  for (const quant::Format& format : quant::Formats()) {
    const TileLayout* const layout = FindTileLayout(format.type);
    if (layout == nullptr) continue;
    SCOPED_TRACE(format.name);
    ++layouts;
    EXPECT_TRUE(format.integer());
    EXPECT_EQ(layout->block_weights, format.block_weights);
    if (layout->recoding == Recoding::kNone) {
      EXPECT_EQ(layout->row_bytes, format.block_bytes * layout->blocks);
    }
    EXPECT_EQ(layout->columns, format.block_weights * layout->blocks);
    ASSERT_LE(layout->sections, TileLayout::kMostSections);
    std::vector<int> taken(layout->bytes());
    for (int row = 0; row < kTileRows; ++row) {
      for (int at = 0; at < layout->row_bytes; ++at) {
        const uint32_t to = TileOffset(*layout, row, at);
        ASSERT_LT(to, layout->bytes()) << "row " << row << " byte " << at;
        ++taken[to];
      }
    }
    for (size_t to = 0; to < taken.size(); ++to) ASSERT_EQ(taken[to], 1) << to;
  }
  EXPECT_GE(layouts, 20);
}

// Lane 4 g + t of a warp holds, of the rows g and g + 8, bytes 8 t .. 8 t + 7 of each block: the operand of the int8 tensor cores. In
// chunks of 16 bytes a lane; behind them the blocks' scales, row by row.
TEST(Tiles, Q8_0LiesAsTheTensorCoresWantIt) {
  const TileLayout& layout = *FindTileLayout(Type::kQ8_0);
  for (int row = 0; row < 16; ++row) {
    for (int block = 0; block < 4; ++block) {
      for (int weight = 0; weight < 32; ++weight) {
        const int lane = row % 8 * 4 + weight / 8;
        const int want = block * 32 * 16 + lane * 16 + row / 8 * 8 + weight % 8;
        EXPECT_EQ(TileOffset(layout, row, block * 34 + 2 + weight), static_cast<uint32_t>(want));
      }
      EXPECT_EQ(TileOffset(layout, row, block * 34), static_cast<uint32_t>(16 * 128 + row * 8 + block * 2));
      EXPECT_EQ(TileOffset(layout, row, block * 34 + 1),
                static_cast<uint32_t>(16 * 128 + row * 8 + block * 2 + 1));
    }
  }
}

// The strings that are made of blocks of any bytes say what the blocks say.
TEST(Tiles, RecodedStringsKeepWhatTheBlockSays) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  for (const Type type : {Type::kIQ3_XXS, Type::kIQ3_S, Type::kIQ2_S}) {
    const quant::Format& format = *quant::Find(type);
    SCOPED_TRACE(format.name);
    const TileLayout& layout = *FindTileLayout(type);
    for (int round = 0; round < 20; ++round) {
      std::vector<uint8_t> block(format.block_bytes), s(layout.row_bytes);
      for (uint8_t& byte : block) byte = static_cast<uint8_t>(rng());
      for (uint32_t part = 0; part < kRecoders; ++part) Recode(layout.recoding, block.data(), s.data(), part);
      quant::Unpacked want;
      format.unpack(reinterpret_cast<const std::byte*>(block.data()), want);
      // Coordinate of weight k of a block of 32, by the fields of recode.h.
      const auto coordinate = [&](size_t b, size_t k) -> int {
        if (type == Type::kIQ3_XXS) return quant::kIq3XxsGrid.point[s[8 * b + k / 4]][k % 4];
        if (type == Type::kIQ3_S)
          return quant::kIq3SGrid.point[s[8 * b + k / 4] | (s[96 + k / 4] >> b & 1) << 8][k % 4];
        const int high = s[64 + k / 8 * 2] | s[65 + k / 8 * 2] << 8;
        return quant::kIq2SGrid.point[s[4 * b + k / 8] | (high >> (2 * b) & 3) << 8][k % 8];
      };
      const uint8_t* const signs = s.data() + (type == Type::kIQ2_S ? 32 : 64);
      for (size_t b = 0; b < 8; ++b) {
        for (size_t k = 0; k < 32; ++k) {
          const bool negative = signs[k] >> b & 1;
          ASSERT_EQ(want.code[32 * b + k], negative ? -coordinate(b, k) : coordinate(b, k));
        }
      }
      const size_t units = type == Type::kIQ2_S ? 16 : 8;
      const uint8_t *const d = s.data() + s.size() - 2, *const scales = d - units / 2;
      const float times = type == Type::kIQ3_XXS ? 0.25f : type == Type::kIQ3_S ? 1.0f : 0.125f;
      for (size_t u = 0; u < units; ++u) {
        const float scale = HalfToFloat(static_cast<uint16_t>(d[0] | d[1] << 8)) * times *
                            static_cast<float>(2 * (scales[u / 2] >> (u % 2 * 4) & 15) + 1);
        ASSERT_EQ(std::bit_cast<uint32_t>(want.scale[u]), std::bit_cast<uint32_t>(scale));
      }
    }
  }
}

TEST(Tiles, RecodedCodesOfSixBitsKeepWhatTheBlockSays) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  const quant::Format& format = *quant::Find(Type::kQ6_K);
  const TileLayout& layout = *FindTileLayout(Type::kQ6_K);
  ASSERT_EQ(layout.row_bytes, format.block_bytes);
  for (int round = 0; round < 20; ++round) {
    std::vector<uint8_t> block(format.block_bytes), s(layout.row_bytes);
    for (uint8_t& byte : block) byte = static_cast<uint8_t>(rng());
    for (uint32_t part = 0; part < kRecoders; ++part) Recode(layout.recoding, block.data(), s.data(), part);
    quant::Unpacked want;
    format.unpack(reinterpret_cast<const std::byte*>(block.data()), want);
    for (size_t b = 0; b < 8; ++b) {
      for (size_t k = 0; k < 32; ++k) {
        const uint8_t* const word = s.data() + b / 4 * 96 + k;
        const int code =
            b % 4 < 3 ? word[b % 4 * 32] & 63 : word[0] >> 6 | word[32] >> 6 << 2 | word[64] >> 6 << 4;
        ASSERT_EQ(want.code[32 * b + k], code - 32) << "block " << b << " column " << k;
      }
    }
    for (size_t at = 192; at < s.size(); ++at) ASSERT_EQ(s[at], block[at]);
  }
}

TEST(Tiles, SlicesArePaddedToWholeTiles) {
  const auto bytes = [](Type type, int64_t columns, int64_t rows) {
    const quant::Format& format = *quant::Find(type);
    model::Matrix w;
    w.type = type, w.columns = columns, w.rows = rows, w.slices = 7;
    w.row_bytes = *quant::RowBytes(format, static_cast<uint64_t>(columns));
    return DeviceSliceBytes(w);
  };
  EXPECT_EQ(bytes(Type::kQ8_0, 128, 16), 128u * 16 / 32 * 34);
  EXPECT_EQ(bytes(Type::kQ8_0, 32, 1), 128u * 16 / 32 * 34);
  EXPECT_EQ(bytes(Type::kQ8_0, 160, 17), 4u * 128 * 16 / 32 * 34);
  EXPECT_EQ(bytes(Type::kQ6_K, 256, 15), 16u * 210);
  EXPECT_EQ(bytes(Type::kQ6_K, 768, 33), 9u * 16 * 210);
  EXPECT_EQ(bytes(Type::kF32, 5, 3), 60u);
  EXPECT_EQ(bytes(Type::kBF16, 5, 3), 30u);
}

TEST(Tiles, FloatsAndWhatHasNoKernelsHaveNone) {
  for (const Type type : {Type::kF32, Type::kF16, Type::kBF16, Type::kTQ1_0, Type::kNVFP4})
    EXPECT_EQ(FindTileLayout(type), nullptr) << quant::Name(type);
}

}  // namespace
}  // namespace glint::cuda
