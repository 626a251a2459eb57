#include "plan/weight_bytes.h"

namespace glint::plan {
namespace {

uint64_t Bytes(const model::Matrix& m) { return m.bytes(); }
uint64_t Bytes(const model::Vector& v) { return v.size_bytes(); }

template <class... Parts>
uint64_t Sum(const Parts&... parts) {
  return (Bytes(parts) + ...);
}

}  // namespace

uint64_t WeightBytes(const model::HParams& hp, const model::Weights& weights, Stage stage, int layer,
                     Step::Site site) {
  static const model::Layer kNone;
  const bool mtp = layer >= 0 && static_cast<size_t>(layer) >= weights.layers.size();
  const bool has_mtp = !weights.nextn.empty();
  const model::Layer& l = layer < 0 ? kNone
                          : !mtp    ? weights.layers[layer]
                          : has_mtp ? weights.nextn[0].block
                                    : kNone;
  const auto used = [&](const model::Matrix& experts) {
    return experts.slices > 0 ? experts.bytes() / experts.slices * static_cast<uint64_t>(hp.experts_used) : 0;
  };
  switch (stage) {
    case Stage::kEmbed:
      return weights.embedding.row_bytes;
    case Stage::kHcPre: {
      const auto& hc = site == Step::Site::kAttn ? l.hc_attn : l.hc_ffn;
      return Sum(hc.fn, hc.base, hc.scale);
    }
    case Stage::kAttnNorm:
      return Sum(l.attn_norm);
    case Stage::kKdaQkv:
      return Sum(l.kda.q, l.kda.k, l.kda.v);
    case Stage::kKdaConv:
      return Sum(l.kda.conv_q, l.kda.conv_k, l.kda.conv_v);
    case Stage::kKdaGates:
      return Sum(l.kda.f_a, l.kda.f_b, l.kda.g_a, l.kda.g_b, l.kda.beta, l.kda.a, l.kda.dt_bias);
    case Stage::kKdaNorm:
      return Sum(l.kda.o_norm);
    case Stage::kKdaOut:
      return Sum(l.kda.out);
    case Stage::kDsaQ:
      return Sum(l.dsa.q_a, l.dsa.q_a_norm, l.dsa.q_b);
    case Stage::kDsaKv:
      return Sum(l.dsa.kv_a, l.dsa.kv_a_norm);
    case Stage::kDsaIndex:
      return Sum(l.dsa.index_q_b, l.dsa.index_k, l.dsa.index_k_norm, l.dsa.index_k_norm_bias,
                 l.dsa.index_proj, l.dsa.index_ape, l.dsa.index_gate);
    case Stage::kDsaAttend:
      return Sum(l.dsa.k_b, l.dsa.v_b);
    case Stage::kDsaOut:
      return Sum(l.dsa.out);
    case Stage::kFfnNorm:
      return Sum(l.ffn_norm);
    case Stage::kFfnGateUp:
      return Sum(l.dense.gate, l.dense.up);
    case Stage::kFfnDown:
      return Sum(l.dense.down);
    case Stage::kMoeRoute:
      return Sum(l.moe.router, l.moe.router_bias);
    case Stage::kMoeGateUp:
      return used(l.moe.gate) + used(l.moe.up);
    case Stage::kMoeDown:
      return used(l.moe.down);
    case Stage::kMoeSharedGateUp:
      return Sum(l.moe.shared_gate, l.moe.shared_up);
    case Stage::kMoeSharedDown:
      return Sum(l.moe.shared_down);
    case Stage::kHeadNorm:
      return Sum(mtp && has_mtp ? weights.nextn[0].shared_head_norm : weights.output_norm);
    case Stage::kHeadLogits:
      return Sum(weights.head);
    case Stage::kMtpInput:
      return has_mtp ? weights.embedding.row_bytes +
                           Sum(weights.nextn[0].enorm, weights.nextn[0].hnorm, weights.nextn[0].eh_proj)
                     : 0;
    case Stage::kKdaRecur:
    case Stage::kDsaSelect:
    case Stage::kHcPost:
    case Stage::kResidual:
    case Stage::kMoeCombine:
    case Stage::kCount:
      break;
  }
  return 0;
}

}  // namespace glint::plan
