#include "cuda/tiles.h"

#include <array>

namespace glint::cuda {
namespace {

using quant::Type;

// Bytes of lanes: `pieces` pieces of `width` bytes, `stride` apart, in each of `blocks` blocks of `block_bytes`.
constexpr TileSection Lanes(int begin, int width, int stride, int pieces, int block_bytes = 0,
                            int blocks = 1) {
  return {static_cast<uint16_t>(begin),
          static_cast<uint16_t>(width),
          static_cast<uint16_t>(stride),
          static_cast<uint16_t>(pieces),
          static_cast<uint16_t>(block_bytes),
          static_cast<uint16_t>(blocks),
          true};
}
constexpr TileSection Rows(int begin, int width, int stride = 0, int pieces = 1) {
  return {static_cast<uint16_t>(begin),
          static_cast<uint16_t>(width),
          static_cast<uint16_t>(stride),
          static_cast<uint16_t>(pieces),
          0,
          1,
          false};
}

// A format of 256 weights a block: one block is a tile's row string.
template <class... Sections>
constexpr TileLayout Super(Type type, int bytes, Sections... sections) {
  return {type,         256, 256, 1, static_cast<uint16_t>(bytes), Recoding::kNone, sizeof...(sections),
          {sections...}};
}
// The same of a string made by `recoding`.
template <class... Sections>
constexpr TileLayout Recoded(Type type, Recoding recoding, Sections... sections) {
  return {
      type,         256, 256, 1, static_cast<uint16_t>(RecodedBytes(recoding)), recoding, sizeof...(sections),
      {sections...}};
}

// A format of 32 weights a block, whose first `head` bytes are the row's: four blocks. Its codes: `pieces` pieces of `width` bytes.
constexpr TileLayout Small(Type type, int bytes, int head, int pieces, int width = 16) {
  return {type,
          128,
          32,
          4,
          static_cast<uint16_t>(4 * bytes),
          Recoding::kNone,
          2,
          {Lanes(head, width, width, pieces, bytes, 4), Rows(0, head, bytes, 4)}};
}

// The order of the fields is that of the blocks in src/quant/<format>.h.
constexpr std::array kLayouts{
    Small(Type::kQ8_0, 34, 2, 1, 32),
    Small(Type::kQ4_0, 18, 2, 1),
    Small(Type::kQ4_1, 20, 4, 1),
    Small(Type::kQ5_0, 22, 6, 1),
    Small(Type::kQ5_1, 24, 8, 1),
    Small(Type::kIQ4_NL, 18, 2, 1),
    Small(Type::kMXFP4, 17, 1, 1),
    Super(Type::kQ2_K, 84, Lanes(16, 16, 16, 4), Rows(0, 16), Rows(80, 4)),
    Super(Type::kQ3_K, 110, Lanes(32, 16, 16, 4), Lanes(0, 16, 16, 2), Rows(96, 12), Rows(108, 2)),
    Super(Type::kQ4_K, 144, Lanes(16, 16, 16, 8), Rows(0, 16)),
    Super(Type::kQ5_K, 176, Lanes(48, 16, 16, 8), Lanes(16, 16, 16, 2), Rows(0, 16)),
    Recoded(Type::kQ6_K, Recoding::kQ6K, Lanes(0, 16, 16, 12), Rows(192, 16), Rows(208, 2)),
    Super(Type::kIQ4_XS, 136, Lanes(8, 16, 16, 8), Rows(0, 8)),
    Recoded(Type::kIQ3_S, Recoding::kIq3S, Lanes(0, 8, 8, 8), Lanes(64, 32, 32, 1), Lanes(96, 8, 8, 1),
            Rows(104, 4), Rows(108, 2)),
    Recoded(Type::kIQ3_XXS, Recoding::kIq3Xxs, Lanes(0, 8, 8, 8), Lanes(64, 32, 32, 1), Rows(96, 4),
            Rows(100, 2)),
    Recoded(Type::kIQ2_S, Recoding::kIq2S, Lanes(0, 4, 4, 8), Lanes(32, 32, 32, 1), Lanes(64, 8, 8, 1),
            Rows(72, 8), Rows(80, 2)),
    Super(Type::kIQ2_XS, 74, Lanes(2, 8, 8, 8), Rows(66, 8), Rows(0, 2)),
    Super(Type::kIQ2_XXS, 66, Lanes(2, 4, 8, 8), Rows(6, 4, 8, 8), Rows(0, 2)),
    Super(Type::kIQ1_S, 50, Lanes(2, 4, 4, 8), Rows(34, 16), Rows(0, 2)),
    Super(Type::kIQ1_M, 56, Lanes(0, 4, 4, 8), Rows(32, 16), Rows(48, 8)),
    Super(Type::kTQ2_0, 66, Lanes(0, 16, 16, 4), Rows(64, 2)),
};

// Every byte of every row has a place, and no two share one.
constexpr bool IsPermutation(const TileLayout& layout) {
  std::array<bool, 210 * kTileRows> taken{};
  for (int row = 0; row < kTileRows; ++row) {
    for (int at = 0; at < layout.row_bytes; ++at) {
      const uint32_t to = TileOffset(layout, row, at);
      if (to >= layout.bytes() || taken[to]) return false;
      taken[to] = true;
    }
  }
  return true;
}
static_assert(IsPermutation(kLayouts[0]) && IsPermutation(kLayouts[6]) && IsPermutation(kLayouts[13]));

}  // namespace

const TileLayout* FindTileLayout(Type type) {
  for (const TileLayout& layout : kLayouts)
    if (layout.type == type) return &layout;
  return nullptr;
}

uint64_t DeviceSliceBytes(const model::Matrix& w) {
  const auto rows = static_cast<uint64_t>(w.rows), columns = static_cast<uint64_t>(w.columns);
  const TileLayout* const layout = FindTileLayout(w.type);
  if (layout == nullptr) return rows * w.row_bytes;
  return (rows + kTileRows - 1) / kTileRows * ((columns + layout->columns - 1) / layout->columns) *
         layout->bytes();
}

}  // namespace glint::cuda
