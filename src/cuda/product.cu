#include "cuda/product.h"

#include "cuda/async.cuh"
#include "cuda/float_product.h"
#include "cuda/launch.h"
#include "cuda/math.cuh"
#include "cuda/product_args.h"
#include "cuda/product_rows.h"
#include "cuda/round.cuh"
#include "cuda/tiles.h"

namespace glint::cuda {
namespace {

// Rows of a group of two activation tiles; and pairs from which on sorting them by expert is worth it. With the 32 of 4 tokens sorted a
// pass took 12.2 ms, with a kernel of one row for each 9.75; with the 64 of 8 tokens 18.4 and 15.8 (bench/results/2026-11-30-h200-rows.md).
constexpr int kGroupRows = 8, kWorthGrouping = 65;
// The kernel for many rows goes through all columns in one block, so it wants rows for its tiles and blocks for the device: from so
// many rows of a slice (or pairs an expert, on average) and blocks on.
constexpr int kManyRows = 12, kManyPairs = 2, kManyBlocks = 48;
// Pairs an expert, on average, from which on groups of two warps' rows serve them better: an expert's weights are decoded once then.
constexpr int kWidePairs = 80;
constexpr int kThreads = 256, kWarps = kThreads / 32;

struct RoundArgs {
  const float* x;
  int64_t x_stride, columns;
  Digits to;
};

// RoundBlock and StoreRounded (round.cuh) for four blocks a warp, from `block` on, and four columns a lane: lane l has x[i] of column
// 32 block + 4 l + i.
__device__ void StoreFourRounded(const Digits& to, int64_t row, int64_t block, int lane,
                                 const float (&x)[4]) {
  constexpr float kLargestDigit = 32639.0f, kSmallestScaled = 0x1p-100f;
  constexpr unsigned kWarp = 0xffffffffu;
  unsigned most = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) most = max(most, __float_as_uint(fabsf(x[i])));
#pragma unroll
  for (int apart = 1; apart < 8; apart *= 2) most = max(most, __shfl_xor_sync(kWarp, most, apart));
  const float largest = __uint_as_float(most);
  const bool finite = most < 0x7f800000u, scaled = finite && largest >= kSmallestScaled;
  const float scale = scaled   ? largest / kLargestDigit
                      : finite ? 0.0f
                               : __int_as_float(0x7fc00000),
              times = scaled ? kLargestDigit / largest : 0.0f;
  uint32_t high = 0, low = 0;
  int sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float rounded = fminf(fmaxf(rintf(x[i] * times), -kLargestDigit), kLargestDigit);
    const Rounded digit{scaled ? static_cast<int>(rounded) : 0, scale};
    high |= static_cast<uint32_t>(static_cast<uint8_t>(digit.High())) << (8 * i);
    low |= static_cast<uint32_t>(static_cast<uint8_t>(digit.Low())) << (8 * i);
    sum += digit.digit;
  }
  sum += __shfl_xor_sync(kWarp, sum, 1);
  sum += __shfl_xor_sync(kWarp, sum, 2);
  const int of_block = lane % 8;
  const int64_t at = row * to.blocks + block + lane / 8;
  auto* const digits = reinterpret_cast<uint32_t*>(to.digits + at * 64);
  digits[of_block] = high;
  digits[8 + of_block] = low;
  if (of_block == 0) to.scales[at] = scale;
  if (of_block % 4 == 0) to.sums[at * 2 + of_block / 4] = sum;
}

// The blocks of a row are a multiple of a warp's.
constexpr int kRoundedBlocks = 4 * kWarps;  // of a block of threads
__global__ void __launch_bounds__(kThreads) RoundKernel(const RoundArgs p) {
  LetNextLaunchBegin();
  WaitForLaunchesBefore();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t block = int64_t{blockIdx.x} * kRoundedBlocks + threadIdx.x / 32 * 4, row = blockIdx.y;
  if (block >= p.to.blocks) return;
  const int64_t column = block * 32 + lane * 4, left = p.columns - column;
  const float* const from = p.x + row * p.x_stride + column;
  float x[4] = {};
  if (left >= 4 && reinterpret_cast<uintptr_t>(from) % 16 == 0) {
    const float4 four = *reinterpret_cast<const float4*>(from);
    x[0] = four.x, x[1] = four.y, x[2] = four.z, x[3] = four.w;
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (i < left) x[i] = from[i];
  }
  StoreFourRounded(p.to, row, block, lane, x);
}

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

Status NoKernels(quant::Type type) {
  return {Code::kUnsupported, "the GPU has no kernels for weights of type " + std::string(quant::Name(type))};
}

}  // namespace

const FormatLaunches* FindLaunches(quant::Type type) {
  for (const LaunchList& list : {BlockLaunches(), SuperLaunches(), Points4Launches(), Points8Launches()})
    for (int i = 0; i < list.count; ++i)
      if (list.first[i].type == type) return list.first + i;
  return nullptr;
}

