#include "model/glm_flash/tensors.h"

#include <fmt/core.h>

namespace glint::model {
namespace {

using H = const HParams&;
using S = const Site&;

constexpr TensorKind kKinds[] = {
    // clang-format off
    {TensorId::kEmbedding, Where::kGlobal, Role::kEmbedding, 2, "token_embd.weight", {}, {}, "embed_tokens.weight", {},
     [](H h) { return Shape{h.hidden, h.vocab_size}; }, [](S s) { return &s.weights->embedding; }, nullptr},
    {TensorId::kOutputNorm, Where::kGlobal, Role::kNorm, 1, "output_norm.weight", {}, {}, "norm.weight", {},
     [](H h) { return Shape{h.hidden}; }, nullptr, [](S s) { return &s.weights->output_norm; }},
    {TensorId::kHead, Where::kGlobal, Role::kHead, 2, "output.weight", {}, {}, "lm_head.weight", {},
     [](H h) { return Shape{h.hidden, h.vocab_size}; }, [](S s) { return &s.weights->head; }, nullptr},

    {TensorId::kAttnNorm, Where::kEvery, Role::kNorm, 1, "attn_norm.weight", {}, {}, "input_layernorm.weight", {},
     [](H h) { return Shape{h.hidden}; }, nullptr, [](S s) { return &s.layer->attn_norm; }},
    {TensorId::kFfnNorm, Where::kEvery, Role::kNorm, 1, "ffn_norm.weight", {}, {}, "post_attention_layernorm.weight", {},
     [](H h) { return Shape{h.hidden}; }, nullptr, [](S s) { return &s.layer->ffn_norm; }},

    {TensorId::kHcAttnFn, Where::kTrunk, Role::kHc, 2, "hc_attn_fn.weight", {}, {}, "hc_attn_fn", "attn_hc.fn",
     [](H h) { return Shape{h.hc_mult * h.hidden, h.hc_mix()}; }, [](S s) { return &s.layer->hc_attn.fn; }, nullptr},
    {TensorId::kHcAttnBase, Where::kTrunk, Role::kHc, 1, "hc_attn_base.weight", {}, {}, "hc_attn_base", "attn_hc.base",
     [](H h) { return Shape{h.hc_mix()}; }, nullptr, [](S s) { return &s.layer->hc_attn.base; }},
    {TensorId::kHcAttnScale, Where::kTrunk, Role::kHc, 1, "hc_attn_scale.weight", {}, {}, "hc_attn_scale", "attn_hc.scale",
     [](H) { return Shape{3}; }, nullptr, [](S s) { return &s.layer->hc_attn.scale; }},
    {TensorId::kHcFfnFn, Where::kTrunk, Role::kHc, 2, "hc_ffn_fn.weight", {}, {}, "hc_ffn_fn", "ffn_hc.fn",
     [](H h) { return Shape{h.hc_mult * h.hidden, h.hc_mix()}; }, [](S s) { return &s.layer->hc_ffn.fn; }, nullptr},
    {TensorId::kHcFfnBase, Where::kTrunk, Role::kHc, 1, "hc_ffn_base.weight", {}, {}, "hc_ffn_base", "ffn_hc.base",
     [](H h) { return Shape{h.hc_mix()}; }, nullptr, [](S s) { return &s.layer->hc_ffn.base; }},
    {TensorId::kHcFfnScale, Where::kTrunk, Role::kHc, 1, "hc_ffn_scale.weight", {}, {}, "hc_ffn_scale", "ffn_hc.scale",
     [](H) { return Shape{3}; }, nullptr, [](S s) { return &s.layer->hc_ffn.scale; }},

    {TensorId::kKdaQ, Where::kKda, Role::kKda, 2, "attn_q.weight", "kda_q.weight", {}, "self_attn.q_proj.weight", {},
     [](H h) { return Shape{h.hidden, h.kda_width()}; }, [](S s) { return &s.layer->kda.q; }, nullptr},
    {TensorId::kKdaK, Where::kKda, Role::kKda, 2, "attn_k.weight", "kda_k.weight", {}, "self_attn.k_proj.weight", {},
     [](H h) { return Shape{h.hidden, h.kda_width()}; }, [](S s) { return &s.layer->kda.k; }, nullptr},
    {TensorId::kKdaV, Where::kKda, Role::kKda, 2, "attn_v.weight", "kda_v.weight", {}, "self_attn.v_proj.weight", {},
     [](H h) { return Shape{h.hidden, h.kda_width()}; }, [](S s) { return &s.layer->kda.v; }, nullptr},
    {TensorId::kKdaConvQ, Where::kKda, Role::kKda, 4, "ssm_conv1d_q.weight", "kda_q_conv.weight", {}, "self_attn.q_conv1d.weight", {},
     [](H h) { return Shape{h.conv_kernel, h.kda_width()}; }, nullptr, [](S s) { return &s.layer->kda.conv_q; }},
    {TensorId::kKdaConvK, Where::kKda, Role::kKda, 4, "ssm_conv1d_k.weight", "kda_k_conv.weight", {}, "self_attn.k_conv1d.weight", {},
     [](H h) { return Shape{h.conv_kernel, h.kda_width()}; }, nullptr, [](S s) { return &s.layer->kda.conv_k; }},
    {TensorId::kKdaConvV, Where::kKda, Role::kKda, 4, "ssm_conv1d_v.weight", "kda_v_conv.weight", {}, "self_attn.v_conv1d.weight", {},
     [](H h) { return Shape{h.conv_kernel, h.kda_width()}; }, nullptr, [](S s) { return &s.layer->kda.conv_v; }},
    {TensorId::kKdaFa, Where::kKda, Role::kKda, 2, "ssm_f_a.weight", "kda_f_a.weight", {}, "self_attn.f_a_proj.weight", "self_attn.forget_gate.f_a_proj.weight",
     [](H h) { return Shape{h.hidden, h.kda_head_dim}; }, [](S s) { return &s.layer->kda.f_a; }, nullptr},
    {TensorId::kKdaFb, Where::kKda, Role::kKda, 2, "ssm_f_b.weight", "kda_f_b.weight", {}, "self_attn.f_b_proj.weight", "self_attn.forget_gate.f_b_proj.weight",
     [](H h) { return Shape{h.kda_head_dim, h.kda_width()}; }, [](S s) { return &s.layer->kda.f_b; }, nullptr},
    {TensorId::kKdaGa, Where::kKda, Role::kKda, 2, "ssm_g_a.weight", "kda_g_a.weight", {}, "self_attn.g_a_proj.weight", {},
     [](H h) { return Shape{h.hidden, h.kda_head_dim}; }, [](S s) { return &s.layer->kda.g_a; }, nullptr},
    {TensorId::kKdaGb, Where::kKda, Role::kKda, 2, "ssm_g_b.weight", "kda_g_b.weight", {}, "self_attn.g_b_proj.weight", {},
     [](H h) { return Shape{h.kda_head_dim, h.kda_width()}; }, [](S s) { return &s.layer->kda.g_b; }, nullptr},
    {TensorId::kKdaBeta, Where::kKda, Role::kKda, 2, "ssm_beta.weight", "kda_beta.weight", {}, "self_attn.b_proj.weight", {},
     [](H h) { return Shape{h.hidden, h.kda_heads}; }, [](S s) { return &s.layer->kda.beta; }, nullptr},
    {TensorId::kKdaA, Where::kKda, Role::kKda, 1, "ssm_a", "kda_a_log.weight", {}, "self_attn.A_log", "self_attn.forget_gate.A_log",
     [](H h) { return Shape{h.kda_heads}; }, nullptr, [](S s) { return &s.layer->kda.a; }},
    {TensorId::kKdaDt, Where::kKda, Role::kKda, 1, "ssm_dt.bias", "kda_dt_bias.weight", {}, "self_attn.dt_bias", "self_attn.forget_gate.dt_bias",
     [](H h) { return Shape{h.kda_width()}; }, nullptr, [](S s) { return &s.layer->kda.dt_bias; }},
    {TensorId::kKdaNorm, Where::kKda, Role::kNorm, 1, "ssm_norm.weight", "kda_o_norm.weight", {}, "self_attn.o_norm.weight", {},
     [](H h) { return Shape{h.kda_head_dim}; }, nullptr, [](S s) { return &s.layer->kda.o_norm; }},
    {TensorId::kKdaOut, Where::kKda, Role::kKda, 2, "attn_output.weight", "kda_output.weight", {}, "self_attn.o_proj.weight", {},
     [](H h) { return Shape{h.kda_width(), h.hidden}; }, [](S s) { return &s.layer->kda.out; }, nullptr},

    {TensorId::kDsaQa, Where::kDsa, Role::kDsa, 2, "attn_q_a.weight", {}, {}, "self_attn.q_a_proj.weight", {},
     [](H h) { return Shape{h.hidden, h.q_lora_rank}; }, [](S s) { return &s.layer->dsa.q_a; }, nullptr},
    {TensorId::kDsaQaNorm, Where::kDsa, Role::kNorm, 1, "attn_q_a_norm.weight", {}, {}, "self_attn.q_a_layernorm.weight", {},
     [](H h) { return Shape{h.q_lora_rank}; }, nullptr, [](S s) { return &s.layer->dsa.q_a_norm; }},
    {TensorId::kDsaQb, Where::kDsa, Role::kDsa, 2, "attn_q_b.weight", {}, {}, "self_attn.q_b_proj.weight", {},
     [](H h) { return Shape{h.q_lora_rank, h.heads * h.qk_head_dim}; }, [](S s) { return &s.layer->dsa.q_b; }, nullptr},
    {TensorId::kDsaKva, Where::kDsa, Role::kDsa, 2, "attn_kv_a_mqa.weight", {}, {}, "self_attn.kv_a_proj_with_mqa.weight", {},
     [](H h) { return Shape{h.hidden, h.kv_lora_rank}; }, [](S s) { return &s.layer->dsa.kv_a; }, nullptr},
    {TensorId::kDsaKvaNorm, Where::kDsa, Role::kNorm, 1, "attn_kv_a_norm.weight", {}, {}, "self_attn.kv_a_layernorm.weight", {},
     [](H h) { return Shape{h.kv_lora_rank}; }, nullptr, [](S s) { return &s.layer->dsa.kv_a_norm; }},
    {TensorId::kDsaKb, Where::kDsa, Role::kDsa, 3, "attn_k_b.weight", {}, {}, "self_attn.kv_b_proj.weight", {},
     [](H h) { return Shape{h.qk_head_dim, h.kv_lora_rank, h.heads}; }, [](S s) { return &s.layer->dsa.k_b; }, nullptr},
    {TensorId::kDsaVb, Where::kDsa, Role::kDsa, 3, "attn_v_b.weight", {}, {}, "self_attn.kv_b_proj.weight", {},
     [](H h) { return Shape{h.kv_lora_rank, h.v_head_dim, h.heads}; }, [](S s) { return &s.layer->dsa.v_b; }, nullptr},
    {TensorId::kDsaOut, Where::kDsa, Role::kDsa, 2, "attn_output.weight", {}, {}, "self_attn.o_proj.weight", {},
     [](H h) { return Shape{h.heads * h.v_head_dim, h.hidden}; }, [](S s) { return &s.layer->dsa.out; }, nullptr},

    {TensorId::kIndexQb, Where::kDsa, Role::kIndexer, 2, "indexer.attn_q_b.weight", {}, {}, "self_attn.indexer.wq_b.weight", {},
     [](H h) { return Shape{h.q_lora_rank, h.index_heads * h.index_head_dim}; }, [](S s) { return &s.layer->dsa.index_q_b; }, nullptr},
    {TensorId::kIndexK, Where::kDsa, Role::kIndexer, 2, "indexer.attn_k.weight", {}, {}, "self_attn.indexer.wk.weight", {},
     [](H h) { return Shape{h.hidden, h.index_head_dim}; }, [](S s) { return &s.layer->dsa.index_k; }, nullptr},
    {TensorId::kIndexNorm, Where::kDsa, Role::kNorm, 1, "indexer.k_norm.weight", {}, {}, "self_attn.indexer.k_norm.weight", {},
     [](H h) { return Shape{h.index_head_dim}; }, nullptr, [](S s) { return &s.layer->dsa.index_k_norm; }},
    {TensorId::kIndexNormBias, Where::kDsa, Role::kNorm, 1, "indexer.k_norm.bias", {}, {}, "self_attn.indexer.k_norm.bias", {},
     [](H h) { return Shape{h.index_head_dim}; }, nullptr, [](S s) { return &s.layer->dsa.index_k_norm_bias; }},
    {TensorId::kIndexProj, Where::kDsa, Role::kIndexer, 2, "indexer.proj.weight", {}, {}, "self_attn.indexer.weights_proj.weight", {},
     [](H h) { return Shape{h.hidden, h.index_heads}; }, [](S s) { return &s.layer->dsa.index_proj; }, nullptr},
    {TensorId::kIndexApe, Where::kDsa, Role::kIndexer, 2, "indexer_compressor_ape.weight", "indexer.pool_ape.weight", "indexer.kpool_ape.weight", "self_attn.indexer.index_kpool_compress_ape", {},
     [](H h) { return Shape{h.index_head_dim, h.index_kpool}; }, nullptr, [](S s) { return &s.layer->dsa.index_ape; }},
    {TensorId::kIndexGate, Where::kDsa, Role::kIndexer, 2, "indexer_compressor_gate.weight", "indexer.pool_gate.weight", "indexer.kpool_gate.weight", "self_attn.indexer.index_kpool_compress_gate", "self_attn.indexer.index_kpool_compress_gate.weight",
     [](H h) { return Shape{h.hidden, h.index_head_dim}; }, [](S s) { return &s.layer->dsa.index_gate; }, nullptr},

    {TensorId::kDenseGate, Where::kDense, Role::kDense, 2, "ffn_gate.weight", {}, {}, "mlp.gate_proj.weight", {},
     [](H h) { return Shape{h.hidden, h.dense_ffn}; }, [](S s) { return &s.layer->dense.gate; }, nullptr},
    {TensorId::kDenseUp, Where::kDense, Role::kDense, 2, "ffn_up.weight", {}, {}, "mlp.up_proj.weight", {},
     [](H h) { return Shape{h.hidden, h.dense_ffn}; }, [](S s) { return &s.layer->dense.up; }, nullptr},
    {TensorId::kDenseDown, Where::kDense, Role::kDense, 2, "ffn_down.weight", {}, {}, "mlp.down_proj.weight", {},
     [](H h) { return Shape{h.dense_ffn, h.hidden}; }, [](S s) { return &s.layer->dense.down; }, nullptr},

    {TensorId::kRouter, Where::kMoe, Role::kRouter, 2, "ffn_gate_inp.weight", {}, {}, "mlp.gate.weight", {},
     [](H h) { return Shape{h.hidden, h.experts}; }, [](S s) { return &s.layer->moe.router; }, nullptr},
    {TensorId::kRouterBias, Where::kMoe, Role::kRouter, 1, "exp_probs_b.bias", {}, {}, "mlp.gate.e_score_correction_bias", {},
     [](H h) { return Shape{h.experts}; }, nullptr, [](S s) { return &s.layer->moe.router_bias; }},
    {TensorId::kExpertGate, Where::kMoe, Role::kExperts, 3, "ffn_gate_exps.weight", {}, {}, "gate_proj.weight", {},
     [](H h) { return Shape{h.hidden, h.expert_ffn, h.experts}; }, [](S s) { return &s.layer->moe.gate; }, nullptr},
    {TensorId::kExpertUp, Where::kMoe, Role::kExperts, 3, "ffn_up_exps.weight", {}, {}, "up_proj.weight", {},
     [](H h) { return Shape{h.hidden, h.expert_ffn, h.experts}; }, [](S s) { return &s.layer->moe.up; }, nullptr},
    {TensorId::kExpertDown, Where::kMoe, Role::kExperts, 3, "ffn_down_exps.weight", {}, {}, "down_proj.weight", {},
     [](H h) { return Shape{h.expert_ffn, h.hidden, h.experts}; }, [](S s) { return &s.layer->moe.down; }, nullptr},
    {TensorId::kSharedGate, Where::kMoe, Role::kShared, 2, "ffn_gate_shexp.weight", {}, {}, "mlp.shared_experts.gate_proj.weight", {},
     [](H h) { return Shape{h.hidden, h.shared_ffn}; }, [](S s) { return &s.layer->moe.shared_gate; }, nullptr},
    {TensorId::kSharedUp, Where::kMoe, Role::kShared, 2, "ffn_up_shexp.weight", {}, {}, "mlp.shared_experts.up_proj.weight", {},
     [](H h) { return Shape{h.hidden, h.shared_ffn}; }, [](S s) { return &s.layer->moe.shared_up; }, nullptr},
    {TensorId::kSharedDown, Where::kMoe, Role::kShared, 2, "ffn_down_shexp.weight", {}, {}, "mlp.shared_experts.down_proj.weight", {},
     [](H h) { return Shape{h.shared_ffn, h.hidden}; }, [](S s) { return &s.layer->moe.shared_down; }, nullptr},

    {TensorId::kNextnEhProj, Where::kNextn, Role::kMtp, 2, "nextn.eh_proj.weight", {}, {}, "eh_proj.weight", {},
     [](H h) { return Shape{2 * h.hidden, h.hidden}; }, [](S s) { return &s.nextn->eh_proj; }, nullptr},
    {TensorId::kNextnEnorm, Where::kNextn, Role::kMtp, 1, "nextn.enorm.weight", {}, {}, "enorm.weight", {},
     [](H h) { return Shape{h.hidden}; }, nullptr, [](S s) { return &s.nextn->enorm; }},
    {TensorId::kNextnHnorm, Where::kNextn, Role::kMtp, 1, "nextn.hnorm.weight", {}, {}, "hnorm.weight", {},
     [](H h) { return Shape{h.hidden}; }, nullptr, [](S s) { return &s.nextn->hnorm; }},
    {TensorId::kNextnHeadNorm, Where::kNextn, Role::kMtp, 1, "nextn.shared_head_norm.weight", {}, {}, "shared_head.norm.weight", {},
     [](H h) { return Shape{h.hidden}; }, nullptr, [](S s) { return &s.nextn->shared_head_norm; }},
    // clang-format on
};
static_assert(std::size(kKinds) == static_cast<size_t>(TensorId::kCount));
static_assert([] {
  for (size_t i = 0; i < std::size(kKinds); ++i) {
    if (static_cast<size_t>(kKinds[i].id) != i) return false;
    if ((kKinds[i].matrix == nullptr) == (kKinds[i].vector == nullptr)) return false;
  }
  return true;
}());

bool Applies(Where where, const HParams& hp, int block) {
  if (block < 0) return where == Where::kGlobal;
  const bool nextn = block >= hp.layers;
  const auto at = static_cast<size_t>(block);
  const bool kda = !nextn && hp.mixers[at] == Mixer::kKda;
  const bool moe = nextn || hp.moe[at] != 0;
  switch (where) {
    case Where::kGlobal:
      return false;
    case Where::kEvery:
      return true;
    case Where::kTrunk:
      return !nextn;
    case Where::kKda:
      return kda;
    case Where::kDsa:
      return !kda;
    case Where::kDense:
      return !moe;
    case Where::kMoe:
      return moe;
    case Where::kNextn:
      return nextn;
  }
  return false;
}

}  // namespace

std::span<const TensorKind> TensorKinds() { return kKinds; }
const TensorKind& Kind(TensorId id) { return kKinds[static_cast<size_t>(id)]; }

std::string BlockName(int block, std::string_view suffix) {
  return block < 0 ? std::string(suffix) : fmt::format("blk.{}.{}", block, suffix);
}

std::string Tensor::Name() const { return BlockName(block, kind->name); }

std::vector<uint64_t> Tensor::Ne() const {
  const auto c = static_cast<uint64_t>(shape.columns), r = static_cast<uint64_t>(shape.rows);
  switch (kind->dims) {
    case 1:
      return {c};
    case 2:
      return {c, r};
    case 3:
      return {c, r, static_cast<uint64_t>(shape.slices)};
    default:
      return {c, 1, r, 1};
  }
}

std::vector<Tensor> ListBlock(const HParams& hp, int block) {
  std::vector<Tensor> out;
  for (const TensorKind& kind : kKinds) {
    if (Applies(kind.where, hp, block)) out.push_back({&kind, block, kind.shape(hp)});
  }
  return out;
}

std::vector<Tensor> ListTensors(const HParams& hp) {
  std::vector<Tensor> out;
  for (int block = -1; block < hp.layers + hp.nextn_layers; ++block) {
    const auto some = ListBlock(hp, block);
    out.insert(out.end(), some.begin(), some.end());
  }
  return out;
}

Weights EmptyWeights(const HParams& hp) {
  Weights weights;
  weights.layers.resize(static_cast<size_t>(hp.layers));
  weights.nextn.resize(static_cast<size_t>(hp.nextn_layers));
  return weights;
}

Site SiteOf(Weights& weights, const HParams& hp, int block) {
  if (block < 0) return {&weights, nullptr, nullptr};
  if (block < hp.layers) return {&weights, &weights.layers[static_cast<size_t>(block)], nullptr};
  NextnWeights& nextn = weights.nextn[static_cast<size_t>(block - hp.layers)];
  return {&weights, &nextn.block, &nextn};
}

std::vector<BoundTensor> ListBound(const Weights& weights) {
  // Only to find the places: nothing is written through it.
  auto& places = const_cast<Weights&>(weights);
  std::vector<BoundTensor> out;
  const auto add = [&](int block, const Site& site) {
    for (const TensorKind& kind : kKinds) {
      if ((kind.where == Where::kGlobal) != (site.layer == nullptr)) continue;
      if (kind.where == Where::kNextn && site.nextn == nullptr) continue;
      BoundTensor bound{&kind, block};
      if (kind.matrix != nullptr) {
        bound.matrix = kind.matrix(site);
        if (bound.matrix->empty()) continue;
      } else {
        bound.vector = kind.vector(site);
        if (bound.vector->empty()) continue;
      }
      out.push_back(bound);
    }
  };
  int block = 0;
  add(-1, {&places, nullptr, nullptr});
  for (Layer& layer : places.layers) add(block++, {&places, &layer, nullptr});
  for (NextnWeights& nextn : places.nextn) add(block++, {&places, &nextn.block, &nextn});
  return out;
}

}  // namespace glint::model
