// spec/model.md 8.2, steps 1 to 3: the router's choice, in ascending expert id, and its weights.
//
// A token meets this stage 42 times, and each time it is a chain of waits: so few rows of a router of plain numbers take one launch, in
// which the last block to finish the products makes the choice. Where the version before this one spent its time, for 1 row of 4,096
// columns and 288 experts, in microseconds from the moment the launches before had ended (time stamps in the graph of a token, H200,
// 2026-11-30): x asked for 0.8 and there 2.0; summed 3.7; stored and counted 5.1; ranked 6.2; chosen 7.5; the end 7.8.
#include "cuda/float_rows.cuh"
#include "cuda/launch.h"
#include "cuda/math.cuh"
#include "cuda/product.h"
#include "cuda/route_rows.h"

namespace glint::cuda {
namespace {

constexpr int kWarpsOfMany = 4;              // rows of a block that does nothing but choose
constexpr int kMostRouteShared = 64 * 1024;  // of a block that does all, but for the bias: any GPU has both

struct RouteArgs {
  const float* logits;  // [rows][experts]
  const float* bias;    // [experts]
  std::byte* memory;    // scratch [rows][RouteRowBytes]
  int32_t* ids;         // [rows][used]
  float* weights;       // [rows][used]
  int64_t rows, row_bytes;
  int experts, used;
  float scale, eps;
  bool normalised;
};

// A row's part of `memory`.
struct RouteRow {
  uint64_t* candidate;  // [32], in ascending id; at a multiple of 16 bytes
  uint64_t* key;        // [experts]
  float* sigmoid;       // [experts]
  int32_t* chosen;      // [used], in the order they were found
  float* of_chosen;     // [used], in ascending id
  __device__ RouteRow(const RouteArgs& a, std::byte* memory, int64_t row) {
    candidate = reinterpret_cast<uint64_t*>(memory + row * a.row_bytes);
    key = candidate + 32;
    sigmoid = reinterpret_cast<float*>(key + a.experts);
    chosen = reinterpret_cast<int32_t*>(sigmoid + a.experts);
    of_chosen = reinterpret_cast<float*>(chosen + a.used);
  }
};

// The bias only selects; the weights are the plain sigmoids.
__device__ void RankExpert(const RouteArgs& a, const RouteRow& row, int e, float logit, float bias) {
  const float sigmoid = Sigmoid(logit);
  row.sigmoid[e] = sigmoid;
  row.key[e] = RankKey(sigmoid + bias, static_cast<uint32_t>(e));
}

// The chosen experts into `ids` in ascending id, and their sigmoids into row.of_chosen. Lane i has experts i, i + 32, ... and knows the
// best of its own that are left; the best of the lanes' is chosen, and only its lane looks again. No key is 0, and no two are equal.
__device__ void ChooseInTurn(const RouteArgs& a, const RouteRow& row, int32_t* ids, int lane) {
  const auto best_left = [&] {
    uint64_t best = 0;
#pragma unroll 4
    for (int e = lane; e < a.experts; e += 32) best = row.key[e] > best ? row.key[e] : best;
    return best;
  };
  uint64_t own = best_left();
  for (int k = 0; k < a.used; ++k) {
    if (own != WarpMax(own)) continue;
    const auto e = static_cast<int32_t>(RankedIndex(own));
    row.chosen[k] = e;
    row.key[e] = 0;
    own = best_left();
  }
  __syncwarp();  // the chosen are listed
  for (int k = lane; k < a.used; k += 32) {
    const int32_t e = row.chosen[k];
    int before = 0;
#pragma unroll 8
    for (int other = 0; other < a.used; ++other) before += row.chosen[other] < e ? 1 : 0;
    ids[before] = e;
    row.of_chosen[before] = row.sigmoid[e];
  }
}

// The same without turns: none of the chosen ranks below the a.used-th of the lanes' best, and the few experts that do not are compared
// with one another. False, and nothing is listed: they are more than a warp.
__device__ bool ChooseAtOnce(const RouteArgs& a, const RouteRow& row, int32_t* ids, int lane) {
  constexpr unsigned kWarp = 0xffffffffu;
  constexpr int kHeld = 12;  // experts of a lane
  if (a.used > 32 || a.experts > 32 * kHeld) return false;
  const unsigned below = (1u << lane) - 1;
  uint32_t rank[kHeld], best = 0;
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int e = 32 * i + lane;
    rank[i] = e < a.experts ? static_cast<uint32_t>(row.key[e] >> 32) : 0;
  }
#pragma unroll
  for (int i = 0; i < kHeld; ++i) best = rank[i] > best ? rank[i] : best;
  auto* const of_lanes = reinterpret_cast<uint32_t*>(row.candidate);
  of_lanes[lane] = best;
  __syncwarp();  // all lanes' best are there
  int better = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const uint4 v = reinterpret_cast<const uint4*>(of_lanes)[i];
    better += (v.x > best ? 1 : 0) + (v.y > best ? 1 : 0) + (v.z > best ? 1 : 0) + (v.w > best ? 1 : 0);
  }
  const uint32_t least = __reduce_max_sync(kWarp, better >= a.used - 1 ? best : 0u);

