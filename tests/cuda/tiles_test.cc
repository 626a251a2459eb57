// Needs no GPU.
#include "cuda/tiles.h"

#include <gtest/gtest.h>

#include <vector>

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
    EXPECT_EQ(layout->row_bytes, format.block_bytes * layout->blocks);
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

// Lane 4 g + t of a warp holds, of the rows g and g + 8, bytes 4 t .. 4 t + 3 of each 16: the operand of the int8 tensor cores. In
// chunks of 16 bytes a lane; behind them the blocks' scales, row by row.
TEST(Tiles, Q8_0LiesAsTheTensorCoresWantIt) {
  const TileLayout& layout = *FindTileLayout(Type::kQ8_0);
  for (int row = 0; row < 16; ++row) {
    for (int block = 0; block < 4; ++block) {
      for (int weight = 0; weight < 32; ++weight) {
        const int lane = row % 8 * 4 + weight % 16 / 4;
        const int word = (block * 2 + weight / 16) * 2 + row / 8;  // of the lane
        const int want = word / 4 * 32 * 16 + lane * 16 + word % 4 * 4 + weight % 4;
        EXPECT_EQ(TileOffset(layout, row, block * 34 + 2 + weight), static_cast<uint32_t>(want));
      }
      EXPECT_EQ(TileOffset(layout, row, block * 34), static_cast<uint32_t>(16 * 128 + row * 8 + block * 2));
      EXPECT_EQ(TileOffset(layout, row, block * 34 + 1),
                static_cast<uint32_t>(16 * 128 + row * 8 + block * 2 + 1));
    }
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
