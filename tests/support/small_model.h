// A random model small enough to run in a test, with odd sizes and every branch of the architecture.
#pragma once
#include <cmath>
#include <cstdint>
#include <deque>
#include <random>
#include <vector>

#include "model/glm_flash/hparams.h"
#include "model/glm_flash/weights.h"
#include "quant/format.h"

namespace glint::test {

struct SmallModel {
  model::HParams hp;
  model::Weights weights;
  std::mt19937_64 rng;
  std::deque<std::vector<float>> floats;  // addresses stay
  std::deque<std::vector<std::byte>> blocks;
  bool quantised = false;

  SmallModel() = default;
  SmallModel(const SmallModel&) = delete;
  SmallModel& operator=(const SmallModel&) = delete;

  float Normal() { return std::normal_distribution<float>()(rng); }

  model::Vector Vector(int64_t n, float mean, float spread) {
    auto& v = floats.emplace_back(static_cast<size_t>(n));
    for (float& x : v) x = mean + spread * Normal();
    return v;
  }

  // Scaled so that outputs are about as large as inputs.
  model::Matrix Matrix(int64_t rows, int64_t columns, int64_t slices = 1, float gain = 1) {
    auto& v = floats.emplace_back(static_cast<size_t>(rows * columns * slices));
    const float scale = gain / std::sqrt(static_cast<float>(columns));
    for (float& x : v) x = scale * Normal();
    model::Matrix m;
    m.columns = columns, m.rows = rows, m.slices = slices;
    const auto* q8 = quant::Find(quant::Type::kQ8_0);
    if (quantised && columns % 32 == 0) {
      const auto bytes = static_cast<size_t>(columns) / 32 * q8->block_bytes;
      auto& b = blocks.emplace_back(bytes * static_cast<size_t>(rows * slices));
      q8->encode(v.data(), nullptr, b.data(), v.size());
      m.type = quant::Type::kQ8_0;
      m.data = b.data();
      m.row_bytes = bytes;
    } else {
      m.type = quant::Type::kF32;
      m.data = reinterpret_cast<const std::byte*>(v.data());
      m.row_bytes = static_cast<size_t>(columns) * sizeof(float);
    }
    return m;
  }

  model::HcSite Hc() {
    const int64_t n = hp.hc_mult;
    return {Matrix(hp.hc_mix(), n * hp.hidden), Vector(hp.hc_mix(), 0, 1), Vector(3, 1, 0.2f)};
  }

  void FillDsa(model::DsaWeights& d) {
    d.q_a = Matrix(hp.q_lora_rank, hp.hidden);
    d.q_a_norm = Vector(hp.q_lora_rank, 1, 0.3f);
    d.q_b = Matrix(hp.heads * hp.qk_head_dim, hp.q_lora_rank, 1, 2);
    d.kv_a = Matrix(hp.kv_lora_rank, hp.hidden);
    d.kv_a_norm = Vector(hp.kv_lora_rank, 1, 0.3f);
    d.k_b = Matrix(hp.kv_lora_rank, hp.qk_head_dim, hp.heads);
    d.v_b = Matrix(hp.v_head_dim, hp.kv_lora_rank, hp.heads);
    d.out = Matrix(hp.hidden, hp.heads * hp.v_head_dim);
    d.index_q_b = Matrix(hp.index_heads * hp.index_head_dim, hp.q_lora_rank);
    d.index_k = Matrix(hp.index_head_dim, hp.hidden);
    d.index_k_norm = Vector(hp.index_head_dim, 1, 0.3f);
    d.index_k_norm_bias = Vector(hp.index_head_dim, 0, 0.3f);
    d.index_proj = Matrix(hp.index_heads, hp.hidden);
    d.index_ape = Vector(hp.index_kpool * hp.index_head_dim, 0, 1);
    d.index_gate = Matrix(hp.index_head_dim, hp.hidden);
  }

  void FillKda(model::KdaWeights& k) {
    const int64_t width = hp.kda_width(), rank = hp.kda_head_dim;
    for (auto* m : {&k.q, &k.k, &k.v}) *m = Matrix(width, hp.hidden);
    for (auto* v : {&k.conv_q, &k.conv_k, &k.conv_v}) *v = Vector(width * hp.conv_kernel, 0.2f, 0.5f);
    for (auto* m : {&k.f_a, &k.g_a}) *m = Matrix(rank, hp.hidden);
    for (auto* m : {&k.f_b, &k.g_b}) *m = Matrix(width, rank);
    k.beta = Matrix(hp.kda_heads, hp.hidden);
    auto& a = floats.emplace_back(static_cast<size_t>(hp.kda_heads));
    for (float& x : a) x = std::exp(0.5f * Normal());
    k.a = a;
    k.dt_bias = Vector(width, -2, 2);
    k.o_norm = Vector(rank, 1, 0.3f);
    k.out = Matrix(hp.hidden, width);
  }

