// spec/model.md 5.1 and 5.2: a short causal convolution over time, SiLU, then q and k to unit length head by head.
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "cuda/async.cuh"
#include "cuda/context.h"
#include "cuda/kda.h"
#include "cuda/launch.h"
#include "cuda/math.cuh"

namespace glint::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kRows = kThreads / 16;  // at most, of a block: half a warp takes the norm of each

struct KdaConvArgs {
  const float* u;                // [rows][3][H * K]
  float* qkv;                    // [rows][3][H * K]
  const float *w_q, *w_k, *w_v;  // [H * K][taps]
  const RowView* row;
  const SegmentView* segment;
  int layer;
  int64_t rows, heads, dim, taps, ring;
  int rows_a_block;  // 1 to kRows
  bool store;        // also writes the ring
  float l2_eps, q_scale;
};

// Grid: pieces (a head of q, k or v) within groups of rows. kTaps 0: any number of taps.
// Rows of the past come from this pass where it has them, else from the state's ring.
template <int kTaps>
__global__ void __launch_bounds__(kThreads) KdaConvKernel(const KdaConvArgs a) {
  extern __shared__ float value[];  // [rows of the block][dim]
  __shared__ float norm[kRows];
  LetNextLaunchBegin();
  WaitForLaunchesBefore();
  const int thread = static_cast<int>(threadIdx.x), lane = thread & 15, half = thread / 16;
  const int64_t pieces = 3 * a.heads, piece = blockIdx.x % pieces, part = piece / a.heads;
  const int64_t first = blockIdx.x / pieces * a.rows_a_block, left = a.rows - first;
  const int count = static_cast<int>(left < a.rows_a_block ? left : a.rows_a_block);
  const int64_t channels = pieces * a.dim, taps = kTaps > 0 ? kTaps : a.taps;

  bool together = false;
  if (kTaps > 0 && count > 1 && !a.store) {
    const RowView begin = a.row[first];
    together = begin.segment == a.row[first + count - 1].segment &&
               begin.position - a.segment[begin.segment].position >= kTaps - 1;
  }
  for (int64_t j = thread; j < a.dim; j += kThreads) {
    const int64_t channel = piece * a.dim + j;
    const float* const w = (part == 0   ? a.w_q
                            : part == 1 ? a.w_k
                                        : a.w_v) +
                           (channel - part * a.heads * a.dim) * taps;
    const auto put = [&](int i, float sum) {
      const float out = Silu(sum);
      if (part == 2) {
        a.qkv[(first + i) * channels + channel] = out;
      } else {
        value[i * a.dim + j] = out;
      }
    };
    if constexpr (kTaps > 0) {
      // Rows of one sequence whose past is in this pass: each is read once, and all are asked for before any is used.
      if (together) {
        const float* const pass = a.u + first * channels + channel;
        float in[kTaps - 1 + kRows], weight[kTaps];
#pragma unroll
        for (int i = 0; i < kTaps - 1 + kRows; ++i)
          in[i] = i < kTaps - 1 + count ? pass[(i - (kTaps - 1)) * channels] : 0.0f;
#pragma unroll
        for (int tap = 0; tap < kTaps; ++tap) weight[tap] = w[tap];
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
          if (i >= count) break;
          float sum = 0;
#pragma unroll
          for (int tap = 0; tap < kTaps; ++tap) sum = fmaf(weight[tap], in[i + tap], sum);
          put(i, sum);
        }
        continue;
      }
    }
    for (int i = 0; i < count; ++i) {
      const int64_t r = first + i;
      const RowView view = a.row[r];
      const int64_t before =
          view.position - a.segment[view.segment].position;  // rows of its sequence in this pass before it
      float* const kept = view.layers[a.layer].conv + channel;
      const float* const pass = a.u + r * channels + channel;
      const int64_t slot = view.position % a.ring;
      const auto past = [&](int64_t back) {  // of a position that is not negative
        if (back <= before) return pass[-back * channels];
        const int64_t at = slot - back;  // a ring holds more rows than there are taps
        return kept[(at < 0 ? at + a.ring : at) * channels];
      };
      float sum = 0;
      if constexpr (kTaps > 0) {
        float in[kTaps], weight[kTaps];
#pragma unroll
        for (int tap = 0; tap < kTaps; ++tap) {
          const int back = kTaps - 1 - tap;
          in[tap] = view.position >= back ? past(back) : 0.0f;
          weight[tap] = w[tap];
        }
#pragma unroll
        for (int tap = 0; tap < kTaps; ++tap) {
          if (view.position >= kTaps - 1 - tap) sum = fmaf(weight[tap], in[tap], sum);
        }
      } else {
        for (int64_t tap = 0; tap < taps; ++tap) {
          const int64_t back = taps - 1 - tap;
          if (view.position >= back) sum = fmaf(w[tap], past(back), sum);
        }
      }
      put(i, sum);
      if (a.store) kept[slot * channels] = pass[0];
    }
  }
  if (part == 2) return;  // the whole block: values have no norm

  __syncthreads();  // all values are there
  const float* const row = value + half * a.dim;
  const float sum = Dot16(
      lane, half < count ? a.dim : 0, [&](int64_t k) { return row[k]; }, [&](int64_t k) { return row[k]; });
  if (lane == 0) norm[half] = sqrtf(sum + a.l2_eps);
  __syncthreads();  // all norms are there
  for (int64_t j = thread; j < a.dim; j += kThreads) {
    for (int i = 0; i < count; ++i) {
      float out = value[i * a.dim + j] / norm[i];
      if (part == 0) out = out * a.q_scale;
      a.qkv[(first + i) * channels + piece * a.dim + j] = out;
    }
  }
}

