// Tiles of dot products in Dot16's order, for the indexer's scores, which meet many rows with several heads at once; and the copies to
// shared memory that attention's kernels have in common with them.
#pragma once
#include <cstdint>

#include "cuda/async.cuh"

namespace glint::cuda {

// kBytes (4 or 16, and both addresses at multiples of it) from global to shared memory, or as many zeros.
template <int kBytes>
__device__ inline void CopyAsyncOrZero(void* to, const void* from, bool there) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  const int bytes = there ? kBytes : 0;
  if constexpr (kBytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(bytes) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(at), "l"(from), "r"(bytes) : "memory");
}

// 128 floats, of which there are `left`, to shared memory by the threads of a warp, and zeros for the others. `wide`: both start at
// multiples of 16 bytes, and `left` is a multiple of 4.
__device__ inline void Copy128(float* to, const float* from, int left, bool wide, int thread) {
  if (wide) {
    const int k = thread * 4;
    CopyAsyncOrZero<16>(to + k, from + (k < left ? k : 0), k < left);
  } else {
    for (int k = thread; k < 128; k += 32) CopyAsyncOrZero<4>(to + k, from + (k < left ? k : 0), k < left);
  }
}

// A block's tile of dot products: kHeads queries with kKeys keys, which pass through shared memory kColumns columns at a time. A half
// warp has 8 queries and 8 keys, its thread `lane` being lane `lane` of all their 64 sums: sixteen loads serve 64 multiply-adds.
template <int kHeads>
struct DotTiles {
  static constexpr int kKeys = 32, kColumns = 128, kSide = 8, kSums = kSide * kSide;
  static constexpr int kThreads = kHeads / kSide * (kKeys / kSide) * 16;
  static_assert(kColumns == 128, "of Copy128");
  // The two halves of a warp read neighbouring rows: sixteen banks apart.
  static constexpr int kStride = kColumns + 16;
  static constexpr int kQueryFloats = kHeads * kStride, kKeyFloats = kKeys * kStride;

  __host__ __device__ static constexpr int64_t Chunks(int64_t width) {
    return (width + kColumns - 1) / kColumns;
  }
  // Shared memory in which `slots` chunks of queries are kept: as many as there are, or two.
  static constexpr int SharedBytes(int64_t slots) {
    return static_cast<int>((slots * kQueryFloats + 2 * kKeyFloats) * int64_t{sizeof(float)});
  }

  // What a thread holds in the end: the sums of one key with four queries in a row.
  int lane, key, first_query;
  __device__ DotTiles() {
    const int half = static_cast<int>(threadIdx.x) / 16, keys_of = kKeys / kSide;
    lane = static_cast<int>(threadIdx.x) % 16;
    key = lane / 2 * keys_of + half % keys_of;
    first_query = half / keys_of * kSide + lane % 2 * 4;
  }