  __syncwarp();  // nobody reads the lanes' best any more: the list takes their place
  row.candidate[lane] = 0;
  __syncwarp();  // the list is empty
  int count = 0;
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int e = 32 * i + lane;
    const bool is = e < a.experts && rank[i] >= least;
    const unsigned among = __ballot_sync(kWarp, is);
    const int at = count + __popc(among & below);
    if (is && at < 32) row.candidate[at] = uint64_t{rank[i]} << 32 | ~static_cast<uint32_t>(e);
    count += __popc(among);
  }
  if (count > 32) return false;
  __syncwarp();  // the candidates are listed, in ascending id
  const uint64_t own = row.candidate[lane];
  better = 0;
#pragma unroll 4
  for (int i = 0; i < (count + 1) / 2; ++i) {
    const ulonglong2 v = reinterpret_cast<const ulonglong2*>(row.candidate)[i];
    better += (v.x > own ? 1 : 0) + (v.y > own ? 1 : 0);
  }
  const bool chosen = lane < count && better < a.used;
  const int at = __popc(__ballot_sync(kWarp, chosen) & below);
  if (chosen) {
    const auto e = static_cast<int32_t>(RankedIndex(own));
    ids[at] = e;
    row.of_chosen[at] = row.sigmoid[e];
  }
  return true;
}

// A warp makes the choice of row r, whose experts are ranked.
__device__ void Choose(const RouteArgs& a, const RouteRow& row, int64_t r, int lane) {
  int32_t* const ids = a.ids + r * a.used;
  if (!ChooseAtOnce(a, row, ids, lane)) ChooseInTurn(a, row, ids, lane);
  __syncwarp();  // their sigmoids stand in ascending id
  float sum = 0;
#pragma unroll 8
  for (int k = 0; k < a.used; ++k) sum += row.of_chosen[k];
  for (int k = lane; k < a.used; k += 32) {
    const float scaled = a.scale * row.of_chosen[k];
    a.weights[r * a.used + k] = a.normalised ? scaled / (sum + a.eps) : scaled;
  }
}

// A warp a row, from logits that are there.
__global__ void __launch_bounds__(32 * kWarpsOfMany) ChooseKernel(const RouteArgs a) {
  LetNextLaunchBegin();
  WaitForLaunchesBefore();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t r = int64_t{blockIdx.x} * kWarpsOfMany + threadIdx.x / 32;
  if (r >= a.rows) return;
  const RouteRow row(a, a.memory, r);
  for (int e = lane; e < a.experts; e += 32) RankExpert(a, row, e, a.logits[r * a.experts + e], a.bias[e]);
  __syncwarp();  // all are ranked
  Choose(a, row, r, lane);
}

// The arrivals before this one, which comes after what the block wrote before its last barrier, and before what it reads next.
__device__ inline uint32_t CountArrival(uint32_t* arrived) {
  uint32_t before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(arrived) : "memory");
  return before;
}