const RowsLaunch* FindRowsLaunch(quant::Type type) {
  for (const RowsLaunchList& list :
       {BlockRowsLaunches(), SuperRowsLaunches(), Points4RowsLaunches(), Points8RowsLaunches()})
    for (int i = 0; i < list.count; ++i)
      if (list.first[i].type == type) return list.first + i;
  return nullptr;
}

Status Operand::Round() {
  if (const Digits* const made = c_.DigitsOf(x_, x_stride_, columns_); made != nullptr) {
    digits_ = *made;
    return {};
  }
  auto* const memory = c_.scratch.Take<std::byte>(Digits::Bytes(rows_, columns_));
  if (memory == nullptr) return NoScratch(c_);
  digits_ = Digits::At(memory, rows_, columns_);
  const int64_t blocks = digits_.blocks;
  for (int64_t first = 0; first < rows_; first += 65535) {
    const int64_t rows = rows_ - first < 65535 ? rows_ - first : 65535;
    const RoundArgs args{x_ + first * x_stride_,
                         x_stride_,
                         columns_,
                         {digits_.digits + first * blocks * 64, digits_.scales + first * blocks,
                          digits_.sums + first * blocks * 2, blocks}};
    const dim3 grid(static_cast<unsigned>(CeilDiv(blocks, kRoundedBlocks)), static_cast<unsigned>(rows));
    LaunchEarly(c_, grid, kThreads, 0, RoundKernel, args);
  }
  return c_.Launched("rounding of activations");
}

Status Operand::Times(const model::Matrix& w, float* y, int64_t y_stride, Pairs pairs, int64_t out_rows) {
  return TimesAll({{&w, y, y_stride}}, pairs, out_rows);
}

Status Operand::Floats(const Matrix& w, const Target& target, const Pairs& pairs, int64_t out_rows) {
  const FloatArgs args{
      w.data,        w.slice_bytes, w.rows,          w.columns, w.scales,   x_ + target.x_column,
      x_stride_,     target.y,      target.y_stride, out_rows,  pairs.kind, pairs.ids,
      pairs.per_row, w.slices,      c_.early};
  LaunchFloatProduct(w.type, args, c_.stream);
  return c_.Launched();
}

Status Operand::GroupPairs(const int32_t* ids, int64_t pairs, int64_t experts, int group_rows,
                           ProductArgs& args) {
  const int64_t most = MostPairGroups(pairs, experts, group_rows);
  if (order_ == nullptr) {
    order_ = c_.scratch.Take<int32_t>(pairs + 1);
    pair_groups_ = c_.scratch.Take<PairGroup>(most);
    if (pair_groups_ == nullptr) return NoScratch(c_);
    LaunchGroupPairs(ids, pairs, experts, group_rows, order_, pair_groups_, order_ + pairs, c_.stream);
  }
  args.order = order_;
  args.pair_groups = pair_groups_;
  args.group_count = order_ + pairs;
  args.groups = most;
  return {};
}

// Whether pairs are sorted by expert.
bool Operand::Groups(const Pairs& pairs, int64_t out_rows, int64_t slices) const {
  return pairs.kind == Pairs::Kind::kExperts && c_.how.tensor_cores && out_rows >= kWorthGrouping &&
         slices <= kMostGroupedExperts;
}

Status Operand::Launch(ProductArgs& args, quant::Type type) {
  if (args.targets == 0) return {};
  const bool experts = args.pairs == Pairs::Kind::kExperts;
  const int64_t together = experts                             ? 1
                           : args.pairs == Pairs::Kind::kHeads ? args.out_rows / args.slices
                                                               : args.out_rows;
  const bool grouped = Groups({args.pairs}, args.out_rows, args.slices);
  // Many rows. Every launch of an operand decides alike where pairs are grouped, once for all.
  const bool wide = experts ? args.out_rows > kWidePairs * args.slices : together > kRowsOfWarp;
  const int act_warps = wide ? 2 : 1;
  const int64_t most = int64_t{kRowsOfWarp} * act_warps,
                groups = CeilDiv(together, most) * (args.out_rows / together);
  int64_t blocks = 0;
  for (int i = 0; i < args.targets; ++i) blocks += RowsBlocks(args.target[i].rows, act_warps);
  const bool many = experts ? grouped && args.out_rows >= kManyPairs * args.slices
                            : c_.how.tensor_cores && together >= kManyRows && blocks * groups >= kManyBlocks;
  args.order = nullptr;
  if (grouped) {
    const int group_rows = many ? kRowsOfWarp * act_warps : kGroupRows;
    if (Status status = GroupPairs(args.ids, args.out_rows, args.slices, group_rows, args); !status.ok())
      return status;
  }
  if (many) {
    if (!grouped) args.groups = groups;
    FindRowsLaunch(type)->product(args, act_warps, c_.stream);
  } else {
    const int group_rows = grouped || (c_.how.tensor_cores && together > 4) ? 8 : together > 1 ? 4 : 1;
    if (!grouped) args.groups = CeilDiv(together, group_rows) * (args.out_rows / together);
    FindLaunches(type)->product(args, group_rows, c_.how.tensor_cores, c_.stream);
  }
  args.targets = 0;
  args.row_tiles = 0;
  return {};
}

