// Draws the weights of the reference model `tile` anew: 11.7 MB from a seed and 0.2 MB of differences. How it works and where
// the rules come from: tests/data/reference/make.py, which this repeats.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gguf/safetensors.h"

namespace glint::test {

// The digest make.py prints: FNV-1a over all tensors in the order of their names.
inline constexpr uint64_t kTileDigest = 0xd06f912e5bf37bf1;

class TileWeights {
 public:
  struct Tensor {
    bool half;  // bfloat16, otherwise float32
    std::vector<uint64_t> shape;
    std::vector<std::byte> bytes;
  };

  // `differences`: tests/data/reference/tile/weights.safetensors.
  explicit TileWeights(const gguf::SafeTensors& differences) : differences_(differences) {
    const auto* stored = differences.Find("corrections");
    corrections_ = {stored->data, stored->bytes};
    NextCorrection();
    for (const auto& [name, shape] : Shapes()) {  // a map: in the order of the names
      auto values = Draw(name, shape);
      Split(name, shape, values);
    }
  }

  const std::map<std::string, Tensor>& tensors() const { return tensors_; }

  uint64_t Digest() const {
    uint64_t digest = 0xcbf29ce484222325;
    for (const auto& [name, tensor] : tensors_) {
      for (const std::byte b : tensor.bytes) digest = (digest ^ std::to_integer<uint64_t>(b)) * 0x100000001b3;
    }
    return digest;
  }

  void Write(const std::string& path) const {
    std::string head = "{";
    uint64_t at = 0;
    for (const auto& [name, t] : tensors_) {
      head += (at ? ",\"" : "\"") + name + "\":{\"dtype\":\"" + (t.half ? "BF16" : "F32") + "\",\"shape\":[";
      for (size_t i = 0; i < t.shape.size(); ++i) head += (i ? "," : "") + std::to_string(t.shape[i]);
      head += "],\"data_offsets\":[" + std::to_string(at) + "," + std::to_string(at + t.bytes.size()) + "]}";
      at += t.bytes.size();
    }
    head += "}";
    head.resize((head.size() + 7) / 8 * 8, ' ');
    std::ofstream file(path, std::ios::binary);
    for (int i = 0; i < 8; ++i) file.put(static_cast<char>(uint64_t{head.size()} >> 8 * i & 255));
    file << head;
    for (const auto& [name, t] : tensors_) {
      file.write(reinterpret_cast<const char*>(t.bytes.data()), static_cast<std::streamsize>(t.bytes.size()));
    }
  }

 private:
  using Shape = std::vector<uint64_t>;

  static uint64_t Count(const Shape& shape) {
    uint64_t n = 1;
    for (const uint64_t s : shape) n *= s;
    return n;
  }

