// Hyper-parameters of a GLM-5.3-Flash model (spec/model.md section 1), read from the file and checked once.
// Nothing here is fixed to the released sizes.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "glint/status.h"

namespace glint::model {

enum class Mixer : uint8_t { kKda, kDsa };

struct HParams {
  // vocabulary and depth
  int64_t vocab_size = 0;      // rows of embedding and head
  int64_t hidden = 0;          // D
  int64_t layers = 0;          // trunk layers
  int64_t nextn_layers = 0;    // MTP blocks present in the file: 0 or 1
  int64_t context_length = 0;  // what the model was made for
  std::vector<Mixer> mixers;   // [layers]
  std::vector<uint8_t> moe;    // [layers] 1 = MoE, 0 = dense FFN

  // KDA
  int64_t kda_heads = 0, kda_head_dim = 0;  // keys and values alike
  int64_t conv_kernel = 0;
  float gate_lower_bound = 0;  // < 0

  // DSA (MLA without positions, pooled indexer)
  int64_t heads = 0, q_lora_rank = 0, kv_lora_rank = 0, qk_head_dim = 0, v_head_dim = 0;
  int64_t index_heads = 0, index_head_dim = 0;
  int64_t index_topk = 0;   // tokens
  int64_t index_kpool = 0;  // tokens a pool

  // FFN
  int64_t dense_ffn = 0, expert_ffn = 0, shared_ffn = 0;
  int64_t experts = 0, experts_used = 0;
  float routed_scale = 1;
  bool norm_topk = true;
  float swiglu_limit = 0;  // > 0; infinity if the file states none

  // hyper-connections
  int64_t hc_mult = 0, sinkhorn_iters = 0;
  float hc_eps = 1e-6f;

  // epsilons (spec/model.md section 1.1)
  float rms_eps = 1e-5f;
  float layer_norm_eps = 1e-6f;
  float l2_eps = 1e-6f;
  float router_eps = 1e-20f;

  // Positions are cut into blocks of this many tokens (docs/design.md, "The grid"): the largest multiple of
  // index_kpool up to 16, or 16 for pools longer than that. A function of the model alone.
  int64_t block = 16;

  int64_t kda_width() const { return kda_heads * kda_head_dim; }
  int64_t hc_mix() const { return 2 * hc_mult + hc_mult * hc_mult; }  // rows of a site's fn
  int64_t pools_kept() const { return index_topk / index_kpool; }
  friend bool operator==(const HParams&, const HParams&) = default;
  int64_t max_selected() const { return pools_kept() * index_kpool + index_kpool - 1; }
};

// HParams::block for a pool size.
int64_t GridBlock(int64_t kpool);

// Every field in range and consistent with the others: positive sizes with products that fit, top-k a multiple of the
// pool, experts_used <= experts, block * |gate_lower_bound| < 87 (exp of it must stay finite and normal), schedule lengths, finite
// epsilons. The message names the quantity and its value; the caller adds the file.
Status Check(const HParams& hp);

}  // namespace glint::model
