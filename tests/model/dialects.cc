#include "tests/model/dialects.h"

#include <fmt/core.h>

#include <bit>
#include <cmath>

#include "model/glm_flash/tensors.h"

namespace glint::model {
namespace {

struct Piece {
  std::string name;
  uint32_t type;
  std::vector<uint64_t> ne;
  std::vector<std::byte> bytes;
};

std::vector<std::byte> FloatBytes(std::span<const float> values) {
  const auto bytes = std::as_bytes(values);
  return {bytes.begin(), bytes.end()};
}

// The float whose exponential, rounded to float, is `a`.
float LogOf(float a) {
  const auto guess = std::bit_cast<int32_t>(static_cast<float>(std::log(static_cast<double>(a))));
  for (int32_t step = 0; step < 64; ++step) {
    for (const int32_t bits : {guess + step, guess - step}) {
      const auto candidate = std::bit_cast<float>(bits);
      if (static_cast<float>(std::exp(static_cast<double>(candidate))) == a) return candidate;
    }
  }
  return std::bit_cast<float>(guess);
}

class DialectWriter {
 public:
  DialectWriter(const ModelData& model, const DialectOptions& options)
      : hp_(model.hparams), w_(model.weights), o_(options), arch_(Architecture()) {}

  std::string Architecture() const {
    return o_.dialect == Dialect::kA || o_.dialect == Dialect::kB ? "glm5next" : "glm5-next";
  }
  bool Old() const { return o_.dialect == Dialect::kOldC; }
  bool Native() const { return o_.dialect == Dialect::kD; }

  void Keys(gguf::Writer& out) {
    out.SetString("general.architecture", arch_);
    out.SetString("general.name", "written by a test");
    const int64_t nextn = o_.mtp ? hp_.nextn_layers : 0, blocks = hp_.layers + nextn;
    U32(out, "block_count", blocks);
    if (nextn > 0) U32(out, "nextn_predict_layers", nextn);
    U32(out, "embedding_length", hp_.hidden);
    U32(out, "feed_forward_length", hp_.dense_ffn);
    U32(out, "attention.head_count", hp_.heads);
    F32(out, "attention.layer_norm_rms_epsilon", hp_.rms_eps);
    F32(out, "attention.layer_norm_epsilon", hp_.layer_norm_eps);
    U32(out, "attention.q_lora_rank", hp_.q_lora_rank);
    U32(out, "attention.kv_lora_rank", hp_.kv_lora_rank);
    U32(out, "vocab_size", hp_.vocab_size);
    U32(out, "expert_count", hp_.experts);
    U32(out, "expert_used_count", hp_.experts_used);
    U32(out, "expert_gating_func", 2);
    U32(out, "expert_feed_forward_length", hp_.expert_ffn);
    U32(out, "expert_shared_count", hp_.shared_ffn / hp_.expert_ffn);
    F32(out, "expert_weights_scale", hp_.routed_scale);
    if (Keep("expert_weights_norm")) out.SetBool(arch_ + ".expert_weights_norm", hp_.norm_topk);
    int64_t dense = 0;
    for (const uint8_t moe : hp_.moe) dense += moe ? 0 : 1;
    U32(out, "leading_dense_block_count", dense);
    U32(out, "attention.indexer.head_count", hp_.index_heads);
    U32(out, "attention.indexer.key_length", hp_.index_head_dim);
    U32(out, "attention.indexer.top_k", hp_.index_topk);
    U32(out, "hyper_connection.count", hp_.hc_mult);
    U32(out, "hyper_connection.sinkhorn_iterations", hp_.sinkhorn_iters);
    F32(out, "hyper_connection.epsilon", hp_.hc_eps);

    std::vector<uint32_t> schedule;
    for (const Mixer mixer : hp_.mixers) schedule.push_back(mixer == Mixer::kDsa);
    if (nextn > 0 && !Old()) schedule.push_back(1);
    const std::string schedule_key = Native() ? "layer_types" : "attention.head_count_kv";
    if (Keep(schedule_key)) {
      if (o_.dialect == Dialect::kB) {
        out.SetI32s(arch_ + "." + schedule_key, {schedule.begin(), schedule.end()});
      } else {
        out.SetU32s(arch_ + "." + schedule_key, schedule);
      }
    }
    if (Native()) {
      NativeKeys(out);
    } else {
      CommonKeys(out, blocks);
    }
    if (o_.more) o_.more(out, arch_);
  }