  // done(tile, group, sums) for every group of kHeads queries within every tile of kKeys keys, in order, by all threads of the block.
  // query(group, i) and key_row(tile, i): where a row of `width` floats starts; rows that are not wanted repeat others. `slots`: of
  // SharedBytes; with room for all chunks of all groups, queries are read once for all tiles.
  template <class Query, class Key, class Done>
  __device__ void Run(float* shared, int64_t slots, int64_t tiles, int64_t groups, int64_t width,
                      Query&& query, Key&& key_row, Done&& done) const {
    const int warp = static_cast<int>(threadIdx.x) / 32, thread = static_cast<int>(threadIdx.x) % 32;
    const int chunks = static_cast<int>(Chunks(width));
    const bool stay = slots >= groups * chunks;
    float* const keys = shared + slots * kQueryFloats;
    Step loading{0, 0, 0, 0, chunks, static_cast<int>(groups)}, step = loading;
    const auto query_slot = [&](const Step& s) {
      return shared + (stay ? s.group * chunks + s.chunk : s.turn) * kQueryFloats;
    };
    const bool wide = width % 4 == 0;  // then all rows start at multiples of 16 bytes
    const auto load = [&] {
      if (loading.tile < tiles) {
        const int64_t first = int64_t{loading.chunk} * kColumns, rest = width - first;
        const int left = static_cast<int>(rest < kColumns ? rest : kColumns);
        if (!stay || loading.tile == 0) {
          float* const to = query_slot(loading);
#pragma unroll
          for (int i = warp; i < kHeads; i += kThreads / 32)
            Copy128(to + i * kStride, query(loading.group, i) + first, left, wide, thread);
        }
        float* const to = keys + loading.turn * kKeyFloats;
        const float* from[kKeys * 32 / kThreads];
#pragma unroll
        for (int i = 0; i < kKeys * 32 / kThreads; ++i)
          from[i] = key_row(loading.tile, warp + i * (kThreads / 32));
#pragma unroll
        for (int i = 0; i < kKeys * 32 / kThreads; ++i)
          Copy128(to + (warp + i * (kThreads / 32)) * kStride, from[i] + first, left, wide, thread);
        loading.Next();
      }
      CommitCopies();
    };
    float sum[kSums];  // [key][query]
#pragma unroll
    for (int i = 0; i < kSums; ++i) sum[i] = 0;
    load();
    while (step.tile < tiles) {
      load();
      WaitForCopies<1>();
      __syncthreads();  // this step's chunks have arrived, for all
      const int64_t left = width - int64_t{step.chunk} * kColumns;
      const float* const a = query_slot(step) + (first_query - lane % 2 * 4) * kStride + lane;
      const float* const x = keys + step.turn * kKeyFloats + key % (kKeys / kSide) * kStride + lane;
      Add(a, x, static_cast<int>(left < kColumns ? left : kColumns), sum);
      if (step.chunk == chunks - 1) {
        AddLanes(sum);
        const float sums[4] = {sum[0], sum[1], sum[2], sum[3]};
        done(step.tile, step.group, sums);
#pragma unroll
        for (int i = 0; i < kSums; ++i) sum[i] = 0;
      }
      step.Next();
      __syncthreads();  // this step's chunks are read, and the next but one may come
    }
  }

 private:
  // One chunk of columns of one group of queries with one tile of keys.
  struct Step {
    int tile, group, chunk, turn, chunks, groups;  // turn: which of two places of shared memory
    __device__ void Next() {
      turn ^= 1;
      if (++chunk < chunks) return;
      chunk = 0;
      if (++group < groups) return;
      group = 0;
      ++tile;
    }
  };
  static __device__ void Add(const float* a, const float* x, int columns, float (&sum)[kSums]) {
    const auto sixteen = [&](int k) {  // zeros past the end change no sum
      float from_a[kSide], from_x[kSide];
#pragma unroll
      for (int i = 0; i < kSide; ++i) from_a[i] = a[i * kStride + k];
#pragma unroll
      for (int i = 0; i < kSide; ++i) from_x[i] = x[i * (kKeys / kSide) * kStride + k];
#pragma unroll
      for (int i = 0; i < kSums; ++i) sum[i] = fmaf(from_a[i % kSide], from_x[i / kSide], sum[i]);
    };
    if (columns == kColumns) {
#pragma unroll
      for (int k = 0; k < kColumns; k += 16) sixteen(k);
    } else {
      for (int k = 0; k < columns; k += 16) sixteen(k);
    }
  }
  // The sums over lanes, l[i] + l[i + 8] first, then 4, 2 and 1 apart. In each round two partners share out the sums they have
  // between them, so that 60 exchanges add up all 64; which of the two adds does not matter.
  __device__ void AddLanes(float (&sum)[kSums]) const {
#pragma unroll
    for (int round = 0; round < 4; ++round) {
      const int apart = 8 >> round, kept = kSums / 2 >> round;
      const bool upper = (lane & apart) != 0;
#pragma unroll
      for (int i = 0; i < kSums / 2; ++i) {
        if (i >= kept) continue;
        const float give = upper ? sum[i] : sum[i + kept], keep = upper ? sum[i + kept] : sum[i];
        sum[i] = keep + __shfl_xor_sync(0xffffffffu, give, apart);
      }
    }
  }
};

}  // namespace glint::cuda
