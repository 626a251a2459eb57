#include "cuda/retile.h"

namespace glint::cuda {
namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kRows = 16;  // of a tile; 16 threads fetch each
constexpr uint32_t kLanes = kThreads / kRows;
static_assert(kLanes == kRecoders);
// Words of a string in shared memory: with up to 3 bytes before it, so that whole words are fetched. Odd, so that the rows of a
// column of bytes lie in different banks.
constexpr uint32_t kStride = ((kMostStringBytes + 3 + 3) / 4) | 1;
constexpr uint32_t kMostTileBytes = kMostStringBytes * kRows;

// Where a tile is in the matrix.
struct Tile {
  uint32_t slice, row, rows;  // its first row in the slice; how many there are
  uint32_t column;            // column tile
};

// The file's bytes. String of row r of the tile: from byte Phase(tile, r) of its words on.
struct FileStrings {
  const uint8_t* raw;
  uint64_t row_bytes;
  uint64_t first_row;  // of all rows of the matrix: the one that `raw` begins with
  uint32_t string_bytes, rows;

  __device__ const uint8_t* Begin(const Tile& t, uint32_t r) const {
    const uint64_t row = uint64_t{t.slice} * rows + t.row + r - first_row;
    return raw + row * row_bytes + uint64_t{t.column} * string_bytes;
  }
  __device__ uint32_t Phase(const Tile& t, uint32_t r) const {
    return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(Begin(t, r))) & 3;
  }
  __device__ uint32_t Bytes(const Tile& t) const {
    const uint64_t left = row_bytes - uint64_t{t.column} * string_bytes;
    return left < string_bytes ? static_cast<uint32_t>(left) : string_bytes;
  }
  __device__ void Fetch(const Tile& t, uint32_t r, uint32_t lane, uint32_t* words) const {
    const uint8_t* const begin = Begin(t, r);
    const uint32_t phase = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(begin)) & 3;
    const auto* const from = reinterpret_cast<const uint32_t*>(begin - phase);
    const uint32_t count = (phase + Bytes(t) + 3) / 4;
    for (uint32_t w = lane; w < count; w += kLanes) words[w] = from[w];
  }
};

// SplitMix64, as model/synthetic_fill.h.
__device__ uint32_t DrawChunk(uint64_t key, uint64_t counter) {
  uint64_t z = key + (counter + 1) * 0x9E3779B97F4A7C15ull;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ z >> 27) * 0x94D049BB133111EBull;
  return static_cast<uint32_t>(z ^ z >> 31) & 255;
}

struct DrawnStrings {
  const uint32_t* pool;
  uint64_t key;
  uint32_t chunk_words, chunks, row_chunks, rows;

  __device__ static uint32_t Phase(const Tile&, uint32_t) { return 0; }
  __device__ uint32_t Chunks(const Tile& t) const {
    const uint32_t left = row_chunks - t.column * chunks;
    return left < chunks ? left : chunks;
  }
  __device__ uint32_t Bytes(const Tile& t) const { return Chunks(t) * chunk_words * 4; }
  __device__ void Fetch(const Tile& t, uint32_t r, uint32_t lane, uint32_t* words) const {
    const uint64_t row = uint64_t{t.slice} * rows + t.row + r, at = row * row_chunks + t.column * chunks;
    const uint32_t count = Chunks(t);
    for (uint32_t c = 0; c < count; ++c, words += chunk_words) {
      const uint32_t* const from = pool + DrawChunk(key, at + c) * chunk_words;
      for (uint32_t w = lane; w < chunk_words; w += kLanes) words[w] = from[w];
    }
  }
};