  std::vector<Piece> Pieces() const {
    std::vector<Piece> out;
    Matrix2(out, "token_embd.weight", w_.embedding);
    Vector1(out, "output_norm.weight", w_.output_norm);
    Matrix2(out, "output.weight", w_.head);
    for (size_t i = 0; i < w_.layers.size(); ++i) {
      const Layer& layer = w_.layers[i];
      const std::string b = fmt::format("blk.{}.", i);
      for (const auto& [site, name] : {std::pair{&layer.hc_attn, "attn"}, std::pair{&layer.hc_ffn, "ffn"}}) {
        Matrix2(out, fmt::format("{}hc_{}_fn.weight", b, name), site->fn);
        Vector1(out, fmt::format("{}hc_{}_base.weight", b, name), site->base);
        Vector1(out, fmt::format("{}hc_{}_scale.weight", b, name), site->scale);
      }
      Block(out, b, layer, hp_.mixers[i] == Mixer::kKda, hp_.moe[i] != 0);
    }
    for (size_t i = 0; o_.mtp && i < w_.nextn.size(); ++i) {
      const NextnWeights& nextn = w_.nextn[i];
      const std::string b = fmt::format("blk.{}.", w_.layers.size() + i);
      Block(out, b, nextn.block, false, true);
      Matrix2(out, b + "nextn.eh_proj.weight", nextn.eh_proj);
      Vector1(out, b + "nextn.enorm.weight", nextn.enorm);
      Vector1(out, b + "nextn.hnorm.weight", nextn.hnorm);
      Vector1(out, b + "nextn.shared_head_norm.weight", nextn.shared_head_norm);
    }
    std::erase_if(out, [&](const Piece& piece) { return o_.drop.contains(piece.name); });
    return out;
  }

 private:
  bool Keep(const std::string& key) const { return !o_.drop.contains(key); }
  void U32(gguf::Writer& out, const std::string& key, int64_t value) const {
    if (Keep(key)) out.SetU32(arch_ + "." + key, static_cast<uint32_t>(value));
  }
  void F32(gguf::Writer& out, const std::string& key, float value) const {
    if (Keep(key)) out.SetF32(arch_ + "." + key, value);
  }

  void CommonKeys(gguf::Writer& out, int64_t blocks) const {
    U32(out, "context_length", hp_.context_length);
    U32(out, "attention.key_length", hp_.kv_lora_rank);
    U32(out, "attention.value_length", hp_.kv_lora_rank);
    U32(out, "attention.key_length_mla", hp_.qk_head_dim);
    U32(out, "attention.value_length_mla", hp_.v_head_dim);
    U32(out, "ssm.conv_kernel", hp_.conv_kernel);
    for (const char* key : {"swiglu_clamp_exp", "swiglu_clamp_shexp"}) {
      if (!Keep(key) || std::isinf(hp_.swiglu_limit)) continue;
      if (o_.scalar_clamp) {
        out.SetF32(arch_ + "." + key, hp_.swiglu_limit);
      } else {
        out.SetF32s(arch_ + "." + key, std::vector<float>(static_cast<size_t>(blocks), hp_.swiglu_limit));
      }
    }
    if (o_.dialect == Dialect::kB) {
      U32(out, "attention.indexer.block_size", hp_.index_kpool);
      U32(out, "ssm.inner_size", hp_.kda_width());
      U32(out, "ssm.state_size", hp_.kda_head_dim);
      U32(out, "ssm.group_count", hp_.kda_heads);
      F32(out, "rope.freq_base", 1e6f);  // inherited, without effect
    } else {
      U32(out, "attention.indexer.kpool", hp_.index_kpool);
      U32(out, "kda.head_dim", hp_.kda_head_dim);
      F32(out, "kda.gate_lower_bound", hp_.gate_lower_bound);
    }
    if (o_.dialect == Dialect::kA) U32(out, "expert_shared_feed_forward_length", hp_.shared_ffn);
    if (o_.dialect == Dialect::kC) {
      out.SetBool(arch_ + ".attention.indexer.kpool_select_tail", true);
      out.SetBool(arch_ + ".attention.indexer.index_share_mtp", true);
      out.SetStrings(arch_ + ".attention.indexer.types",
                     std::vector<std::string>(static_cast<size_t>(blocks), "full"));
    }
  }

  void NativeKeys(gguf::Writer& out) const {
    U32(out, "trunk_block_count", hp_.layers);
    if (Keep("context_length"))
      out.SetU64(arch_ + ".context_length", static_cast<uint64_t>(hp_.context_length));
    if (!std::isinf(hp_.swiglu_limit)) F32(out, "swiglu_limit", hp_.swiglu_limit);
    U32(out, "attention.key_length", hp_.qk_head_dim);
    U32(out, "attention.value_length", hp_.v_head_dim);
    U32(out, "attention.rope_dimension_count", 0);
    U32(out, "attention.indexer.pool_size", hp_.index_kpool);
    U32(out, "linear_attention.head_count", hp_.kda_heads);
    U32(out, "linear_attention.head_dimension", hp_.kda_head_dim);
    U32(out, "linear_attention.conv_kernel", hp_.conv_kernel);
    F32(out, "linear_attention.gate_lower_bound", hp_.gate_lower_bound);
    out.SetBool(arch_ + ".native_fp8", false);
  }

