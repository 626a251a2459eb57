// How a matrix of an integer format lies in device memory: the file's bytes, permuted so that a warp's load of one tile is a few
// loads of 16 bytes a lane, and so that a lane's bytes are those that the int8 tensor cores' fragments want of it.
//
// A tile is 16 weight rows by kTileColumns columns (one block of the K- and IQ-formats, four blocks of the formats of 32); as many
// bytes as in the file. Rows are padded to 16 and the last tile of a row to four blocks with zero bytes. A slice is
// [row tile][column tile][tile]. Within a tile the bytes of a row (those of the file, in order: "row string"; of some formats the same
// bits in another order, cuda/recode.h) are taken apart into sections:
//   lanes  pieces of 4 u bytes; lane t of four gets bytes u t ... of each. Lane 4 g + t of the warp holds those of rows g and g + 8,
//          piece by piece, row g first: its string. Chunks of 16 bytes of the strings (or all, where there are fewer) lie side by
//          side: [chunk][lane][16].
//   rows   what all four lanes of a row want (scales): [16 rows][pieces].
// Sections follow one another in the tile in the order of the table.
#pragma once
#include <cstdint>

#include "cuda/recode.h"
#include "model/matrix.h"
#include "quant/format.h"

namespace glint::cuda {

inline constexpr int kTileRows = 16;

// Pieces (o, i), o < outer_count, i < inner_count, of `width` bytes at begin + o * outer + i * inner of the row string.
struct TileSection {
  uint16_t begin = 0, width = 0;
  uint16_t inner = 0, inner_count = 1, outer = 0, outer_count = 1;
  bool lanes = false;
  constexpr int pieces() const { return inner_count * outer_count; }
  constexpr int row_bytes() const { return pieces() * width; }
};

struct TileLayout {
  static constexpr int kMostSections = 6;
  quant::Type type{};
  uint16_t columns = 0;                    // of a tile
  uint16_t block_weights = 0, blocks = 0;  // weights of a block; blocks of a row string
  uint16_t row_bytes = 0;                  // of a row string
  Recoding recoding = Recoding::kNone;     // how the row string is made of the file's bytes
  uint16_t sections = 0;
  TileSection section[kMostSections] = {};
  constexpr uint32_t bytes() const { return uint32_t{row_bytes} * kTileRows; }
};

// Where byte `at` of row `row`'s string lies in the tile.
constexpr uint32_t TileOffset(const TileLayout& layout, int row, int at) {
  uint32_t base = 0;
  for (int s = 0; s < layout.sections; ++s) {
    const TileSection& section = layout.section[s];
    for (int o = 0; o < section.outer_count; ++o) {
      for (int i = 0; i < section.inner_count; ++i) {
        const int begin = section.begin + o * section.outer + i * section.inner, inside = at - begin;
        if (inside < 0 || inside >= section.width) continue;
        const int piece = o * section.inner_count + i;
        if (!section.lanes)
          return base + static_cast<uint32_t>(row * section.row_bytes() + piece * section.width + inside);
        const int u = section.width / 4, lane = row % 8 * 4 + inside / u;
        const int position = piece * 2 * u + row / 8 * u + inside % u;
        const int all = section.row_bytes() / 2, chunk = all < 16 ? all : 16;
        return base + static_cast<uint32_t>(position / chunk * chunk * 32 + lane * chunk + position % chunk);
      }
    }
    base += static_cast<uint32_t>(section.row_bytes() * kTileRows);
  }
  return ~0u;  // in no section: the tests see that there is no such byte
}

// Null: an integer format without kernels here, or no integer format.
const TileLayout* FindTileLayout(quant::Type type);

// Bytes of one slice of `w` on the device: tiled, or plain rows for F32, F16 and BF16.
uint64_t DeviceSliceBytes(const model::Matrix& w);

}  // namespace glint::cuda
