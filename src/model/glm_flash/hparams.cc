#include "model/glm_flash/hparams.h"

#include <fmt/core.h>

#include <cmath>
#include <initializer_list>

#include "base/checked.h"

namespace glint::model {
namespace {

// Far above any released size, far below where products of a few of them overflow unnoticed.
constexpr int64_t kLargest = int64_t{1} << 31;
constexpr int64_t kMostLayers = 4096;
constexpr int64_t kMostStreams = 16;
constexpr int64_t kMostSinkhorn = 1000;
constexpr int64_t kMostTaps = 64;

Status Bad(std::string message) { return {Code::kBadFile, std::move(message)}; }

Status InRange(std::string_view name, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return {};
  return Bad(fmt::format("{} is {}, wanted {} to {}", name, value, low, high));
}

struct Named {
  std::string_view name;
  int64_t value;
};

Status Positive(std::initializer_list<Named> sizes) {
  for (const Named& size : sizes) {
    if (Status s = InRange(size.name, size.value, 1, kLargest); !s.ok()) return s;
  }
  return {};
}

// The bytes of a tensor in its widest form (fp32) must be a number that fits.
Status Fits(std::string_view what, std::initializer_list<int64_t> factors) {
  uint64_t product = sizeof(float);
  for (const int64_t factor : factors) {
    const auto next = CheckedMul<uint64_t>(product, static_cast<uint64_t>(factor));
    if (!next || *next > (uint64_t{1} << 62)) return Bad(fmt::format("{} is too large to address", what));
    product = *next;
  }
  return {};
}

Status FiniteEpsilon(std::string_view name, float value, bool zero_allowed) {
  if (std::isfinite(value) && (value > 0 || (zero_allowed && value == 0))) return {};
  return Bad(fmt::format("{} is {}, wanted a finite number {} 0", name, value,
                         zero_allowed ? "not below" : "above"));
}

Status CheckSchedule(const HParams& hp) {
  const auto layers = static_cast<size_t>(hp.layers);
  if (hp.mixers.size() != layers) {
    return Bad(fmt::format("the layer schedule has {} entries, wanted one for each of {} layers",
                           hp.mixers.size(), hp.layers));
  }
  if (hp.moe.size() != layers) {
    return Bad(fmt::format("the FFN schedule has {} entries, wanted one for each of {} layers", hp.moe.size(),
                           hp.layers));
  }
  return {};
}

Status CheckKda(const HParams& hp) {
  if (Status s = Positive({{"KDA heads", hp.kda_heads}, {"KDA head width", hp.kda_head_dim}}); !s.ok())
    return s;
  if (Status s = InRange("KDA convolution width", hp.conv_kernel, 1, kMostTaps); !s.ok()) return s;
  if (!std::isfinite(hp.gate_lower_bound) || hp.gate_lower_bound >= 0) {
    return Bad(
        fmt::format("KDA gate lower bound is {}, wanted a finite number below 0", hp.gate_lower_bound));
  }
  // exp of the decay cumulated over a block and its reciprocal must both be finite and normal.
  const double strongest = static_cast<double>(hp.block) * -static_cast<double>(hp.gate_lower_bound);
  if (strongest >= 87) {
    return Bad(fmt::format(
        "KDA gate lower bound {} over a block of {} tokens decays by e^-{}, wanted less than e^-87",
        hp.gate_lower_bound, hp.block, strongest));
  }
  return Fits("a KDA projection", {hp.kda_heads, hp.kda_head_dim, hp.hidden, 3});
}

Status CheckDsa(const HParams& hp) {
  if (Status s = Positive({{"attention heads", hp.heads},
                           {"q LoRA rank", hp.q_lora_rank},
                           {"kv LoRA rank", hp.kv_lora_rank},
                           {"query and key head width", hp.qk_head_dim},
                           {"value head width", hp.v_head_dim},
                           {"indexer heads", hp.index_heads},
                           {"indexer head width", hp.index_head_dim},
                           {"indexer top-k", hp.index_topk},
                           {"indexer pool size", hp.index_kpool}});
      !s.ok()) {
    return s;
  }
  if (hp.index_topk % hp.index_kpool != 0) {
    return Bad(fmt::format("indexer top-k is {} tokens, wanted a multiple of the pool size {}", hp.index_topk,
                           hp.index_kpool));
  }
  if (hp.block != GridBlock(hp.index_kpool)) {
    return Bad(fmt::format("grid block is {} tokens, wanted {} for pools of {}", hp.block,
                           GridBlock(hp.index_kpool), hp.index_kpool));
  }
  if (Status s = Fits("the query projection", {hp.heads, hp.qk_head_dim, hp.q_lora_rank}); !s.ok()) return s;
  if (Status s = Fits("the latent projections", {hp.heads, hp.qk_head_dim, hp.kv_lora_rank}); !s.ok())
    return s;
  if (Status s = Fits("the latent projections", {hp.heads, hp.v_head_dim, hp.kv_lora_rank}); !s.ok())
    return s;
  if (Status s = Fits("the attention output", {hp.heads, hp.v_head_dim, hp.hidden}); !s.ok()) return s;
  return Fits("the indexer's query projection", {hp.index_heads, hp.index_head_dim, hp.q_lora_rank});
}

Status CheckFfn(const HParams& hp) {
  bool dense = false, moe = hp.nextn_layers > 0;
  for (const uint8_t is_moe : hp.moe) (is_moe ? moe : dense) = true;
  if (dense) {
    if (Status s = Positive({{"dense FFN width", hp.dense_ffn}}); !s.ok()) return s;
    if (Status s = Fits("a dense FFN matrix", {hp.dense_ffn, hp.hidden}); !s.ok()) return s;
  }
  if (moe) {
    if (Status s = Positive({{"expert FFN width", hp.expert_ffn},
                             {"shared expert FFN width", hp.shared_ffn},
                             {"experts", hp.experts},
                             {"experts used", hp.experts_used}});
        !s.ok()) {
      return s;
    }
    if (hp.experts_used > hp.experts) {
      return Bad(fmt::format("experts used is {}, wanted at most the {} experts there are", hp.experts_used,
                             hp.experts));
    }
    if (Status s = Fits("an expert stack", {hp.experts, hp.expert_ffn, hp.hidden}); !s.ok()) return s;
    if (Status s = Fits("a shared expert matrix", {hp.shared_ffn, hp.hidden}); !s.ok()) return s;
  }
  if (!std::isfinite(hp.routed_scale) || hp.routed_scale == 0) {
    return Bad(
        fmt::format("routed expert scale is {}, wanted a finite number other than 0", hp.routed_scale));
  }
  if (!(hp.swiglu_limit > 0)) {
    return Bad(fmt::format("SwiGLU limit is {}, wanted a number above 0", hp.swiglu_limit));
  }
  return {};
}

}  // namespace

int64_t GridBlock(int64_t kpool) {
  constexpr int64_t kRows = 16;
  return kpool < 1 || kpool > kRows ? kRows : kRows / kpool * kpool;
}

Status Check(const HParams& hp) {
  if (Status s = Positive({{"vocabulary size", hp.vocab_size}, {"hidden size", hp.hidden}}); !s.ok())
    return s;
  if (Status s = InRange("layers", hp.layers, 1, kMostLayers); !s.ok()) return s;
  if (Status s = InRange("MTP blocks", hp.nextn_layers, 0, 1); !s.ok()) return s;
  if (Status s = InRange("context length", hp.context_length, 1, kLargest); !s.ok()) return s;
  if (Status s = Fits("the embedding", {hp.vocab_size, hp.hidden}); !s.ok()) return s;
  if (Status s = CheckSchedule(hp); !s.ok()) return s;
  if (Status s = CheckDsa(hp); !s.ok()) return s;  // before KDA: the block follows from the pool
  if (Status s = CheckKda(hp); !s.ok()) return s;
  if (Status s = CheckFfn(hp); !s.ok()) return s;
  if (Status s = InRange("residual streams", hp.hc_mult, 1, kMostStreams); !s.ok()) return s;
  if (Status s = InRange("Sinkhorn iterations", hp.sinkhorn_iters, 1, kMostSinkhorn); !s.ok()) return s;
  if (Status s = FiniteEpsilon("hyper-connection epsilon", hp.hc_eps, true); !s.ok()) return s;
  if (Status s = FiniteEpsilon("RMSNorm epsilon", hp.rms_eps, false); !s.ok()) return s;
  if (Status s = FiniteEpsilon("LayerNorm epsilon", hp.layer_norm_eps, false); !s.ok()) return s;
  if (Status s = FiniteEpsilon("l2 norm epsilon", hp.l2_eps, false); !s.ok()) return s;
  return FiniteEpsilon("router epsilon", hp.router_eps, true);
}

}  // namespace glint::model