  void Matrix2(std::vector<Piece>& out, std::string name, const Matrix& m) const {
    std::vector<uint64_t> ne = {static_cast<uint64_t>(m.columns), static_cast<uint64_t>(m.rows)};
    out.push_back(
        {std::move(name), static_cast<uint32_t>(m.type), std::move(ne), {m.data, m.data + m.bytes()}});
  }
  void Stack(std::vector<Piece>& out, std::string name, const Matrix& m) const {
    Matrix2(out, std::move(name), m);
    out.back().ne.push_back(static_cast<uint64_t>(m.slices));
  }
  void Vector1(std::vector<Piece>& out, std::string name, Vector v) const {
    out.push_back({std::move(name), 0, {v.size()}, FloatBytes(v)});
  }
  void Conv(std::vector<Piece>& out, std::string name, Vector v) const {
    Vector1(out, std::move(name), v);
    const auto taps = static_cast<uint64_t>(hp_.conv_kernel);
    out.back().ne = {taps, 1, v.size() / taps, 1};
    if (Old() || Native()) out.back().ne.pop_back();
  }

  void Kda(std::vector<Piece>& out, const std::string& b, const KdaWeights& k) const {
    const bool d = Native();
    const auto name = [&](const char* ours, const char* native) { return b + (d ? native : ours); };
    Matrix2(out, name("attn_q.weight", "kda_q.weight"), k.q);
    Matrix2(out, name("attn_k.weight", "kda_k.weight"), k.k);
    Matrix2(out, name("attn_v.weight", "kda_v.weight"), k.v);
    Conv(out, name("ssm_conv1d_q.weight", "kda_q_conv.weight"), k.conv_q);
    Conv(out, name("ssm_conv1d_k.weight", "kda_k_conv.weight"), k.conv_k);
    Conv(out, name("ssm_conv1d_v.weight", "kda_v_conv.weight"), k.conv_v);
    Matrix2(out, name("ssm_f_a.weight", "kda_f_a.weight"), k.f_a);
    Matrix2(out, name("ssm_f_b.weight", "kda_f_b.weight"), k.f_b);
    Matrix2(out, name("ssm_g_a.weight", "kda_g_a.weight"), k.g_a);
    Matrix2(out, name("ssm_g_b.weight", "kda_g_b.weight"), k.g_b);
    Matrix2(out, name("ssm_beta.weight", "kda_beta.weight"), k.beta);
    std::vector<float> a(k.a.begin(), k.a.end());
    for (float& value : a) value = d ? LogOf(value) : -value;
    Vector1(out, name("ssm_a", "kda_a_log.weight"), a);
    if (o_.a_as_row) out.back().ne = {1, a.size()};
    Vector1(out, name("ssm_dt.bias", "kda_dt_bias.weight"), k.dt_bias);
    Vector1(out, name("ssm_norm.weight", "kda_o_norm.weight"), k.o_norm);
    Matrix2(out, name("attn_output.weight", "kda_output.weight"), k.out);
  }

  void Dsa(std::vector<Piece>& out, const std::string& b, const DsaWeights& d) const {
    Matrix2(out, b + "attn_q_a.weight", d.q_a);
    Vector1(out, b + "attn_q_a_norm.weight", d.q_a_norm);
    Matrix2(out, b + "attn_q_b.weight", d.q_b);
    Matrix2(out, b + "attn_kv_a_mqa.weight", d.kv_a);
    Vector1(out, b + "attn_kv_a_norm.weight", d.kv_a_norm);
    Stack(out, b + "attn_k_b.weight", d.k_b);
    Stack(out, b + "attn_v_b.weight", d.v_b);
    Matrix2(out, b + "attn_output.weight", d.out);
    Matrix2(out, b + "indexer.attn_q_b.weight", d.index_q_b);
    Matrix2(out, b + "indexer.attn_k.weight", d.index_k);
    Vector1(out, b + "indexer.k_norm.weight", d.index_k_norm);
    Vector1(out, b + "indexer.k_norm.bias", d.index_k_norm_bias);
    Matrix2(out, b + "indexer.proj.weight", d.index_proj);
    const char* ape = Native() ? "indexer.pool_ape.weight"
                      : Old()  ? "indexer.kpool_ape.weight"
                               : "indexer_compressor_ape.weight";
    const char* gate = Native() ? "indexer.pool_gate.weight"
                       : Old()  ? "indexer.kpool_gate.weight"
                                : "indexer_compressor_gate.weight";
    Vector1(out, b + ape, d.index_ape);
    const auto width = static_cast<uint64_t>(hp_.index_head_dim);
    out.back().ne = {width, d.index_ape.size() / width};
    Matrix2(out, b + gate, d.index_gate);
  }

