#include "cuda/context.h"

#include <fmt/core.h>

#include <algorithm>

#include "cuda/best.h"
#include "cuda/dsa_groups.h"
#include "cuda/hc_fused.h"
#include "cuda/route_rows.h"
#include "cuda/status.h"
#include "cuda/tables.h"
#include "cuda/weights.h"

namespace glint::cuda {

Matrix StepContext::On(const model::Matrix& w) const {
  Matrix matrix = on_device.Find(w);
  matrix.table = tables.For(matrix.type);
  matrix.spread = tables.Spread(matrix.type);
  return matrix;
}

const Digits* StepContext::DigitsOf(const float* x, int64_t x_stride, int64_t columns) const {
  if (digits == nullptr || x_stride != columns) return nullptr;
  for (const plan::Slot slot : SlotDigits::kSlots) {
    // A slot that this step does not name may share its bytes with one that it does.
    const auto names = [&](const std::vector<plan::Slot>& slots) {
      return std::find(slots.begin(), slots.end(), slot) != slots.end();
    };
    if (x == Floats(slot) && (names(step.in) || names(step.out))) return digits->Made(slot, columns);
  }
  return nullptr;
}

StepContext StepContext::Beside(Scratch& its_scratch) const {
  return {hp,       weights,     on_device, tables,      step, pass,      layer,    rows,
          segments, wanted,      capacity,  batch,       how,  conv_ring, raw_ring, places,
          buffers,  its_scratch, device,    side.stream, {},   digits,    early};
}

const float* StepContext::On(model::Vector v) const { return on_device.Find(v); }

Status StepContext::Launched(std::string_view what) const {
  const cudaError_t error = Seen(cudaGetLastError());
  if (error == cudaSuccess) return {};
  return Failed(error, fmt::format("launching {}{}{} of layer {}", what, what.empty() ? "" : " in ",
                                   plan::Name(step.stage), step.layer));
}

uint64_t ScratchBytes(const model::HParams& hp, int64_t rows, int64_t capacity) {
  // What Operand takes for its digits, their scales and their sums.
  const auto digits = [](int64_t n, int64_t columns) { return Digits::Bytes(n, columns); };
  const auto floats = [](int64_t n) { return n * int64_t{sizeof(float)}; };
  const int64_t d = hp.hidden, streams = hp.hc_mult * d, rank = hp.kda_head_dim,
                pairs = rows * hp.experts_used;
  const int64_t fused = std::min(rows, kMostFusedRows), width = hp.kda_width(),
                recur = 4 * width + 32 * hp.kda_heads;  // a row
  const int64_t of_x = digits(rows, d), grouped = floats(pairs + 1 + 3 * (pairs + hp.experts));
  const int64_t attend = AttendRows(hp, rows), select = GroupRows(rows, SelectBytesPerRow(hp, capacity));
  const int64_t most = std::max({
      floats(rows * (hp.hc_mix() + 2 * d)) + digits(rows, streams),         // hc.pre, hc.fused, hc.moe
      of_x + floats(rows * (2 * rank + 32)) + digits(rows, 2 * rank + 32),  // kda.gates
      floats(rows * recur),                                                 // kda.recur
      2 * digits(fused, d) + digits(fused, 2 * rank + 32) +
          floats(fused * (9 * width + hp.kda_heads + 2 * rank + 32 + recur)),  // kda.fused
      digits(rows, hp.kda_width()),                                            // kda.out
      // dsa.q, dsa.index, dsa.inputs
      of_x + digits(rows, hp.q_lora_rank) +
          floats(rows * (hp.q_lora_rank + hp.kv_lora_rank + 2 * hp.index_head_dim)),
      select * SelectBytesPerRow(hp, capacity),  // dsa.select
      attend * AttendBytesPerRow(hp) + AttendSplitBytes(hp, rows) +
          digits(attend * hp.heads, hp.qk_head_dim) +
          digits(attend * hp.heads, hp.kv_lora_rank),               // dsa.attend
      digits(rows, hp.heads * hp.v_head_dim),                       // dsa.out
      of_x + floats(rows * std::max(hp.dense_ffn, hp.shared_ffn)),  // ffn.gate_up, moe.shared_gate_up
      digits(rows, std::max(hp.dense_ffn, hp.shared_ffn)),          // ffn.down, moe.shared_down
      of_x + rows * RouteRowBytes(hp.experts, hp.experts_used),     // moe.route
      grouped + of_x + floats(pairs * hp.expert_ffn),               // moe.gate_up
      3 * digits(fused, d) + digits(fused, hp.shared_ffn) + floats(fused * hp.shared_ffn) +
          fused * RouteRowBytes(hp.experts, hp.experts_used) + 2 * grouped +
          floats(fused * hp.experts_used * hp.expert_ffn) +
          digits(fused * hp.experts_used, hp.expert_ffn),  // moe.beside
      grouped + digits(pairs, hp.expert_ffn),              // moe.down
      floats(rows * d) + of_x,                             // head.logits
      BestKeys(rows) * int64_t{sizeof(uint64_t)},          // the best logits, after it
      floats(rows * 2 * d) + digits(rows, 2 * d),          // mtp.input
  });
  constexpr int64_t kAreas = 24, kAlignment = 256;
  return static_cast<uint64_t>(most + kAreas * kAlignment);
}

StageFunction Canonical(plan::Stage stage) {
  using plan::Stage;
  switch (stage) {
    case Stage::kEmbed:
      return Embed;
    case Stage::kHcPre:
      return HcPre;
    case Stage::kAttnNorm:
      return AttnNorm;
    case Stage::kKdaQkv:
      return KdaQkv;
    case Stage::kKdaConv:
      return KdaConv;
    case Stage::kKdaGates:
      return KdaGates;
    case Stage::kKdaRecur:
      return KdaRecur;
    case Stage::kKdaNorm:
      return KdaNorm;
    case Stage::kKdaOut:
      return KdaOut;
    case Stage::kDsaQ:
      return DsaQ;
    case Stage::kDsaKv:
      return DsaKv;
    case Stage::kDsaIndex:
      return DsaIndex;
    case Stage::kDsaSelect:
      return DsaSelect;
    case Stage::kDsaAttend:
      return DsaAttend;
    case Stage::kDsaOut:
      return DsaOut;
    case Stage::kHcPost:
      return HcPost;
    case Stage::kResidual:
      return Residual;
    case Stage::kFfnNorm:
      return FfnNorm;
    case Stage::kFfnGateUp:
      return FfnGateUp;
    case Stage::kFfnDown:
      return FfnDown;
    case Stage::kMoeRoute:
      return MoeRoute;
    case Stage::kMoeGateUp:
      return MoeGateUp;
    case Stage::kMoeDown:
      return MoeDown;
    case Stage::kMoeSharedGateUp:
      return MoeSharedGateUp;
    case Stage::kMoeSharedDown:
      return MoeSharedDown;
    case Stage::kMoeCombine:
      return MoeCombine;
    case Stage::kHeadNorm:
      return HeadNorm;
    case Stage::kHeadLogits:
      return HeadLogits;
    case Stage::kMtpInput:
      return MtpInput;
    case Stage::kCount:
      break;
  }
  return nullptr;
}

StageFunction Replacement(const plan::Lever& lever) {
  if (lever.name == "hc.fused") return HcFused;
  if (lever.name == "hc.block") return HcBlock;
  if (lever.name == "hc.moe") return HcMoe;
  if (lever.name == "moe.beside") return MoeBeside;
  if (lever.name == "kda.fused") return KdaFused;
  if (lever.name == "dsa.inputs") return DsaInputs;
  return nullptr;
}

}  // namespace glint::cuda