// Grid: channels x rows from a segment's end x segments. The last rows of the pass take their place in the ring.
__global__ void __launch_bounds__(kThreads)
    KeepRowsKernel(const float* u, const SegmentView* segments, int layer, int64_t channels, int64_t ring) {
  LetNextLaunchBegin();
  WaitForLaunchesBefore();
  const int64_t channel = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const SegmentView segment = segments[blockIdx.z];
  const int64_t r = segment.rows - 1 - int64_t{blockIdx.y};
  if (r < 0 || channel >= channels) return;
  segment.layers[layer].conv[(segment.position + r) % ring * channels + channel] =
      u[(segment.first_row + r) * channels + channel];
}

}  // namespace

Status KdaConvOf(const StepContext& c, const float* u, float* qkv) {
  const int64_t dim = c.hp.kda_head_dim, heads = c.hp.kda_heads, taps = c.hp.conv_kernel,
                channels = 3 * heads * dim;
  const auto& w = c.layer->kda;
  // Many rows: blocks of several, which find each other's rows of the past in the first-level cache.
  constexpr int64_t kManyRows = 32, kSharedFloats = 8192;
  const int64_t room = kSharedFloats / dim;
  if (room == 0) {
    return {Code::kUnsupported, "kda.conv: heads of " + std::to_string(dim) +
                                    " channels; the GPU's kernels take up to " +
                                    std::to_string(kSharedFloats)};
  }
  const int64_t rows_a_block = c.rows < kManyRows ? 1 : std::min<int64_t>(kRows, room);
  // A pass this short writes no slot of the ring that it reads: of positions in [p - taps + 1, p + rows) no two share one.
  const bool apart = c.rows + taps - 1 <= c.conv_ring;

  KdaConvArgs args{};
  args.u = u, args.qkv = qkv;
  args.w_q = c.On(w.conv_q), args.w_k = c.On(w.conv_k), args.w_v = c.On(w.conv_v);
  args.row = c.batch.rows, args.segment = c.batch.segments;
  args.layer = c.layer_index();
  args.rows = c.rows, args.heads = heads, args.dim = dim, args.taps = taps, args.ring = c.conv_ring;
  args.rows_a_block = static_cast<int>(rows_a_block);
  args.store = apart;
  args.l2_eps = c.hp.l2_eps;
  args.q_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim)));

  const int64_t blocks = (c.rows + rows_a_block - 1) / rows_a_block * 3 * heads;
  const auto shared = static_cast<size_t>(rows_a_block * dim) * sizeof(float);
  LaunchEarly(c.early, dim3(static_cast<unsigned>(blocks)), kThreads, shared, c.stream,
              taps == 4 ? KdaConvKernel<4> : KdaConvKernel<0>, args);
  if (Status s = c.Launched(); !s.ok() || apart) return s;
  // Only now, when nobody reads the ring any more.
  const dim3 grid(Blocks(channels, kThreads), static_cast<unsigned>(std::min(c.conv_ring, c.rows)),
                  static_cast<unsigned>(c.segments));
  LaunchEarly(c.early, grid, kThreads, 0, c.stream, KeepRowsKernel, args.u, args.segment, args.layer,
              channels, c.conv_ring);
  return c.Launched("keeping rows");
}

Status KdaConv(const StepContext& c) {
  return KdaConvOf(c, c.Floats(plan::Slot::kU), c.Floats(plan::Slot::kQkv));
}

}  // namespace glint::cuda