  void Block(std::vector<Piece>& out, const std::string& b, const Layer& layer, bool kda, bool moe) const {
    Vector1(out, b + "attn_norm.weight", layer.attn_norm);
    Vector1(out, b + "ffn_norm.weight", layer.ffn_norm);
    if (kda) {
      Kda(out, b, layer.kda);
    } else {
      Dsa(out, b, layer.dsa);
    }
    if (!moe) {
      Matrix2(out, b + "ffn_gate.weight", layer.dense.gate);
      Matrix2(out, b + "ffn_up.weight", layer.dense.up);
      Matrix2(out, b + "ffn_down.weight", layer.dense.down);
      return;
    }
    Matrix2(out, b + "ffn_gate_inp.weight", layer.moe.router);
    Vector1(out, b + "exp_probs_b.bias", layer.moe.router_bias);
    Stack(out, b + "ffn_gate_exps.weight", layer.moe.gate);
    Stack(out, b + "ffn_up_exps.weight", layer.moe.up);
    Stack(out, b + "ffn_down_exps.weight", layer.moe.down);
    Matrix2(out, b + "ffn_gate_shexp.weight", layer.moe.shared_gate);
    Matrix2(out, b + "ffn_up_shexp.weight", layer.moe.shared_up);
    Matrix2(out, b + "ffn_down_shexp.weight", layer.moe.shared_down);
  }

  const HParams& hp_;
  const Weights& w_;
  const DialectOptions& o_;
  std::string arch_;
};

void AddPiece(const Piece& piece, gguf::Writer& writer) {
  writer.AddTensor(piece.name, piece.type, piece.ne, piece.bytes.size(),
                   [&piece](const gguf::Writer::Sink& sink) { return sink(piece.bytes); });
}

}  // namespace

const char* Name(Dialect dialect) {
  switch (dialect) {
    case Dialect::kA:
      return "A";
    case Dialect::kB:
      return "B";
    case Dialect::kC:
      return "C";
    case Dialect::kOldC:
      return "OldC";
    case Dialect::kD:
      return "D";
  }
  return "?";
}

Result<std::vector<std::string>> WriteDialect(const ModelData& model, const std::string& stem,
                                              const DialectOptions& options) {
  DialectWriter dialect(model, options);
  const auto pieces = dialect.Pieces();
  std::vector<std::string> paths;
  for (int shard = 0; shard < options.shards; ++shard) {
    gguf::Writer writer;
    if (shard == 0) dialect.Keys(writer);
    if (options.shards > 1) {
      writer.SetU16("split.no", static_cast<uint16_t>(shard));
      writer.SetU16("split.count", static_cast<uint16_t>(options.shards));
      writer.SetI32("split.tensors.count", static_cast<int32_t>(pieces.size()));
    }
    for (size_t i = 0; i < pieces.size(); ++i) {
      // Contiguous runs over the shards after the first, which has none.
      const size_t holders = static_cast<size_t>(options.shards) - 1;
      if (options.shards == 1 || 1 + i * holders / pieces.size() == static_cast<size_t>(shard))
        AddPiece(pieces[i], writer);
    }
    paths.push_back(options.shards == 1
                        ? stem + ".gguf"
                        : fmt::format("{}-{:05}-of-{:05}.gguf", stem, shard + 1, options.shards));
    if (Status s = writer.Write(paths.back(), {}); !s.ok()) return s;
  }
  return paths;
}

std::vector<Bytes> AllTensors(const ModelData& model) {
  std::vector<Bytes> out;
  Weights weights = model.weights;
  for (const Tensor& tensor : ListTensors(model.hparams)) {
    const Site site = SiteOf(weights, model.hparams, tensor.block);
    if (tensor.kind->matrix != nullptr) {
      const Matrix& m = *tensor.kind->matrix(site);
      out.push_back({tensor.Name(), m.type, {m.columns, m.rows, m.slices}, {m.data, m.data + m.bytes()}});
    } else {
      const Vector v = *tensor.kind->vector(site);
      out.push_back({tensor.Name(), quant::Type::kF32, {std::ssize(v)}, FloatBytes(v)});
    }
  }
  return out;
}

}  // namespace glint::model