// Logits of few rows, and the choice by the block that finds all others done. `a.memory` is not used. The bias travels with the
// products' operands to byte bias_at of shared memory: asked for by the last block it would come from DRAM while all wait.
template <class T, int kX>
__global__ void __launch_bounds__(32 * kRowWarps * kX)
    RouteKernel(const FloatArgs p, const int block_rows, const int tile, const RouteArgs a, const int bias_at,
                uint32_t* arrived) {
  extern __shared__ __align__(16) std::byte shared[];
  __shared__ bool last;
  auto* const bias = reinterpret_cast<float*>(shared + bias_at);
  FetchRow<false>(bias, a.bias, a.experts, (a.experts + 3) / 4 * 4, 0.0f);
  FewRowsProduct<T, kX>(p, block_rows, tile, shared);
  __syncthreads();  // all of the block's logits are written
  if (threadIdx.x == 0) last = CountArrival(arrived) == gridDim.x * gridDim.y - 1;
  __syncthreads();  // `last` is known; the tile may be overwritten
  LetNextLaunchBegin();  // only now: the shared expert, on another stream, gets the multiprocessors that the next launch would fill
  if (!last) return;
  if (threadIdx.x == 0) *arrived = 0;

  constexpr int kAhead = 4;  // a trip to L2 takes as long as all that follows it
  const int threads = static_cast<int>(blockDim.x), all = static_cast<int>(a.rows) * a.experts;
  for (int first = static_cast<int>(threadIdx.x); first < all; first += kAhead * threads) {
    float logit[kAhead];
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      const int i = first + j * threads;
      logit[j] = i < all ? __ldcg(a.logits + i) : 0.0f;  // not from L1: other blocks wrote them
    }
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      const int i = first + j * threads, r = i / a.experts, e = i % a.experts;
      if (i < all) RankExpert(a, RouteRow(a, shared, r), e, logit[j], bias[e]);
    }
  }
  __syncthreads();  // all are ranked
  for (int r = static_cast<int>(threadIdx.x) / 32; r < a.rows; r += static_cast<int>(blockDim.x) / 32)
    Choose(a, RouteRow(a, shared, r), r, static_cast<int>(threadIdx.x) % 32);
}

template <class T, int kX>
void RunRoute(const StepContext& c, const FloatArgs& p, const FewRowsCut& cut, int bias_at,
              const RouteArgs& a) {
  const auto kernel = RouteKernel<T, kX>;
  const int bytes = bias_at + (a.experts + 3) / 4 * 16;
  if (!AllowShared(kernel, bytes)) return;
  LaunchEarly(c, cut.grid, cut.threads, static_cast<size_t>(bytes), kernel, p, cut.block_rows, cut.tile, a,
              bias_at, c.batch.arrived);
}

// False: not for this router or so many rows.
template <class T>
bool RunFused(const StepContext& c, const FloatArgs& p, const RouteArgs& a) {
  if (!IsFewRows(p)) return false;
  const FewRowsCut cut = CutFewRows(p, sizeof(T));
  const int64_t choice = a.rows * a.row_bytes;
  if (choice > kMostRouteShared) return false;
  const int64_t most = cut.shared_bytes > choice ? cut.shared_bytes : choice;
  const int bias_at = static_cast<int>((most + 15) / 16 * 16);
  if (cut.block_x == 1) {
    RunRoute<T, 1>(c, p, cut, bias_at, a);
  } else {
    RunRoute<T, 2>(c, p, cut, bias_at, a);
  }
  return true;
}

bool RunFused(const StepContext& c, const Matrix& w, const FloatArgs& p, const RouteArgs& a) {
  if (w.type == quant::Type::kF32) return RunFused<float>(c, p, a);
  if (w.type == quant::Type::kF16) return RunFused<__half>(c, p, a);
  if (w.type == quant::Type::kBF16) return RunFused<BFloat>(c, p, a);
  return false;
}

}  // namespace

Status MoeRoute(const StepContext& c) {
  const auto& moe = c.layer->moe;
  const int64_t experts = c.hp.experts, d = c.hp.hidden;
  float* const logits = c.Floats(plan::Slot::kRouterLogits);
  const float* const x = c.Floats(plan::Slot::kX);
  RouteArgs args{logits,
                 c.On(moe.router_bias),
                 nullptr,
                 c.Ints(plan::Slot::kExpertIds),
                 c.Floats(plan::Slot::kExpertWeights),
                 c.rows,
                 RouteRowBytes(experts, c.hp.experts_used),
                 static_cast<int>(experts),
                 static_cast<int>(c.hp.experts_used),
                 c.hp.routed_scale,
                 c.hp.router_eps,
                 c.hp.norm_topk};
  const Matrix w = c.On(moe.router);
  const FloatArgs product{w.data, w.slice_bytes, w.rows, w.columns,          w.scales, x, d,
                          logits, experts,       c.rows, Pairs::Kind::kSame, nullptr,  1, 1,
                          c.early};
  if (RunFused(c, w, product, args)) return c.Launched();

  if (Status s = Operand(c, x, d, c.rows, d).Times(moe.router, logits, experts); !s.ok()) return s;
  args.memory = c.scratch.Take<std::byte>(c.rows * args.row_bytes);
  if (args.memory == nullptr) return NoScratch(c);
  LaunchEarly(c, Blocks(c.rows, kWarpsOfMany), 32 * kWarpsOfMany, 0, ChooseKernel, args);
  return c.Launched();
}

}  // namespace glint::cuda
