// The canonical steps of the model and the buffers they hand to one another.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "model/glm_flash/hparams.h"

namespace glint::plan {

// The trunk, or the MTP block.
enum class Pass : uint8_t { kTrunk, kMtp };

// In the order of a pass. Names (Name()) are what --with, profile and docs/levers.md use.
enum class Stage : uint8_t {
  kEmbed,     // embed           tokens -> streams (hc_mult copies), or residual in the MTP pass
  kHcPre,     // hc.pre          streams -> collapsed, post, comb                      spec/model.md 4.1
  kAttnNorm,  // attn.norm       collapsed (MTP: residual) -> x
  kKdaQkv,    // kda.qkv         x -> u                                                5.1
  kKdaConv,  // kda.conv        u -> qkv: convolution, SiLU, q and k normalised; advances conv rows   5.1, 5.2
  kKdaGates,  // kda.gates       x -> decay, beta, out_gate                            5.2, 5.5
  kKdaRecur,  // kda.recur       qkv, decay, beta -> mixed; advances the grid state    docs/design.md "The grid"
  kKdaNorm,  // kda.norm        mixed, out_gate -> mixed_normed                       5.5
  kKdaOut,   // kda.out         mixed_normed -> branch
  kDsaQ,     // dsa.q           x -> q_resid, q                                       6
  kDsaKv,    // dsa.kv          x -> latent; appends latent rows                      6
  kDsaIndex,  // dsa.index       x, q_resid -> index_q, index_k, index_gate, index_w; appends pooled keys   7.1, 7.2
  kDsaSelect,        // dsa.select      index_q, index_w -> selected, selected_count          7.3, 7.4
  kDsaAttend,        // dsa.attend      q, selected -> attended (absorbed form)               6
  kDsaOut,           // dsa.out         attended -> branch
  kHcPost,           // hc.post         streams, branch, post, comb -> streams                4.2
  kResidual,         // residual        residual += branch (MTP block only)
  kFfnNorm,          // ffn.norm        collapsed (MTP: residual) -> x
  kFfnGateUp,        // ffn.gate_up     x -> ffn_hidden (clamped SwiGLU)                      8.1
  kFfnDown,          // ffn.down        ffn_hidden -> branch
  kMoeRoute,         // moe.route       x -> expert_ids, expert_weights                       8.2
  kMoeGateUp,        // moe.gate_up     x, expert_ids -> moe_hidden
  kMoeDown,          // moe.down        moe_hidden, expert_ids -> expert_out
  kMoeSharedGateUp,  // moe.shared_gate_up  x -> shared_hidden
  kMoeSharedDown,    // moe.shared_down shared_hidden -> shared_out
  kMoeCombine,       // moe.combine     expert_out, expert_weights, shared_out -> branch
  kHeadNorm,         // head.norm       streams (MTP: residual) -> final, all rows            3, 10.2
  kHeadLogits,       // head.logits     final -> logits, wanted rows only
  kMtpInput,         // mtp.input       tokens, hidden_in -> residual                         10.2
  kCount
};

enum class Slot : uint8_t {
  kStreams,        // [rows][hc][D]
  kCollapsed,      // [rows][D]
  kPost,           // [rows][hc]
  kComb,           // [rows][hc source][hc destination]
  kX,              // [rows][D] normalised input of a sublayer
  kU,              // [rows][3][H*K] q | k | v before the convolution
  kQkv,            // [rows][3][H*K] after convolution and SiLU; q and k l2-normalised, q scaled by K^-1/2
  kDecay,          // [rows][H*K] g, log of the decay
  kBeta,           // [rows][H]
  kOutGate,        // [rows][H*K] before its sigmoid
  kMixed,          // [rows][H*K] output of the delta rule
  kMixedNormed,    // [rows][H*K]
  kQResid,         // [rows][q_lora] normalised
  kQ,              // [rows][heads][qk]
  kLatent,         // [rows][kv_lora] this chunk's rows of the cache
  kIndexQ,         // [rows][index_heads][index_head_dim]
  kIndexK,         // [rows][index_head_dim] after its LayerNorm
  kIndexGate,      // [rows][index_head_dim]
  kIndexW,         // [rows][index_heads], not scaled
  kSelected,       // int32 [rows][max_selected] ascending positions
  kSelectedCount,  // int32 [rows]
  kAttended,       // [rows][heads][v]
  kBranch,         // [rows][D] what a sublayer adds
  kResidual,       // [rows][D] MTP block's residual
  kFfnHidden,      // [rows][dense_ffn]
  kRouterLogits,   // [rows][experts]
  kExpertIds,      // int32 [rows][experts_used] ascending
  kExpertWeights,  // [rows][experts_used]
  kMoeHidden,      // [rows][experts_used][expert_ffn]
  kExpertOut,      // [rows][experts_used][D]
  kSharedHidden,   // [rows][shared_ffn]
  kSharedOut,      // [rows][D]
  kMix,     // [rows][heads][kv_lora] of latent rows, what v_b is applied to. Only where a plan looks inside
  kJoined,  // [rows][2 D] normalised embedding and hidden state, what eh_proj is applied to. The same
  kFinal,   // [rows][D] after the final norm: input of the head, and of hnorm
  kLogits,  // [wanted rows][vocab]: the caller's memory, never in the plan's buffers
  kCount
};

std::string_view Name(Stage stage);
std::string_view Name(Slot slot);
bool FindStage(std::string_view name, Stage* stage);

std::vector<Stage> AllStages();      // in the order of a pass
std::vector<Stage> ProductStages();  // those with a product of a weight matrix in them

// Whether the entries are int32: positions, counts, ids. All other slots hold floats.
bool HoldsIntegers(Slot slot);

// Entries (4 bytes each, float or int32) of a slot per row.
int64_t Width(Slot slot, const model::HParams& hp);

// Whether running the stage twice in a row leaves outputs and state as running it once. Not so where it advances state.
bool Idempotent(Stage stage);

// What a stage reads and writes. A slot in both is updated in place.
struct StageIo {
  std::vector<Slot> in, out;
  bool advances_state = false;  // writes state of the sequence as well
};
StageIo Io(Stage stage, Pass pass);

}  // namespace glint::plan
