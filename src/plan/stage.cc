#include "plan/stage.h"

#include <array>

namespace glint::plan {
namespace {

constexpr auto kStageCount = static_cast<size_t>(Stage::kCount);
constexpr auto kSlotCount = static_cast<size_t>(Slot::kCount);

constexpr std::array<std::string_view, kStageCount> kStageNames = {
    "embed",           "hc.pre",      "attn.norm", "kda.qkv",     "kda.conv", "kda.gates",
    "kda.recur",       "kda.norm",    "kda.out",   "dsa.q",       "dsa.kv",   "dsa.index",
    "dsa.select",      "dsa.attend",  "dsa.out",   "hc.post",     "residual", "ffn.norm",
    "ffn.gate_up",     "ffn.down",    "moe.route", "moe.gate_up", "moe.down", "moe.shared_gate_up",
    "moe.shared_down", "moe.combine", "head.norm", "head.logits", "mtp.input"};

constexpr std::array<std::string_view, kSlotCount> kSlotNames = {"streams",
                                                                 "collapsed",
                                                                 "post",
                                                                 "comb",
                                                                 "x",
                                                                 "u",
                                                                 "qkv",
                                                                 "decay",
                                                                 "beta",
                                                                 "out_gate",
                                                                 "mixed",
                                                                 "mixed_normed",
                                                                 "q_resid",
                                                                 "q",
                                                                 "latent",
                                                                 "index_q",
                                                                 "index_k",
                                                                 "index_gate",
                                                                 "index_w",
                                                                 "selected",
                                                                 "selected_count",
                                                                 "attended",
                                                                 "branch",
                                                                 "residual",
                                                                 "ffn_hidden",
                                                                 "router_logits",
                                                                 "expert_ids",
                                                                 "expert_weights",
                                                                 "moe_hidden",
                                                                 "expert_out",
                                                                 "shared_hidden",
                                                                 "shared_out",
                                                                 "mix",
                                                                 "joined",
                                                                 "final",
                                                                 "logits"};

static_assert(!kStageNames.back().empty() && !kSlotNames.back().empty(), "a name for each");

}  // namespace

std::string_view Name(Stage stage) { return kStageNames[static_cast<size_t>(stage)]; }
std::string_view Name(Slot slot) { return kSlotNames[static_cast<size_t>(slot)]; }

bool FindStage(std::string_view name, Stage* stage) {
  for (size_t i = 0; i < kStageCount; ++i) {
    if (kStageNames[i] != name) continue;
    *stage = static_cast<Stage>(i);
    return true;
  }
  return false;
}

std::vector<Stage> AllStages() {
  std::vector<Stage> stages;
  stages.reserve(kStageCount);
  for (size_t s = 0; s < kStageCount; ++s) stages.push_back(static_cast<Stage>(s));
  return stages;
}

std::vector<Stage> ProductStages() {
  return {Stage::kHcPre,      Stage::kKdaQkv,    Stage::kKdaGates,        Stage::kKdaOut,
          Stage::kDsaQ,       Stage::kDsaKv,     Stage::kDsaIndex,        Stage::kDsaAttend,
          Stage::kDsaOut,     Stage::kFfnGateUp, Stage::kFfnDown,         Stage::kMoeRoute,
          Stage::kMoeGateUp,  Stage::kMoeDown,   Stage::kMoeSharedGateUp, Stage::kMoeSharedDown,
          Stage::kHeadLogits, Stage::kMtpInput};
}

bool HoldsIntegers(Slot slot) {
  return slot == Slot::kSelected || slot == Slot::kSelectedCount || slot == Slot::kExpertIds;
}

int64_t Width(Slot slot, const model::HParams& hp) {
  switch (slot) {
    case Slot::kStreams:
      return hp.hc_mult * hp.hidden;
    case Slot::kCollapsed:
    case Slot::kX:
    case Slot::kBranch:
    case Slot::kResidual:
    case Slot::kSharedOut:
    case Slot::kFinal:
      return hp.hidden;
    case Slot::kPost:
      return hp.hc_mult;
    case Slot::kComb:
      return hp.hc_mult * hp.hc_mult;
    case Slot::kU:
    case Slot::kQkv:
      return 3 * hp.kda_width();
    case Slot::kDecay:
    case Slot::kOutGate:
    case Slot::kMixed:
    case Slot::kMixedNormed:
      return hp.kda_width();
    case Slot::kBeta:
      return hp.kda_heads;
    case Slot::kQResid:
      return hp.q_lora_rank;
    case Slot::kQ:
      return hp.heads * hp.qk_head_dim;
    case Slot::kLatent:
      return hp.kv_lora_rank;
    case Slot::kIndexQ:
      return hp.index_heads * hp.index_head_dim;
    case Slot::kIndexK:
    case Slot::kIndexGate:
      return hp.index_head_dim;
    case Slot::kIndexW:
      return hp.index_heads;
    case Slot::kSelected:
      return hp.max_selected();
    case Slot::kSelectedCount:
      return 1;
    case Slot::kAttended:
      return hp.heads * hp.v_head_dim;
    case Slot::kFfnHidden:
      return hp.dense_ffn;
    case Slot::kRouterLogits:
      return hp.experts;
    case Slot::kExpertIds:
    case Slot::kExpertWeights:
      return hp.experts_used;
    case Slot::kMoeHidden:
      return hp.experts_used * hp.expert_ffn;
    case Slot::kExpertOut:
      return hp.experts_used * hp.hidden;
    case Slot::kSharedHidden:
      return hp.shared_ffn;
    case Slot::kMix:
      return hp.heads * hp.kv_lora_rank;
    case Slot::kJoined:
      return 2 * hp.hidden;
    case Slot::kLogits:
      return hp.vocab_size;
    case Slot::kCount:
      break;
  }
  return 0;
}

bool Idempotent(Stage stage) {
  switch (stage) {
    case Stage::kKdaConv:   // the pass's rows take the place of the history it read
    case Stage::kKdaRecur:  // a finished block is folded into S
    case Stage::kDsaIndex:  // the pass's raw rows take the place of those an open pool needed
    case Stage::kHcPost:    // in place
    case Stage::kResidual:  // in place
      return false;
    default:
      return true;
  }
}

StageIo Io(Stage stage, Pass pass) {
  const Slot sublayer_in = pass == Pass::kTrunk ? Slot::kCollapsed : Slot::kResidual;
  switch (stage) {
    case Stage::kEmbed:
      return {{}, {Slot::kStreams}, false};
    case Stage::kHcPre:
      return {{Slot::kStreams}, {Slot::kCollapsed, Slot::kPost, Slot::kComb}, false};
    case Stage::kAttnNorm:
    case Stage::kFfnNorm:
      return {{sublayer_in}, {Slot::kX}, false};
    case Stage::kKdaQkv:
      return {{Slot::kX}, {Slot::kU}, false};
    case Stage::kKdaConv:
      return {{Slot::kU}, {Slot::kQkv}, true};
    case Stage::kKdaGates:
      return {{Slot::kX}, {Slot::kDecay, Slot::kBeta, Slot::kOutGate}, false};
    case Stage::kKdaRecur:
      return {{Slot::kQkv, Slot::kDecay, Slot::kBeta}, {Slot::kMixed}, true};
    case Stage::kKdaNorm:
      return {{Slot::kMixed, Slot::kOutGate}, {Slot::kMixedNormed}, false};
    case Stage::kKdaOut:
      return {{Slot::kMixedNormed}, {Slot::kBranch}, false};
    case Stage::kDsaQ:
      return {{Slot::kX}, {Slot::kQResid, Slot::kQ}, false};
    case Stage::kDsaKv:
      return {{Slot::kX}, {Slot::kLatent}, true};
    case Stage::kDsaIndex:
      return {
          {Slot::kX, Slot::kQResid}, {Slot::kIndexQ, Slot::kIndexK, Slot::kIndexGate, Slot::kIndexW}, true};
    case Stage::kDsaSelect:
      return {{Slot::kIndexQ, Slot::kIndexW}, {Slot::kSelected, Slot::kSelectedCount}, false};
    case Stage::kDsaAttend:
      return {{Slot::kQ, Slot::kSelected, Slot::kSelectedCount}, {Slot::kAttended}, false};
    case Stage::kDsaOut:
      return {{Slot::kAttended}, {Slot::kBranch}, false};
    case Stage::kHcPost:
      return {{Slot::kStreams, Slot::kBranch, Slot::kPost, Slot::kComb}, {Slot::kStreams}, false};
    case Stage::kResidual:
      return {{Slot::kResidual, Slot::kBranch}, {Slot::kResidual}, false};
    case Stage::kFfnGateUp:
      return {{Slot::kX}, {Slot::kFfnHidden}, false};
    case Stage::kFfnDown:
      return {{Slot::kFfnHidden}, {Slot::kBranch}, false};
    case Stage::kMoeRoute:
      return {{Slot::kX}, {Slot::kRouterLogits, Slot::kExpertIds, Slot::kExpertWeights}, false};
    case Stage::kMoeGateUp:
      return {{Slot::kX, Slot::kExpertIds}, {Slot::kMoeHidden}, false};
    case Stage::kMoeDown:
      return {{Slot::kMoeHidden, Slot::kExpertIds}, {Slot::kExpertOut}, false};
    case Stage::kMoeSharedGateUp:
      return {{Slot::kX}, {Slot::kSharedHidden}, false};
    case Stage::kMoeSharedDown:
      return {{Slot::kSharedHidden}, {Slot::kSharedOut}, false};
    case Stage::kMoeCombine:
      return {{Slot::kExpertOut, Slot::kExpertWeights, Slot::kSharedOut}, {Slot::kBranch}, false};
    case Stage::kHeadNorm:
      return {{pass == Pass::kTrunk ? Slot::kStreams : Slot::kResidual}, {Slot::kFinal}, false};
    case Stage::kHeadLogits:
      return {{Slot::kFinal}, {Slot::kLogits}, false};
    case Stage::kMtpInput:
      return {{}, {Slot::kResidual}, false};
    case Stage::kCount:
      break;
  }
  return {};
}

}  // namespace glint::plan
