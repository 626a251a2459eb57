#include "model/fingerprint.h"

#include <array>
#include <span>

#include "base/hash.h"
#include "model/glm_flash/tensors.h"

namespace glint::model {
namespace {

constexpr size_t kWhole = 4096, kStretch = 512, kStretches = 8;

// A field that a later version adds must be added here if it changes what a pass computes. context_length does not.
void AddHParams(Hasher& hash, const HParams& hp) {
  for (const int64_t n :
       {hp.vocab_size,  hp.hidden,         hp.layers,         hp.kda_heads,    hp.kda_head_dim,
        hp.conv_kernel, hp.heads,          hp.q_lora_rank,    hp.kv_lora_rank, hp.qk_head_dim,
        hp.v_head_dim,  hp.index_heads,    hp.index_head_dim, hp.index_topk,   hp.index_kpool,
        hp.dense_ffn,   hp.expert_ffn,     hp.shared_ffn,     hp.experts,      hp.experts_used,
        hp.hc_mult,     hp.sinkhorn_iters, hp.block}) {
    hash.AddNumber(static_cast<uint64_t>(n));
  }
  for (const float x : {hp.gate_lower_bound, hp.routed_scale, hp.swiglu_limit, hp.hc_eps, hp.rms_eps,
                        hp.layer_norm_eps, hp.l2_eps, hp.router_eps}) {
    hash.AddFloat(x);
  }
  hash.AddNumber(hp.norm_topk ? 1 : 0);
  for (const Mixer mixer : hp.mixers) hash.AddNumber(static_cast<uint64_t>(mixer));
  for (const uint8_t moe : hp.moe) hash.AddNumber(moe);
}

// `fill`: null, or says what the bytes of matrices are, which are not here then.
void AddMatrix(Hasher& hash, const Matrix& m, const SyntheticFill* fill) {
  hash.AddNumber(static_cast<uint64_t>(m.type));
  for (const int64_t n : {m.columns, m.rows, m.slices}) hash.AddNumber(static_cast<uint64_t>(n));
  for (int64_t i = 0; m.scales && i < m.slices; ++i) hash.AddFloat(m.scales[i]);
  const uint64_t size = m.bytes();
  std::array<std::byte, kWhole> buffer;
  const auto add = [&](uint64_t offset, size_t count) {
    if (fill == nullptr) return hash.AddBytes({m.data + offset, count});
    const std::span part = std::span(buffer).first(count);
    fill->Read(fill->matrices.at(m.data), offset, part);
    hash.AddBytes(part);
  };
  if (size <= kWhole) return add(0, static_cast<size_t>(size));
  for (size_t i = 0; i < kStretches; ++i) {
    // The product may not fit into 64 bits for no tensor there is; the division first costs nothing either.
    const uint64_t room = size - kStretch;
    add(room / (kStretches - 1) * i + room % (kStretches - 1) * i / (kStretches - 1), kStretch);
  }
}

std::string Fingerprint(const HParams& hp, const Weights& weights, const SyntheticFill* fill, bool mtp) {
  Hasher hash;
  hash.AddText(mtp ? "glint mtp 1" : "glint trunk 1");
  AddHParams(hash, hp);
  // Only to find the places: nothing is written through it.
  auto& places = const_cast<Weights&>(weights);
  for (const Tensor& tensor : ListTensors(hp)) {
    if ((tensor.block == hp.layers) != mtp) continue;
    const Site site = SiteOf(places, hp, tensor.block);
    hash.AddText(tensor.Name());
    if (tensor.kind->matrix != nullptr) {
      AddMatrix(hash, *tensor.kind->matrix(site), fill);
    } else {
      const Vector values = *tensor.kind->vector(site);
      hash.AddNumber(values.size());
      for (const float x : values) hash.AddFloat(x);
    }
  }
  return Hex(hash.Value());
}

}  // namespace

std::string TrunkFingerprint(const HParams& hp, const Weights& weights, const SyntheticFill* fill) {
  return Fingerprint(hp, weights, fill, false);
}

std::string MtpFingerprint(const HParams& hp, const Weights& weights, const SyntheticFill* fill) {
  return weights.nextn.empty() ? std::string() : Fingerprint(hp, weights, fill, true);
}

}  // namespace glint::model
