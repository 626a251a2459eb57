// spec/model.md 6, step 5, absorbed: each head's query is taken to the latent space, attends to the selected
// latent rows there, and their mix is brought back. One latent row serves as key and value of every head.
//
// A row's list is cut into parts of kAttendPart entries, and blocks share out parts, heads and columns, so that one row fills the GPU.
#include <algorithm>
#include <cmath>

#include "cuda/dots.cuh"
#include "cuda/dsa_groups.h"
#include "cuda/launch.h"
#include "cuda/product.h"

namespace glint::cuda {
namespace {

constexpr int kPart = kAttendPart;

struct AttendArgs {
  const RowView* rows;      // of the group
  const int32_t* selected;  // [rows][width], ascending
  const int32_t* counts;    // [rows]
  float* query;             // [rows][heads][rank]; in the end the mix takes its place
  float* scores;            // [rows][heads][width]
  float* tops;              // [rows][heads][parts] the largest score of each part
  float* sums;              // [rows][heads][parts] the sum of its weights
  float* mixes;             // [rows][heads][parts][rank]
  int64_t heads, rank, width, parts;
  float scale;
  int layer;
};

// The entries [begin, begin + n) of a row's list.
struct Part {
  int64_t begin;
  int n;  // at most 0: the list ends before
};
__device__ Part PartOf(int64_t part, int64_t count) {
  const int64_t begin = part * kPart, left = count - begin;
  return {begin, static_cast<int>(left < kPart ? left : kPart)};
}

constexpr int kScoreThreads = kPart / kDotRows * 16;

// Blocks (part, heads / kDotHeads, row). A half warp takes four entries.
__global__ void __launch_bounds__(kScoreThreads) AttendScoreKernel(const AttendArgs a) {
  // Four more columns keep the half warps' stores apart.
  __shared__ float score[kDotHeads][kPart + 4];
  const int64_t r = blockIdx.z, h0 = int64_t{blockIdx.y} * kDotHeads;
  const Part part = PartOf(blockIdx.x, a.counts[r]);
  if (part.n <= 0) return;
  const float* const latent = a.rows[r].layers[a.layer].latent;
  const int32_t* const list = a.selected + r * a.width + part.begin;
  const int lane = static_cast<int>(threadIdx.x) % 16, half = static_cast<int>(threadIdx.x) / 16;
  const float* entries[kDotRows];
#pragma unroll
  for (int i = 0; i < kDotRows; ++i) {
    const int e = half * kDotRows + i;
    entries[i] = latent + list[e < part.n ? e : part.n - 1] * a.rank;
  }
  const float* queries[kDotHeads];
#pragma unroll
  for (int i = 0; i < kDotHeads; ++i) {
    const int64_t h = h0 + i < a.heads ? h0 + i : a.heads - 1;
    queries[i] = a.query + (r * a.heads + h) * a.rank;
  }
  float dots[2];
  TileDots(lane, a.rank, queries, entries, dots);
  score[lane % 4 * 2][half * kDotRows + lane / 4] = dots[0] * a.scale;
  score[lane % 4 * 2 + 1][half * kDotRows + lane / 4] = dots[1] * a.scale;
  __syncthreads();  // the part's scores are there

  // A warp a head. Which of two equal scores is the largest, and which NaN, is all one: with a NaN the head's mix is NaN.
  const int head = static_cast<int>(threadIdx.x) / 32, thread = static_cast<int>(threadIdx.x) % 32;
  static_assert(kScoreThreads / 32 >= kDotHeads, "a warp for each head");
  if (head >= kDotHeads || h0 + head >= a.heads) return;  // whole warps
  const int64_t row_head = r * a.heads + h0 + head;
  float top = score[head][0];
  for (int e = thread; e < part.n; e += 32) {
    a.scores[row_head * a.width + part.begin + e] = score[head][e];
    top = StdMax(top, score[head][e]);
  }
  for (int apart = 16; apart > 0; apart /= 2) top = StdMax(top, __shfl_xor_sync(0xffffffffu, top, apart));
  if (thread == 0) a.tops[row_head * a.parts + blockIdx.x] = top;
}

constexpr int kMixThreads = 256;

// Blocks (part * column tiles, heads / kDotHeads, row). A thread adds up one column for all heads of the block.
__global__ void __launch_bounds__(kMixThreads) AttendMixKernel(const AttendArgs a) {
  __shared__ float4 weight[kPart][kDotHeads / 4];  // exp(score - top)
  __shared__ int64_t start[kPart];                 // where each entry's latent row starts
  const int64_t r = blockIdx.z, h0 = int64_t{blockIdx.y} * kDotHeads, count = a.counts[r];
  const int64_t index = blockIdx.x % a.parts, columns = blockIdx.x / a.parts * kMixThreads;
  const Part part = PartOf(index, count);
  if (part.n <= 0) return;
  const int32_t* const list = a.selected + r * a.width + part.begin;
  for (int e = static_cast<int>(threadIdx.x); e < part.n; e += kMixThreads) start[e] = list[e] * a.rank;
  {  // A warp a head.
    static_assert(kMixThreads / 32 == kDotHeads, "a warp for each head");
    const int head = static_cast<int>(threadIdx.x) / 32, thread = static_cast<int>(threadIdx.x) % 32;
    const int64_t row_head = r * a.heads + (h0 + head < a.heads ? h0 + head : a.heads - 1);
    const float* const tops = a.tops + row_head * a.parts;
    const float* const scores = a.scores + row_head * a.width + part.begin;
    float top = tops[0];
    for (int64_t p = 1; p * kPart < count; ++p) top = StdMax(top, tops[p]);
    auto* const weights = reinterpret_cast<float*>(weight);
    for (int e = thread; e < part.n; e += 32) weights[e * kDotHeads + head] = Exp(scores[e] - top);
  }
  __syncthreads();  // weights and starts are there

  const int64_t d = columns + threadIdx.x;
  const int heads = static_cast<int>(a.heads - h0 < kDotHeads ? a.heads - h0 : kDotHeads);
  if (d < a.rank) {
    const float* const latent = a.rows[r].layers[a.layer].latent + d;
    float mix[kDotHeads] = {};
#pragma unroll 8
    for (int e = 0; e < part.n; ++e) {
      const float x = __ldg(latent + start[e]);
      const float4 low = weight[e][0], high = weight[e][1];
      mix[0] = fmaf(low.x, x, mix[0]);
      mix[1] = fmaf(low.y, x, mix[1]);
      mix[2] = fmaf(low.z, x, mix[2]);
      mix[3] = fmaf(low.w, x, mix[3]);
      mix[4] = fmaf(high.x, x, mix[4]);
      mix[5] = fmaf(high.y, x, mix[5]);
      mix[6] = fmaf(high.z, x, mix[6]);
      mix[7] = fmaf(high.w, x, mix[7]);
    }
    static_assert(kDotHeads == 8);
#pragma unroll
    for (int h = 0; h < kDotHeads; ++h) {
      if (h < heads) a.mixes[((r * a.heads + h0 + h) * a.parts + index) * a.rank + d] = mix[h];
    }
  }
  if (columns == 0 && static_cast<int>(threadIdx.x) < heads) {
    const auto* const weights = reinterpret_cast<const float*>(weight) + threadIdx.x;
    float sum = 0;
    for (int e = 0; e < part.n; ++e) sum += weights[e * kDotHeads];
    a.sums[(r * a.heads + h0 + threadIdx.x) * a.parts + index] = sum;
  }
}

constexpr int kJoinThreads = 128;

// Blocks (columns, head, row): parts are added in order, and the mix divided by the sum of the weights.
__global__ void __launch_bounds__(kJoinThreads) AttendJoinKernel(const AttendArgs a) {
  const int64_t r = blockIdx.z, row_head = r * a.heads + blockIdx.y, count = a.counts[r];
  const int64_t d = int64_t{blockIdx.x} * kJoinThreads + threadIdx.x;
  if (d >= a.rank) return;
  const float* const mixes = a.mixes + row_head * a.parts * a.rank + d;
  const float* const sums = a.sums + row_head * a.parts;
  float mix = mixes[0], sum = sums[0];
  for (int64_t p = 1; p * kPart < count; ++p) {
    mix += mixes[p * a.rank];
    sum += sums[p];
  }
  a.query[row_head * a.rank + d] = mix / sum;
}

}  // namespace

Status DsaAttend(const StepContext& c) {
  const auto& w = c.layer->dsa;
  const int64_t heads = c.hp.heads, qk = c.hp.qk_head_dim, v = c.hp.v_head_dim, rank = c.hp.kv_lora_rank;
  const int64_t width = c.hp.max_selected(), parts = AttendParts(c.hp);
  const float* const q = c.Floats(plan::Slot::kQ);
  float* const attended = c.Floats(plan::Slot::kAttended);
  const int64_t group = GroupRows(c.rows, AttendBytesPerRow(c.hp)), pairs = group * heads;

  AttendArgs args{};
  args.query = c.scratch.Take<float>(pairs * rank);
  args.scores = c.scratch.Take<float>(pairs * width);
  args.tops = c.scratch.Take<float>(pairs * parts);
  args.sums = c.scratch.Take<float>(pairs * parts);
  args.mixes = c.scratch.Take<float>(pairs * parts * rank);
  if (c.scratch.Full()) return NoScratch(c);
  args.heads = heads, args.rank = rank, args.width = width, args.parts = parts;
  args.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(qk)));
  args.layer = c.layer_index();

  const Pairs of_heads{Pairs::Kind::kHeads};
  for (int64_t first = 0; first < c.rows; first += group) {
    const int64_t rows = std::min(group, c.rows - first);
    const auto z = static_cast<unsigned>(rows);
    // The digits of one group are done with when the next one's are made: the stream keeps the order.
    const Scratch taken = c.scratch;
    Operand to_latent(c, q + first * heads * qk, qk, rows * heads, qk);
    if (Status s = to_latent.Times(w.k_b, args.query, rank, of_heads); !s.ok()) return s;
    args.rows = c.batch.rows + first;
    args.selected = c.Ints(plan::Slot::kSelected) + first * width;
    args.counts = c.Ints(plan::Slot::kSelectedCount) + first;
    const unsigned tiles = Blocks(heads, kDotHeads), in_list = static_cast<unsigned>(parts);
    AttendScoreKernel<<<dim3(in_list, tiles, z), kScoreThreads, 0, c.stream>>>(args);
    AttendMixKernel<<<dim3(in_list * Blocks(rank, kMixThreads), tiles, z), kMixThreads, 0, c.stream>>>(args);
    AttendJoinKernel<<<dim3(Blocks(rank, kJoinThreads), static_cast<unsigned>(heads), z), kJoinThreads, 0,
                       c.stream>>>(args);
    if (Status s = c.Launched(); !s.ok()) return s;
    Operand from_latent(c, args.query, rank, rows * heads, rank);
    if (Status s = from_latent.Times(w.v_b, attended + first * heads * v, v, of_heads); !s.ok()) return s;
    c.scratch = taken;
  }
  return c.Launched();
}

}  // namespace glint::cuda