// Blocks take tiles in turn: a tile's strings to shared memory, 16 threads a row, then out in the tile's order, a word a thread.
// A tile is 1 to 3 KB; eight blocks a multiprocessor have enough of them under way.
template <class Strings>
__global__ void __launch_bounds__(kThreads)
    TileKernel(const TiledMatrix m, const Strings strings, const uint32_t first, const uint32_t count) {
  __shared__ alignas(8) uint16_t places[kMostTileBytes];
  __shared__ uint32_t words[kRows * kStride];
  __shared__ uint32_t recoded[kRows * kStride];
  const uint32_t thread = threadIdx.x, my_row = thread / kLanes, lane = thread % kLanes;
  for (uint32_t i = thread; i < m.tile_bytes; i += kThreads) places[i] = m.places[i];

  const uint32_t tiles = count * m.column_tiles;
  for (uint32_t i = blockIdx.x; i < tiles; i += gridDim.x) {
    const uint32_t row_tile = first + i / m.column_tiles;
    Tile t;
    t.column = i % m.column_tiles;
    t.slice = row_tile / m.row_tiles;
    t.row = row_tile % m.row_tiles * kRows;
    t.rows = min(m.rows - t.row, kRows);

    __syncthreads();  // `places` is filled; nobody reads the tile before this one any more
    if (my_row < t.rows) strings.Fetch(t, my_row, lane, words + my_row * kStride);
    __syncthreads();  // the strings are there

    uint32_t bytes = strings.Bytes(t), phase = strings.Phase(t, 0), step = strings.Phase(t, 1) - phase;
    const bool whole = t.rows == kRows && bytes == m.string_bytes;
    const uint32_t* from = words;
    if (m.recoding != Recoding::kNone) {
      if (my_row < t.rows) {
        const uint32_t my_phase = (phase + my_row * step) & 3;
        Recode(m.recoding, reinterpret_cast<const uint8_t*>(words + my_row * kStride) + my_phase,
               reinterpret_cast<uint8_t*>(recoded + my_row * kStride), lane);
      }
      __syncthreads();
      from = recoded, bytes = kMostStringBytes, phase = step = 0;
    }
    const auto byte = [&](uint32_t place) -> uint32_t {
      const uint32_t row = place >> 8, at = place & 255;
      if (!whole && (row >= t.rows || at >= bytes)) return 0;  // what was not fetched is not read
      return reinterpret_cast<const uint8_t*>(from + row * kStride)[((phase + row * step) & 3) + at];
    };
    auto* const out =
        reinterpret_cast<uint32_t*>(m.out + (uint64_t{first} * m.column_tiles + i) * m.tile_bytes);
    for (uint32_t w = thread; w < m.tile_bytes / 4; w += kThreads) {
      const uint2 four = reinterpret_cast<const uint2*>(places)[w];
      out[w] = byte(four.x & 0xffff) | byte(four.x >> 16) << 8 | byte(four.y & 0xffff) << 16 |
               byte(four.y >> 16) << 24;
    }
  }
}

__global__ void __launch_bounds__(kThreads) FillRowsKernel(const FillRowsArgs a) {
  const uint64_t step = uint64_t{gridDim.x} * kThreads;
  for (uint64_t i = uint64_t{blockIdx.x} * kThreads + threadIdx.x; i < a.halves; i += step) {
    const uint64_t chunk = i / a.chunk_halves;
    a.out[i] = a.pool[DrawChunk(a.key, chunk) * a.chunk_halves + static_cast<uint32_t>(i % a.chunk_halves)];
  }
}

template <class Strings>
cudaError_t Launch(const TiledMatrix& m, const Strings& strings, uint32_t first, uint32_t count,
                   uint32_t blocks, cudaStream_t stream) {
  const uint32_t tiles = count * m.column_tiles;
  if (tiles == 0) return cudaSuccess;
  const uint32_t grid = tiles < blocks ? tiles : blocks;
  TileKernel<<<grid, kThreads, 0, stream>>>(m, strings, first, count);
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchRetile(const RetileArgs& a, cudaStream_t stream) {
  const TiledMatrix& m = a.matrix;
  const uint64_t first_row =
      uint64_t{a.first / m.row_tiles} * m.rows + uint64_t{a.first % m.row_tiles} * kRows;
  return Launch(m, FileStrings{a.raw, a.row_bytes, first_row, m.string_bytes, m.rows}, a.first, a.count,
                a.blocks, stream);
}

cudaError_t LaunchFillTiles(const FillTilesArgs& a, cudaStream_t stream) {
  return Launch(a.matrix, DrawnStrings{a.pool, a.key, a.chunk_words, a.chunks, a.row_chunks, a.matrix.rows},
                0, a.count, a.blocks, stream);
}

cudaError_t LaunchFillRows(const FillRowsArgs& a, cudaStream_t stream) {
  if (a.halves == 0) return cudaSuccess;
  const uint64_t wanted = (a.halves + kThreads - 1) / kThreads;
  const auto grid = static_cast<uint32_t>(wanted < a.blocks ? wanted : a.blocks);
  FillRowsKernel<<<grid, kThreads, 0, stream>>>(a);
  return cudaGetLastError();
}

}  // namespace glint::cuda
