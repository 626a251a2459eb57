#include "model/glm_flash/hparams_hf.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/json.hpp>
#include <initializer_list>
#include <limits>
#include <optional>
#include <vector>

namespace glint::model {
namespace {

namespace json = boost::json;
using Names = std::initializer_list<std::string_view>;

// Typed reads that keep the first failure and go on with zeros. Names may be paths: "linear_attn_config.head_dim".
class Config {
 public:
  Config(const json::object& top, std::string path) : path_(std::move(path)) {
    if (const auto* text = top.if_contains("text_config"); text != nullptr && text->is_object()) {
      places_.push_back(&text->get_object());
    }
    places_.push_back(&top);
  }

  const Status& status() const { return status_; }
  void Fail(Code code, std::string message) {
    if (status_.ok()) status_ = {code, fmt::format("{}: {}", path_, message)};
  }

  // The first of the spellings that is there and not null; text_config goes before the top level.
  const json::value* Find(std::string_view name) const {
    for (const json::object* place : places_) {
      if (const json::value* found = Inside(*place, name)) return found;
    }
    return nullptr;
  }

  int64_t Int(Names names, std::optional<int64_t> otherwise = {}) {
    return Read<int64_t>(names, otherwise, "an integer", [](const json::value& v) -> std::optional<int64_t> {
      if (v.is_int64()) return v.get_int64();
      return std::nullopt;
    });
  }
  float Float(Names names, std::optional<float> otherwise = {}) {
    return Read<float>(names, otherwise, "a number", [](const json::value& v) -> std::optional<float> {
      if (v.is_double()) return static_cast<float>(v.get_double());
      if (v.is_int64()) return static_cast<float>(v.get_int64());
      return std::nullopt;
    });
  }
  bool Bool(Names names, std::optional<bool> otherwise = {}) {
    return Read<bool>(names, otherwise, "true or false", [](const json::value& v) -> std::optional<bool> {
      if (v.is_bool()) return v.get_bool();
      return std::nullopt;
    });
  }
  std::optional<std::vector<std::string>> Strings(std::string_view name) {
    const json::value* found = Find(name);
    if (found == nullptr) return std::nullopt;
    std::vector<std::string> out;
    if (found->is_array()) {
      for (const json::value& v : found->get_array()) {
        if (v.is_string()) out.emplace_back(v.get_string());
      }
      if (out.size() == found->get_array().size()) return out;
    }
    Fail(Code::kBadFile, fmt::format("{}: wanted a list of strings", name));
    return std::vector<std::string>{};
  }
  std::optional<std::vector<int64_t>> Ints(std::string_view name) {
    const json::value* found = Find(name);
    if (found == nullptr) return std::nullopt;
    std::vector<int64_t> out;
    if (found->is_array()) {
      for (const json::value& v : found->get_array()) {
        if (v.is_int64()) out.push_back(v.get_int64());
      }
      if (out.size() == found->get_array().size()) return out;
    }
    Fail(Code::kBadFile, fmt::format("{}: wanted a list of integers", name));
    return std::vector<int64_t>{};
  }
  // Fails unless the key is absent or has this value.
  template <class T>
  void Only(std::string_view name, T value, T found) {
    if (found != value) Fail(Code::kUnsupported, fmt::format("{} is {}, glint runs {}", name, found, value));
  }

 private:
  static const json::value* Inside(const json::object& place, std::string_view name) {
    const size_t dot = name.find('.');
    const json::value* found = place.if_contains(name.substr(0, dot));
    if (found == nullptr || found->is_null()) return nullptr;
    if (dot == std::string_view::npos) return found;
    return found->is_object() ? Inside(found->get_object(), name.substr(dot + 1)) : nullptr;
  }