  void FillMoe(model::MoeFfn& m) {
    m.router = Matrix(hp.experts, hp.hidden);
    m.router_bias = Vector(hp.experts, 0, 0.3f);
    m.gate = Matrix(hp.expert_ffn, hp.hidden, hp.experts);
    m.up = Matrix(hp.expert_ffn, hp.hidden, hp.experts);
    m.down = Matrix(hp.hidden, hp.expert_ffn, hp.experts);
    m.shared_gate = Matrix(hp.shared_ffn, hp.hidden);
    m.shared_up = Matrix(hp.shared_ffn, hp.hidden);
    m.shared_down = Matrix(hp.hidden, hp.shared_ffn);
  }

  void FillNorms(model::Layer& l) {
    l.attn_norm = Vector(hp.hidden, 1, 0.3f);
    l.ffn_norm = Vector(hp.hidden, 1, 0.3f);
  }

  void Fill() {
    weights.embedding = Matrix(hp.vocab_size, hp.hidden, 1, std::sqrt(static_cast<float>(hp.hidden)));
    weights.head = Matrix(hp.vocab_size, hp.hidden, 1, 3);
    weights.output_norm = Vector(hp.hidden, 1, 0.3f);
    weights.layers.resize(static_cast<size_t>(hp.layers));
    for (size_t i = 0; i < weights.layers.size(); ++i) {
      model::Layer& l = weights.layers[i];
      FillNorms(l);
      l.hc_attn = Hc();
      l.hc_ffn = Hc();
      if (hp.mixers[i] == model::Mixer::kKda) {
        FillKda(l.kda);
      } else {
        FillDsa(l.dsa);
      }
      if (hp.moe[i] != 0) {
        FillMoe(l.moe);
      } else {
        l.dense = {Matrix(hp.dense_ffn, hp.hidden), Matrix(hp.dense_ffn, hp.hidden),
                   Matrix(hp.hidden, hp.dense_ffn)};
      }
    }
    weights.nextn.resize(static_cast<size_t>(hp.nextn_layers));
    for (auto& n : weights.nextn) {
      n.eh_proj = Matrix(hp.hidden, 2 * hp.hidden);
      for (auto* v : {&n.enorm, &n.hnorm, &n.shared_head_norm}) *v = Vector(hp.hidden, 1, 0.3f);
      FillNorms(n.block);
      FillDsa(n.block.dsa);
      FillMoe(n.block.moe);
    }
  }

  std::vector<int32_t> Tokens(int64_t n) {
    std::vector<int32_t> ids(static_cast<size_t>(n));
    for (auto& id : ids) id = static_cast<int32_t>(rng() % static_cast<uint64_t>(hp.vocab_size));
    return ids;
  }
};

// pool: tokens a pool; the grid follows from it as hparams.h says.
inline void MakeSmall(SmallModel& m, uint64_t seed, bool quantised, int64_t pool = 3) {
  m.rng.seed(seed);
  m.quantised = quantised;
  model::HParams& hp = m.hp;
  hp.vocab_size = 61;
  hp.hidden = quantised ? 64 : 44;
  hp.layers = 4;
  hp.nextn_layers = 1;
  hp.context_length = 4096;
  hp.mixers = {model::Mixer::kKda, model::Mixer::kDsa, model::Mixer::kKda, model::Mixer::kDsa};
  hp.moe = {0, 1, 1, 1};
  hp.kda_heads = 3, hp.kda_head_dim = 16;
  hp.conv_kernel = 4;
  hp.gate_lower_bound = -5;
  hp.heads = 3, hp.q_lora_rank = quantised ? 32 : 20, hp.kv_lora_rank = quantised ? 32 : 24;
  hp.qk_head_dim = 16, hp.v_head_dim = 12;
  hp.index_heads = 2, hp.index_head_dim = 16;
  hp.index_kpool = pool;
  hp.index_topk = 3 * pool;
  hp.dense_ffn = 70, hp.expert_ffn = quantised ? 32 : 18, hp.shared_ffn = 33;
  hp.experts = 7, hp.experts_used = 3;
  hp.routed_scale = 2.5f;
  hp.swiglu_limit = 1;
  hp.hc_mult = 2, hp.sinkhorn_iters = 5;
  hp.block = pool > 16 ? 16 : 16 / pool * pool;
  m.Fill();
}

}  // namespace glint::test
