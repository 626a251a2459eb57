#include "model/glm_flash/hparams_hf.h"

#include <fmt/core.h>

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <optional>
#include <type_traits>
#include <vector>

#include "base/printable.h"

namespace glint::model {
namespace {

using Names = std::initializer_list<std::string_view>;

// Typed reads that keep the first failure and go on with zeros. Names may be paths:
// "linear_attn_config.head_dim".
class Config {
 public:
  explicit Config(const JsonFile& file) : file_(file) {
    const Json* text = file.root().Find("text_config");
    if (text != nullptr && text->kind() == Json::Kind::kObject) places_.push_back(text);
    places_.push_back(&file.root());
  }

  const Status& status() const { return status_; }
  void Fail(Code code, std::string_view message) {
    if (status_.ok()) status_ = {code, fmt::format("{}: {}", file_.name(), message)};
  }

  // The value of a key if it is there and not null; text_config goes before the top level.
  template <class T>
  std::optional<T> Find(std::string_view name) {
    for (const Json* place : places_) {
      auto value = place->Get<T>(name);
      if (value.ok()) return *value;
      if (value.status().code() == Code::kNotFound) continue;
      Fail(value.status().code(), value.status().message());
      return T{};
    }
    return std::nullopt;
  }

  int64_t Int(Names names, std::optional<int64_t> otherwise = {}) { return Read<int64_t>(names, otherwise); }
  float Float(Names names, std::optional<double> otherwise = {}) {
    return static_cast<float>(Read<double>(names, otherwise));
  }
  bool Bool(Names names, bool otherwise) { return Read<bool>(names, otherwise); }

  // Fails if the key is there with another value.
  template <class T>
  void Only(std::string_view name, T value) {
    const T found = Find<T>(name).value_or(value);
    if (found != value) {
      Fail(Code::kUnsupported, fmt::format("{} is {}, glint runs {}", name, Shown(found), Shown(value)));
    }
  }

 private:
  template <class T>
  static std::string Shown(const T& value) {
    if constexpr (std::is_same_v<T, std::string>) {
      return Quoted(value);
    } else {
      return fmt::format("{}", value);
    }
  }

  template <class T>
  T Read(Names names, std::optional<T> otherwise) {
    std::optional<T> value;
    std::string_view from;
    for (const std::string_view name : names) {
      const std::optional<T> found = Find<T>(name);
      if (!found) continue;
      if (value && *value != *found) {
        Fail(Code::kBadFile, fmt::format("{} is {}, but {} is {}", from, *value, name, *found));
      }
      if (!value) value = found, from = name;
    }
    if (value) return *value;
    if (otherwise) return *otherwise;
    std::string all;
    for (const std::string_view name : names) all += fmt::format("{}{}", all.empty() ? "" : " or ", name);
    Fail(Code::kBadFile, fmt::format("the key {} is missing", all));
    return T{};
  }