  static std::map<std::string, Shape> Shapes() {
    const std::string p = "model.language_model.";
    std::map<std::string, Shape> s{
        {"lm_head.weight", {320, 256}}, {p + "embed_tokens.weight", {320, 256}}, {p + "norm.weight", {256}}};
    for (int layer = 0; layer < 4; ++layer) {
      const std::string n = p + "layers." + std::to_string(layer) + ".", a = n + "self_attn.",
                        i = a + "indexer.", m = n + "mlp.";
      for (const std::string site : {"attn", "ffn"}) {
        s[n + site + "_hc.fn"] = {24, 1024}, s[n + site + "_hc.base"] = {24}, s[n + site + "_hc.scale"] = {3};
      }
      s[n + "input_layernorm.weight"] = s[n + "post_attention_layernorm.weight"] = {256};
      if (layer < 3) {
        for (const std::string x : {"q", "k", "v"}) s[a + x + "_proj.weight"] = {512, 256};
        s[a + "conv1d.weight"] = {1536, 1, 4}, s[a + "o_norm.weight"] = {128},
              s[a + "o_proj.weight"] = {256, 512};
        s[a + "forget_gate.f_a_proj.weight"] = {128, 256}, s[a + "forget_gate.f_b_proj.weight"] = {512, 128};
        s[a + "forget_gate.dt_bias"] = {512}, s[a + "forget_gate.A_log"] = {4},
              s[a + "b_proj.weight"] = {4, 256};
        s[a + "g_a_proj.weight"] = {128, 256}, s[a + "g_b_proj.weight"] = {512, 128};
        s[m + "gate_proj.weight"] = s[m + "up_proj.weight"] = {512, 256},
              s[m + "down_proj.weight"] = {256, 512};
      } else {
        for (const char* x : {"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "o_proj"})
          s[a + x + ".weight"] = {256, 256};
        s[a + "q_a_layernorm.weight"] = s[a + "kv_a_layernorm.weight"] = {256},
              s[a + "kv_b_proj.weight"] = {512, 256};
        s[i + "wq_b.weight"] = {256, 256},
              s[i + "wk.weight"] = s[i + "index_kpool_compress_gate"] = {128, 256};
        s[i + "k_norm.weight"] = s[i + "k_norm.bias"] = {128}, s[i + "weights_proj.weight"] = {2, 256};
        s[i + "index_kpool_compress_ape"] = {4, 128}, s[m + "gate.weight"] = {6, 256};
        s[m + "experts.gate_up_proj"] = {6, 512, 256}, s[m + "experts.down_proj"] = {6, 256, 256};
        s[m + "gate.e_score_correction_bias"] = {6};
        for (const std::string x : {"gate", "up", "down"})
          s[m + "shared_experts." + x + "_proj.weight"] = {256, 256};
      }
    }
    return s;
  }

  // torch.rand and torch.randn with a generator, as they draw on a CPU.
  float Uniform() { return static_cast<float>(engine_() & ((1u << 24) - 1)) * 0x1p-24f; }

  std::vector<float> Rand(uint64_t n, double low, double high) {
    std::vector<float> out(n);
    for (auto& x : out) x = Uniform() * static_cast<float>(high - low) + static_cast<float>(low);
    return out;
  }

  static void BoxMuller(float* x) {  // 16 uniform numbers become 16 normal ones
    for (int i = 0; i < 8; ++i) {
      const float radius = std::sqrt(-2 * static_cast<float>(std::log(static_cast<double>(1 - x[i]))));
      const double theta = static_cast<float>(2 * M_PI) * x[i + 8];
      x[i] = radius * static_cast<float>(std::cos(theta)),
      x[i + 8] = radius * static_cast<float>(std::sin(theta));
    }
  }

  std::vector<float> Randn(uint64_t n, double deviation) {
    std::vector<float> out(n);
    if (n < 16) {
      for (auto& x : out) x = static_cast<float>(One());
    } else {
      for (auto& x : out) x = Uniform();
      for (uint64_t i = 0; i + 16 <= n; i += 16) BoxMuller(&out[i]);
      if (n % 16 != 0) {
        for (uint64_t i = n - 16; i < n; ++i) out[i] = Uniform();
        BoxMuller(&out[n - 16]);
      }
    }
    for (auto& x : out) x *= static_cast<float>(deviation);
    return out;
  }

  double One() {
    if (cached_) return cached_ = false, cached_value_;
    double u[2];
    for (double& x : u) {
      const uint64_t high = engine_(), low = engine_();
      x = static_cast<double>((high << 32 | low) & ((uint64_t{1} << 53) - 1)) * 0x1p-53;
    }
    const double radius = std::sqrt(-2 * std::log1p(-u[1])), theta = 2 * M_PI * u[0];
    cached_ = true, cached_value_ = radius * std::sin(theta);
    return radius * std::cos(theta);
  }

  std::vector<float> Draw(const std::string& name, const Shape& shape) {
    static const std::map<std::string, std::pair<double, double>> uniform{
        {"input_layernorm", {0.5, 1.6}},
        {"post_attention_layernorm", {0.5, 1.6}},
        {"norm", {0.5, 1.6}},
        {"q_a_layernorm", {0.5, 1.6}},
        {"kv_a_layernorm", {0.5, 1.6}},
        {"o_norm", {0.5, 1.6}},
        {"A_log", {-0.6, 0.7}},
        {"dt_bias", {-8.0, 2.5}},
        {"scale", {0.6, 1.6}}};
    static const std::map<std::string, double> gain{
        {"lm_head", 2.0},   {"fn", 0.9},           {"index_kpool_compress_gate", 1.5},
        {"q_proj", 1.2},    {"k_proj", 1.2},       {"v_proj", 1.4},
        {"f_b_proj", 0.8},  {"b_proj", 1.5},       {"q_b_proj", 1.6},
        {"kv_b_proj", 1.3}, {"o_proj", 1.2},       {"gate_proj", 1.5},
        {"up_proj", 1.5},   {"gate_up_proj", 1.5}, {"down_proj", 1.2},
        {"gate", 1.2},      {"weights_proj", 1.2}};
    const bool bias = name.ends_with(".bias");
    const std::string stem = name.ends_with(".weight") ? name.substr(0, name.size() - 7)
                             : bias                    ? name.substr(0, name.size() - 5)
                                                       : name;
    const std::string last = stem.substr(stem.find_last_of('.') + 1);
    const uint64_t n = Count(shape);
    if (const auto u = uniform.find(last); u != uniform.end())
      return Rand(n, u->second.first, u->second.second);
    if (last == "k_norm") return bias ? Randn(n, 0.3) : Rand(n, 0.6, 1.5);
    if (last == "embed_tokens") {
      auto out = Randn(n, 0.8);
      const auto common = Randn(shape[1], 0.5);
      for (uint64_t i = 0; i < n; ++i) out[i] += common[i % shape[1]];
      return out;
    }
    if (last == "base") {
      auto out = Randn(n, 0.6);
      std::ranges::copy(Randn(16, 1.0), out.begin() + 8);
      return out;
    }
    if (last == "conv1d") {
      auto out = Randn(n, 0.45);
      for (uint64_t i = 3; i < n; i += 4) out[i] += 0.4f;
      return out;
    }
    if (last == "e_score_correction_bias") return Randn(n, 0.2);
    if (last == "index_kpool_compress_ape") return Randn(n, 1.0);
    const auto g = gain.find(last);
    return Randn(n, (g == gain.end() ? 1.0 : g->second) / std::sqrt(static_cast<double>(shape.back())));
  }

  // Checkpoint names: q, k and v convolutions and experts stand apart there.
  void Split(const std::string& name, const Shape& shape, std::span<const float> values) {
    const auto replaced = [](std::string s, const std::string& from, const std::string& to) {
      if (const size_t at = s.find(from); at != std::string::npos) s.replace(at, from.size(), to);
      return s;
    };
    if (name.ends_with("conv1d.weight")) {
      for (size_t i = 0; i < 3; ++i) {
        Store(replaced(name, "conv1d", std::string(1, "qkv"[i]) + "_conv1d"), {512, 1, 4},
              values.subspan(i * 2048, 2048));
      }
    } else if (name.ends_with(".experts.gate_up_proj")) {
      for (size_t e = 0; e < 12; ++e) {
        Store(replaced(name, "gate_up_proj",
                       std::to_string(e / 2) + (e % 2 ? ".up_proj.weight" : ".gate_proj.weight")),
              {256, 256}, values.subspan(e * 65536, 65536));
      }
    } else if (name.ends_with(".experts.down_proj")) {
      for (size_t e = 0; e < 6; ++e) {
        Store(replaced(name, "down_proj", std::to_string(e) + ".down_proj.weight"), {256, 256},
              values.subspan(e * 65536, 65536));
      }
    } else {
      Store(replaced(replaced(replaced(name, ".forget_gate.", "."), "attn_hc.", "hc_attn_"), "ffn_hc.",
                     "hc_ffn_"),
            shape, values);
    }
  }

  void Store(const std::string& name, const Shape& shape, std::span<const float> values) {
    const auto contains = [&](const char* part) { return name.find(part) != std::string::npos; };
    Tensor t{.half = !contains("A_log") && !contains("dt_bias") && !contains("e_score_correction_bias") &&
                     !contains("hc_"),
             .shape = shape,
             .bytes = {}};
    if (const auto* whole = differences_.Find(name)) {
      t.bytes.assign(whole->data, whole->data + whole->bytes);
    } else {
      const size_t size = t.half ? 2 : 4;
      t.bytes.resize(values.size() * size);
      for (size_t i = 0; i < values.size(); ++i) {
        uint32_t bits = std::bit_cast<uint32_t>(values[i]);
        if (t.half) bits = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
        if (passed_++ == next_) {
          bits += static_cast<uint32_t>(by_);
          NextCorrection();
        }
        for (size_t b = 0; b < size; ++b) t.bytes[i * size + b] = static_cast<std::byte>(bits >> 8 * b & 255);
      }
    }
    tensors_.emplace(name, std::move(t));
  }

  void NextCorrection() {
    if (corrections_.empty()) {
      next_ = ~uint64_t{0};
      return;
    }
    uint64_t gap = 0;
    for (int shift = 0;; shift += 7) {
      const auto digit = std::to_integer<uint64_t>(corrections_.front());
      corrections_ = corrections_.subspan(1);
      gap |= (digit & 127) << shift;
      if (digit < 128) break;
    }
    next_ += gap;
    by_ = static_cast<int8_t>(corrections_.front());
    corrections_ = corrections_.subspan(1);
  }

  const gguf::SafeTensors& differences_;
  std::map<std::string, Tensor> tensors_;
  std::mt19937 engine_{2202};
  bool cached_ = false;
  double cached_value_ = 0;
  std::span<const std::byte> corrections_;
  uint64_t passed_ = 0, next_ = 0;  // elements stored, place of the next correction
  int32_t by_ = 0;
};

}  // namespace glint::test