ProductArgs Operand::Begin(const Matrix& w, const Pairs& pairs, int64_t out_rows) const {
  ProductArgs args{};
  args.tiles = CeilDiv(w.columns, FindTileLayout(w.type)->columns);
  args.blocks = w.columns / 32;
  args.parts = static_cast<int32_t>(CeilDiv(w.columns, 1024));
  args.table = w.table;
  args.spread = w.spread;
  args.digits = digits_.digits;
  args.x_scales = digits_.scales;
  args.sums = digits_.sums;
  args.x_blocks = digits_.blocks;
  args.out_rows = out_rows;
  args.pairs = pairs.kind;
  args.ids = pairs.ids;
  args.chosen = pairs.chosen;
  args.per_row = pairs.per_row;
  args.slices = w.slices;
  args.overlap = c_.early;
  args.multiprocessors = c_.device.multiprocessors;
  args.shared_bytes = c_.device.shared_bytes;
  return args;
}

Result<bool> Operand::TimesGated(const model::Matrix& gate, const model::Matrix& up, const Gated& to,
                                 Pairs pairs, int64_t out_rows) {
  const Matrix g = c_.On(gate), u = c_.On(up);
  const bool alone = pairs.kind == Pairs::Kind::kExperts ? !Groups(pairs, out_rows, g.slices)
                                                         : pairs.kind == Pairs::Kind::kSame && out_rows == 1;
  const int64_t whole = to.digits.digits != nullptr ? 256 : 32;  // rows of digits are whole, too
  if (!c_.how.tensor_cores || !alone || IsFloat(g.type) || FindLaunches(g.type) == nullptr ||
      g.type != u.type || g.rows != u.rows || g.columns != u.columns || g.slices != u.slices ||
      g.rows % whole != 0)
    return false;
  if (digits_.digits == nullptr) {
    if (Status status = Round(); !status.ok()) return status;
  }
  ProductArgs args = Begin(g, pairs, out_rows);
  args.gate = {to.h, g.rows, to.limit, to.digits, u.data - g.data, u.scales};
  args.target[args.targets++] = {g.data, g.slice_bytes, g.rows, g.scales, to.h, g.rows, 0, 0};
  args.row_tiles = CeilDiv(g.rows, kTileRows);
  args.groups = out_rows;
  if (!FindLaunches(g.type)->gates(args)) return false;
  if (Status status = Launch(args, g.type); !status.ok()) return status;
  if (Status status = c_.Launched(); !status.ok()) return status;
  return true;
}

Status Operand::TimesAll(std::initializer_list<Target> targets, Pairs pairs, int64_t out_rows) {
  if (out_rows == 0) out_rows = rows_;
  if (out_rows == 0) return {};
  ProductArgs args{};
  Matrix last;
  for (const Target& target : targets) {
    const Matrix w = c_.On(*target.w);
    if (w.rows == 0) continue;
    if (IsFloat(w.type)) {
      if (Status status = Floats(w, target, pairs, out_rows); !status.ok()) return status;
      continue;
    }
    const TileLayout* const layout = FindTileLayout(w.type);
    if (FindLaunches(w.type) == nullptr || FindRowsLaunch(w.type) == nullptr || layout == nullptr)
      return NoKernels(w.type);
    if (digits_.digits == nullptr) {
      if (Status status = Round(); !status.ok()) return status;
    }
    if (args.targets == kMostTargets || w.type != last.type || w.columns != last.columns ||
        w.slices != last.slices) {
      if (Status status = Launch(args, last.type); !status.ok()) return status;
      args = Begin(w, pairs, out_rows);
      last = w;
    }
    args.target[args.targets++] = {w.data,   w.slice_bytes,   w.rows,         w.scales,
                                   target.y, target.y_stride, args.row_tiles, target.x_column / 32};
    args.row_tiles += CeilDiv(w.rows, kTileRows);
  }
  if (Status status = Launch(args, last.type); !status.ok()) return status;
  return c_.Launched();
}

Status DecodeRows(const StepContext& c, const model::Matrix& host, float* out, int64_t out_stride) {
  const Matrix w = c.On(host);
  DecodeArgs args{w.data, w.columns, 0, w.scales, w.table, c.batch.rows, out, out_stride, c.early};
  if (IsFloat(w.type)) {
    LaunchFloatDecode(w.type, args, c.rows, c.stream);
  } else {
    const FormatLaunches* const launches = FindLaunches(w.type);
    const TileLayout* const layout = FindTileLayout(w.type);
    if (launches == nullptr || layout == nullptr) return NoKernels(w.type);
    args.tiles = CeilDiv(w.columns, layout->columns);
    launches->decode(args, c.rows, c.stream);
  }
  return c.Launched();
}

}  // namespace glint::cuda