  template <class T, class Convert>
  T Read(Names names, std::optional<T> otherwise, std::string_view wanted, Convert convert) {
    std::optional<T> value;
    std::string_view from;
    for (const std::string_view name : names) {
      const json::value* found = Find(name);
      if (found == nullptr) continue;
      const std::optional<T> converted = convert(*found);
      if (!converted) {
        Fail(Code::kBadFile, fmt::format("{}: wanted {}", name, wanted));
        return T{};
      }
      if (value && *value != *converted) {
        Fail(Code::kBadFile, fmt::format("{} is {}, but {} is {}", from, *value, name, *converted));
      }
      if (!value) value = converted, from = name;
    }
    if (value) return *value;
    if (otherwise) return *otherwise;
    std::string all;
    for (const std::string_view name : names) all += fmt::format("{}{}", all.empty() ? "" : " or ", name);
    Fail(Code::kBadFile, fmt::format("the key {} is missing", all));
    return T{};
  }

  std::string path_;
  std::vector<const json::object*> places_;
  Status status_;
};

constexpr int64_t kMostLayers = 4096;

void ReadMixers(Config& config, HParams& hp) {
  const auto layers = static_cast<size_t>(hp.layers);
  if (const auto types = config.Strings("layer_types")) {
    if (types->size() < layers) {
      return config.Fail(Code::kBadFile,
                         fmt::format("layer_types has {} entries, wanted {}", types->size(), layers));
    }
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
  const auto kda = config.Ints("linear_attn_config.kda_layers");
  if (!kda) {
    return config.Fail(
        Code::kBadFile,
        "the layer schedule is missing: neither layer_types nor linear_attn_config.kda_layers");
  }
  // Lists of this kind count from 0 or from 1; together with the other list they show which.
  const auto dsa = config.Ints("linear_attn_config.full_attn_layers").value_or(std::vector<int64_t>{});
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
  if (const auto types = config.Strings("mlp_layer_types")) {
    if (types->size() < layers) {
      return config.Fail(Code::kBadFile,
                         fmt::format("mlp_layer_types has {} entries, wanted {}", types->size(), layers));
    }
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
  config.Only<int64_t>("n_group", 1, config.Int({"n_group"}, 1));
  if (const json::value* scoring = config.Find("scoring_func")) {
    if (!scoring->is_string() || scoring->get_string() != "sigmoid") {
      config.Fail(Code::kUnsupported, "scoring_func: glint runs sigmoid");
    }
  }
  if (const json::value* act = config.Find("hidden_act")) {
    if (!act->is_string() || act->get_string() != "silu")
      config.Fail(Code::kUnsupported, "hidden_act: glint runs silu");
  }
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
  config.Only<int64_t>("qk_rope_head_dim", 0, config.Int({"qk_rope_head_dim"}, 0));
  config.Only("index_kpool_compress", true, config.Bool({"index_kpool_compress"}, true));
  config.Only("index_kpool_always_select_tail", true, config.Bool({"index_kpool_always_select_tail"}, true));
  config.Only("mla_use_nope", true, config.Bool({"mla_use_nope"}, true));
  config.Only("attention_bias", false, config.Bool({"attention_bias"}, false));
  config.Only("tie_word_embeddings", false, config.Bool({"tie_word_embeddings"}, false));
  if (const auto types = config.Strings("indexer_types")) {
    for (const std::string& type : *types) {
      if (type != "full")
        config.Fail(Code::kUnsupported,
                    "indexer_types: glint runs no shared indexers, every layer must be full");
    }
  }
}

}  // namespace

Result<HParams> ParseHfConfig(std::string_view text, const std::string& path, std::string& mtp_flaw) {
  json::error_code error;
  const json::value root = json::parse(json::string_view(text.data(), text.size()), error);
  if (error || !root.is_object()) {
    return Status(Code::kBadFile, fmt::format("{}: not a JSON object{}{}", path, error ? ": " : "",
                                              error ? error.message() : ""));
  }
  Config config(root.get_object(), path);
  const json::value* type = root.get_object().if_contains("model_type");
  if (type == nullptr || !type->is_string() || !type->get_string().starts_with("glm5_next")) {
    return Status(Code::kUnsupported,
                  fmt::format("{}: model_type is not glm5_next, the only one glint runs", path));
  }

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
