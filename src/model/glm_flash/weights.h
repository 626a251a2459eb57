// The weights of a model bound to names and checked shapes. Names of the fields follow spec/gguf.md section 3.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/glm_flash/hparams.h"
#include "model/matrix.h"

namespace glint::model {

// Small vectors are always float; their memory belongs to the owner of the Weights.
using Vector = std::span<const float>;

struct HcSite {
  Matrix fn;     // [2n + n*n][n * D], rows: n pre, n post, n*n comb (row-major source, destination)
  Vector base;   // [2n + n*n]
  Vector scale;  // [3]
};

struct KdaWeights {
  Matrix q, k, v;                 // [H*K][D]
  Vector conv_q, conv_k, conv_v;  // [H*K][conv_kernel], the last tap multiplies the current token
  Matrix f_a, f_b;                // [rank][D], [H*K][rank]: forget gate
  Matrix g_a, g_b;                // [rank][D], [H*K][rank]: output gate
  Matrix beta;                    // [H][D]
  Vector a;                       // [H] exp(A_log) > 0, whatever the file stores
  Vector dt_bias;                 // [H*K]
  Vector o_norm;                  // [K]
  Matrix out;                     // [D][H*K]
};

struct DsaWeights {
  Matrix q_a;        // [q_lora][D]
  Vector q_a_norm;   // [q_lora]
  Matrix q_b;        // [heads * qk][q_lora], head-major
  Matrix kv_a;       // [kv_lora][D]
  Vector kv_a_norm;  // [kv_lora]
  Matrix k_b;        // heads slices of [kv_lora][qk]: the key part transposed, for the absorbed form
  Matrix v_b;        // heads slices of [v][kv_lora]
  Matrix out;        // [D][heads * v]
  Matrix index_q_b;  // [index_heads * index_head_dim][q_lora]
  Matrix index_k;    // [index_head_dim][D]
  Vector index_k_norm, index_k_norm_bias;  // [index_head_dim]
  Matrix index_proj;                       // [index_heads][D]
  Vector index_ape;                        // [kpool][index_head_dim]
  Matrix index_gate;                       // [index_head_dim][D]
};

struct DenseFfn {
  Matrix gate, up;  // [dense_ffn][D]
  Matrix down;      // [D][dense_ffn]
};

struct MoeFfn {
  Matrix router;                  // [experts][D]
  Vector router_bias;             // [experts]
  Matrix gate, up;                // experts slices of [expert_ffn][D]
  Matrix down;                    // experts slices of [D][expert_ffn]
  Matrix shared_gate, shared_up;  // [shared_ffn][D]
  Matrix shared_down;             // [D][shared_ffn]
};

// A trunk layer, or the MTP block (which has no hc sites and is always DSA + MoE). Exactly one of kda/dsa and one of
// dense/moe is filled, as HParams says.
struct Layer {
  Vector attn_norm, ffn_norm;  // [D]
  HcSite hc_attn, hc_ffn;
  KdaWeights kda;
  DsaWeights dsa;
  DenseFfn dense;
  MoeFfn moe;
};

struct NextnWeights {
  Matrix eh_proj;                         // [D][2 D], embedding half first
  Vector enorm, hnorm, shared_head_norm;  // [D]
  Layer block;
};

struct Weights {
  Matrix embedding;                 // [vocab][D]
  Matrix head;                      // [vocab][D]
  Vector output_norm;               // [D]
  std::vector<Layer> layers;        // [hp.layers]
  std::vector<NextnWeights> nextn;  // [hp.nextn_layers]
};

}  // namespace glint::model