  const JsonFile& file_;
  std::vector<const Json*> places_;
  Status status_;
};

constexpr int64_t kMostLayers = 4096;

// A list by layer has an entry for each, and may go on with the MTP block's. One that is longer still belongs to a deeper model
// than the one stated, which would run without its last layers and say nothing.
bool CheckEntries(Config& config, const HParams& hp, std::string_view key, size_t entries) {
  const auto layers = static_cast<size_t>(hp.layers);
  if (entries == layers || entries == layers + 1) return true;
  config.Fail(Code::kBadFile,
              fmt::format("{} has {} entries, wanted one for each of {} layers", key, entries, layers));
  return false;
}

void ReadMixers(Config& config, HParams& hp) {
  const auto layers = static_cast<size_t>(hp.layers);
  if (const auto types = config.Find<std::vector<std::string>>("layer_types")) {
    if (!CheckEntries(config, hp, "layer_types", types->size())) return;
    for (size_t i = 0; i < layers; ++i) {
      const std::string& type = (*types)[i];
      if (type == "linear_attention") {
        hp.mixers.push_back(Mixer::kKda);
      } else if (type == "deepseek_sparse_attention" || type == "full_attention") {
        hp.mixers.push_back(Mixer::kDsa);
      } else {
        return config.Fail(
            Code::kUnsupported,
            fmt::format("layer_types[{}]: wanted linear_attention or deepseek_sparse_attention", i));
      }
    }
    return;
  }
  const auto kda = config.Find<std::vector<int64_t>>("linear_attn_config.kda_layers");
  if (!kda) {
    return config.Fail(
        Code::kBadFile,
        "the layer schedule is missing: neither layer_types nor linear_attn_config.kda_layers");
  }
  // Lists of this kind count from 0 or from 1; together with the other list they show which.
  const auto dsa = config.Find<std::vector<int64_t>>("linear_attn_config.full_attn_layers")
                       .value_or(std::vector<int64_t>{});
  std::vector<int64_t> all = *kda;
  all.insert(all.end(), dsa.begin(), dsa.end());
  std::sort(all.begin(), all.end());
  const int64_t first = all.empty() ? 0 : all.front();
  for (size_t i = 0; i < layers; ++i) {
    if (all.size() != layers || first > 1 || all[i] != static_cast<int64_t>(i) + first) {
      return config.Fail(
          Code::kBadFile,
          fmt::format(
              "linear_attn_config: kda_layers and full_attn_layers do not name each of {} layers once",
              layers));
    }
  }
  hp.mixers.assign(layers, Mixer::kDsa);
  for (const int64_t i : *kda) hp.mixers[static_cast<size_t>(i - first)] = Mixer::kKda;
}

void ReadFfns(Config& config, HParams& hp) {
  const auto layers = static_cast<size_t>(hp.layers);
  if (const auto types = config.Find<std::vector<std::string>>("mlp_layer_types")) {
    if (!CheckEntries(config, hp, "mlp_layer_types", types->size())) return;
    for (size_t i = 0; i < layers; ++i) {
      if ((*types)[i] != "dense" && (*types)[i] != "sparse") {
        return config.Fail(Code::kUnsupported, fmt::format("mlp_layer_types[{}]: wanted dense or sparse", i));
      }
      hp.moe.push_back((*types)[i] == "sparse");
    }
  } else {
    const int64_t dense = config.Int({"first_k_dense_replace"});
    for (int64_t i = 0; i < hp.layers; ++i) hp.moe.push_back(i >= dense);
  }
  hp.dense_ffn = config.Int({"intermediate_size"});
  hp.experts = config.Int({"n_routed_experts", "num_local_experts"});
  hp.experts_used = config.Int({"num_experts_per_tok"});
  hp.expert_ffn = config.Int({"moe_intermediate_size"});
  const int64_t shared = config.Int({"n_shared_experts"}, 1);
  if (shared < 1 || shared > 1024) {
    config.Fail(Code::kUnsupported,
                fmt::format("n_shared_experts is {}, glint runs models with shared experts", shared));
  }
  hp.shared_ffn =
      hp.expert_ffn > (int64_t{1} << 40) ? 0 : hp.expert_ffn * std::clamp<int64_t>(shared, 1, 1024);
  hp.routed_scale = config.Float({"routed_scaling_factor"});
  hp.norm_topk = config.Bool({"norm_topk_prob"}, true);
  hp.swiglu_limit = config.Float({"swiglu_limit"}, std::numeric_limits<float>::infinity());
  config.Only<int64_t>("n_group", 1);
  config.Only<std::string>("scoring_func", "sigmoid");
  config.Only<std::string>("hidden_act", "silu");
}

void ReadKda(Config& config, HParams& hp) {
  hp.kda_heads = config.Int({"linear_num_heads", "linear_attn_config.num_heads"});
  hp.kda_head_dim = config.Int({"linear_head_dim", "linear_attn_config.head_dim"});
  hp.conv_kernel = config.Int({"linear_conv_kernel_dim", "linear_attn_config.short_conv_kernel_size"});
  hp.gate_lower_bound = config.Float({"linear_lower_bound", "linear_attn_config.gate_lower_bound"});
}

void ReadDsa(Config& config, HParams& hp) {
  hp.heads = config.Int({"num_attention_heads"});
  hp.q_lora_rank = config.Int({"q_lora_rank"});
  hp.kv_lora_rank = config.Int({"kv_lora_rank"});
  hp.qk_head_dim = config.Int({"qk_nope_head_dim"});
  hp.v_head_dim = config.Int({"v_head_dim"});
  hp.index_heads = config.Int({"index_n_heads"});
  hp.index_head_dim = config.Int({"index_head_dim"});
  hp.index_topk = config.Int({"index_topk"});
  hp.index_kpool =
      config.Int({"index_kpool"});  // the class default, 16, is not the released model's 4: never assumed
  hp.block = GridBlock(hp.index_kpool);
  config.Only<int64_t>("qk_rope_head_dim", 0);
  config.Only("index_kpool_compress", true);
  config.Only("index_kpool_always_select_tail", true);
  config.Only("mla_use_nope", true);
  config.Only("attention_bias", false);
  config.Only("tie_word_embeddings", false);
  if (const auto types = config.Find<std::vector<std::string>>("indexer_types")) {
    for (const std::string& type : *types) {
      if (type != "full")
        config.Fail(Code::kUnsupported,
                    "indexer_types: glint runs no shared indexers, every layer must be full");
    }
  }
}

}  // namespace

Result<HParams> ReadHfConfig(const JsonFile& file, std::string& mtp_flaw) {
  const std::string& path = file.name();
  const auto type = file.Get<std::string>("model_type");
  if (!type.ok() || !type->starts_with("glm5_next")) {
    return Status(Code::kUnsupported,
                  fmt::format("{}: model_type is {}; glint runs glm5_next", path,
                              type.ok() ? Quoted(*type) : std::string("missing or no string")));
  }
  Config config(file);
  HParams hp;
  hp.vocab_size = config.Int({"vocab_size"});
  hp.hidden = config.Int({"hidden_size"});
  hp.layers = config.Int({"num_hidden_layers"});
  hp.context_length = config.Int({"max_position_embeddings"});
  if (hp.layers < 1 || hp.layers > kMostLayers) {
    config.Fail(Code::kBadFile,
                fmt::format("num_hidden_layers is {}, wanted 1 to {}", hp.layers, kMostLayers));
    return config.status();
  }
  const int64_t nextn = config.Int({"num_nextn_predict_layers"}, 0);
  if (nextn < 0)
    config.Fail(Code::kBadFile, fmt::format("num_nextn_predict_layers is {}, wanted 0 or 1", nextn));
  if (nextn > 1) mtp_flaw = fmt::format("{} states {} MTP blocks, glint runs one", path, nextn);
  hp.nextn_layers = std::min<int64_t>(nextn, 1);
  ReadMixers(config, hp);
  ReadKda(config, hp);
  ReadDsa(config, hp);
  ReadFfns(config, hp);
  hp.hc_mult = config.Int({"hc_mult"});
  hp.sinkhorn_iters = config.Int({"hc_sinkhorn_iters"});
  hp.hc_eps = config.Float({"hc_eps"});
  hp.rms_eps = config.Float({"rms_norm_eps"});
  if (!config.status().ok()) return config.status();
  if (const Status s = Check(hp); !s.ok()) return Status(s.code(), fmt::format("{}: {}", path, s.message()));
  return hp;
}

}  // namespace glint::model
