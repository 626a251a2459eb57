// From the file's order of bytes to that of cuda/tiles.h, on the device: bytes of a file that were copied there, or of a synthetic
// model that are made on the spot.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/recode.h"

namespace glint::cuda {

inline constexpr uint32_t kMostStringBytes = 212;  // of a row's string in one tile (Q6_K, padded to words)

// A tiled matrix as it will be.
struct TiledMatrix {
  // Device memory, [tile_bytes]: row << 8 | position in the row's string, for each byte of a tile.
  const uint16_t* places = nullptr;
  uint8_t* out = nullptr;   // tile 0 of slice 0, at a multiple of 16
  uint32_t tile_bytes = 0;  // a multiple of 16
  uint32_t string_bytes =
      0;  // of a row in a tile, as `places` counts positions (before recoding, where there is some)
  Recoding recoding = Recoding::kNone;  // of strings of one block: `places` are then of what it makes
  uint32_t rows = 0;                    // of a slice
  uint32_t row_tiles = 0;               // of a slice: rows / 16, rounded up
  uint32_t column_tiles = 0;  // the last may have only the beginning of its strings: the rest becomes zeros
};

// Row tiles are counted through all slices: row tile t is row tile t mod row_tiles of slice t / row_tiles.
struct RetileArgs {
  TiledMatrix matrix;
  // Device memory at a multiple of 4: the rows of the row tiles from `first` on, as in the file. Up to 3 bytes behind them are read.
  const uint8_t* raw = nullptr;
  uint64_t row_bytes = 0;
  uint32_t first = 0, count = 0;  // row tiles
  uint32_t blocks = 0;            // of the grid
};

// Chunk i of the file's order (a block of the format) is chunk Draw(key, i) mod 256 of the pool (model/synthetic_fill.h).
struct FillTilesArgs {
  TiledMatrix matrix;              // positions count each block as chunk_words whole words
  const uint32_t* pool = nullptr;  // device memory, [256][chunk_words]: blocks padded to words
  uint64_t key = 0;
  uint32_t chunk_words = 0;
  uint32_t chunks = 0;      // of a string
  uint32_t row_chunks = 0;  // of a row
  uint32_t count = 0;       // row tiles
  uint32_t blocks = 0;      // of the grid
};

// The same for plain rows of 16- or 32-bit weights, in halves of 2 bytes.
struct FillRowsArgs {
  uint16_t* out = nullptr;
  uint64_t halves = 0;             // of the matrix
  const uint16_t* pool = nullptr;  // device memory, [256][chunk_halves]
  uint64_t key = 0;
  uint32_t chunk_halves = 0;
  uint32_t blocks = 0;  // of the grid
};

// Each enqueues on `stream` and returns what the launch said.
cudaError_t LaunchRetile(const RetileArgs& args, cudaStream_t stream);
cudaError_t LaunchFillTiles(const FillTilesArgs& args, cudaStream_t stream);
cudaError_t LaunchFillRows(const FillRowsArgs& args, cudaStream_t stream);

}  // namespace glint::cuda
