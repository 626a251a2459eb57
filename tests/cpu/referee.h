// The formulas of spec/model.md in double precision, straightforwardly, written without a look at the stages they judge: the
// plain recurrence, the expanded attention, whole histories instead of rings. It watches a pass, takes each stage's inputs from
// the buffers, and compares what the stage left there.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <vector>

#include "plan/backend.h"
#include "tests/support/small_model.h"

namespace glint::test {

using Row = std::vector<double>;

inline Row Doubles(const float* x, int64_t n) { return Row(x, x + n); }

inline Row WeightRow(const model::Matrix& w, int64_t slice, int64_t row) {
  std::vector<float> f(static_cast<size_t>(w.columns));
  quant::Find(w.type)->decode(w.Row(slice, row), f.data(), f.size());
  return Row(f.begin(), f.end());
}

inline Row Times(const model::Matrix& w, const Row& x, int64_t slice = 0) {
  Row y(static_cast<size_t>(w.rows));
  for (int64_t o = 0; o < w.rows; ++o) {
    const Row r = WeightRow(w, slice, o);
    y[o] = std::inner_product(r.begin(), r.end(), x.begin(), 0.0);
  }
  return y;
}

inline Row Rms(Row x, model::Vector w, double eps) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  const double r = 1 / std::sqrt(sum / static_cast<double>(x.size()) + eps);
  for (size_t i = 0; i < x.size(); ++i) x[i] *= r * (w.empty() ? 1.0 : w[i]);
  return x;
}

inline double Logistic(double x) { return 1 / (1 + std::exp(-x)); }

// relative: of the largest magnitude of the row expected, or of `floor` if that is larger (a sum of many terms can be small by
// cancellation, its rounding errors are not).
inline void ExpectRow(const Row& want, const float* got, double relative, double floor,
                      const std::string& what) {
  double largest = floor;
  for (const double v : want) largest = std::max(largest, std::abs(v));
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(want[i], got[i], relative * largest) << what << " entry " << i << " of " << want.size();
  }
}

class Referee {
 public:
  explicit Referee(const SmallModel& m) : m_(m), hp_(m.hp) {
    // Activations are rounded to 16 bits for quantised weights (docs/design.md: 4e-5 of the product).
    product_ = m.quantised ? 2e-4 : 1e-5;
  }

  // Call before each pass with what goes into it.
  void Begin(int64_t position, std::span<const int32_t> tokens, const float* hidden = nullptr) {
    position_ = position;
    tokens_.assign(tokens.begin(), tokens.end());
    hidden_ = hidden;
  }

  void operator()(const plan::StepView& v) {
    if (testing::Test::HasFatalFailure()) return;
    const auto& block = v.step.layer < 0            ? none_
                        : v.step.layer < hp_.layers ? m_.weights.layers[v.step.layer]
                                                    : m_.weights.nextn[0].block;
    for (int r = 0; r < v.rows && !testing::Test::HasFatalFailure(); ++r) One(v, block, r);
    steps_[v.step.stage] += 1;
    // In-place stages are judged by what was there before.
    const auto keep = [&](plan::Slot slot, std::vector<float>& copy, int64_t width) {
      if (const float* now = v.Floats(slot); now != nullptr) copy.assign(now, now + width * v.rows);
    };
    keep(plan::Slot::kStreams, streams_, hp_.hc_mult * hp_.hidden);
    keep(plan::Slot::kResidual, residual_, hp_.hidden);
  }

  const std::map<plan::Stage, int>& steps() const { return steps_; }

 private:
  using Slot = plan::Slot;
  using Stage = plan::Stage;

  struct Memory {            // of one layer: everything that ever happened
    std::vector<Row> u;      // convolution inputs
    std::vector<Row> state;  // KDA: per head [K * K]
    std::vector<Row> latent, key, gate;
    std::vector<Row> pooled;
  };

  void One(const plan::StepView& v, const model::Layer& layer, int r) {
    const int64_t d = hp_.hidden, n = hp_.hc_mult, width = hp_.kda_width(), dim = hp_.kda_head_dim;
    const int64_t position = position_ + r;
    Memory& memory = memory_[v.step.layer];
    const bool trunk = v.plan.pass == plan::Pass::kTrunk;
    const auto in = [&](Slot slot) {
      return Doubles(v.Floats(slot) + r * plan::Width(slot, hp_), plan::Width(slot, hp_));
    };
    const auto out = [&](Slot slot) { return v.Floats(slot) + r * plan::Width(slot, hp_); };
    const std::string name = std::string(plan::Name(v.step.stage)) + " layer " +
                             std::to_string(v.step.layer) + " row " + std::to_string(r) + ": ";
    const auto expect = [&](const Row& want, Slot slot, double relative) {
      // Products here are of entries about 1 with rows of weights of about unit length.
      ExpectRow(want, out(slot), relative, relative >= product_ ? 1.0 : 1e-3,
                name + std::string(plan::Name(slot)));
    };
    constexpr double kExact = 0.9e-5;
    const auto swiglu = [&](const model::Matrix& gate, const model::Matrix& up, const Row& x, int64_t slice) {
      Row g = Times(gate, x, slice);
      const Row u = Times(up, x, slice);
      const double limit = hp_.swiglu_limit;
      for (size_t i = 0; i < g.size(); ++i) {
        const double c = std::min(g[i], limit);
        g[i] = c * Logistic(c) * std::clamp(u[i], -limit, limit);
      }
      return g;
    };
    const auto concatenate = [](Row a, const Row& b) {
      a.insert(a.end(), b.begin(), b.end());
      return a;
    };

    switch (v.step.stage) {
      case Stage::kEmbed: {
        const Row e = WeightRow(m_.weights.embedding, 0, tokens_[r]);
        Row all;
        for (int64_t h = 0; h < n; ++h) all = concatenate(all, e);
        expect(all, Slot::kStreams, 0);
        break;
      }
      case Stage::kHcPre: {
        const auto& site = v.step.site == plan::Step::Site::kAttn ? layer.hc_attn : layer.hc_ffn;
        const Row x = in(Slot::kStreams);
        const Row z = Times(site.fn, Rms(x, {}, hp_.rms_eps));
        Row collapsed(d), post(n);
        for (int64_t h = 0; h < n; ++h) {
          const double pre = Logistic(z[h] * site.scale[0] + site.base[h]) + hp_.hc_eps;
          for (int64_t i = 0; i < d; ++i) collapsed[i] += pre * x[h * d + i];
          post[h] = 2 * Logistic(z[n + h] * site.scale[1] + site.base[n + h]);
        }
        Row m(n * n);
        for (int64_t j = 0; j < n; ++j) {
          double sum = 0;
          for (int64_t h = 0; h < n; ++h) {
            m[j * n + h] = std::exp(z[2 * n + j * n + h] * site.scale[2] + site.base[2 * n + j * n + h]);
            sum += m[j * n + h];
          }
          for (int64_t h = 0; h < n; ++h) m[j * n + h] = m[j * n + h] / sum + hp_.hc_eps;
        }
        for (int64_t half = 1; half < 2 * hp_.sinkhorn_iters; ++half) {  // column, row, column, ... column
          for (int64_t a = 0; a < n; ++a) {
            const auto at = [&](int64_t b) -> double& { return half % 2 == 1 ? m[b * n + a] : m[a * n + b]; };
            double sum = hp_.hc_eps;
            for (int64_t b = 0; b < n; ++b) sum += at(b);
            for (int64_t b = 0; b < n; ++b) at(b) /= sum;
          }
        }
        expect(collapsed, Slot::kCollapsed, product_);
        expect(post, Slot::kPost, product_);
        expect(m, Slot::kComb, 2 * product_);
        break;
      }
      case Stage::kAttnNorm:
      case Stage::kFfnNorm:
        expect(Rms(in(trunk ? Slot::kCollapsed : Slot::kResidual),
                   v.step.stage == Stage::kAttnNorm ? layer.attn_norm : layer.ffn_norm, hp_.rms_eps),
               Slot::kX, kExact);
        break;
      case Stage::kKdaQkv: {
        const Row x = in(Slot::kX);
        expect(concatenate(concatenate(Times(layer.kda.q, x), Times(layer.kda.k, x)), Times(layer.kda.v, x)),
               Slot::kU, product_);
        break;
      }
      case Stage::kKdaConv: {
        memory.u.resize(position);
        memory.u.push_back(in(Slot::kU));
        Row y(3 * width);
        for (int64_t c = 0; c < 3 * width; ++c) {
          const auto& w = c < width ? layer.kda.conv_q : c < 2 * width ? layer.kda.conv_k : layer.kda.conv_v;
          for (int64_t tap = 0; tap < hp_.conv_kernel; ++tap) {
            const int64_t p = position - (hp_.conv_kernel - 1) + tap;
            if (p >= 0) y[c] += w[c % width * hp_.conv_kernel + tap] * memory.u[p][c];
          }
          y[c] *= Logistic(y[c]);
        }
        for (int64_t head = 0; head < 2 * hp_.kda_heads; ++head) {
          double sum = hp_.l2_eps;
          for (int64_t i = 0; i < dim; ++i) sum += y[head * dim + i] * y[head * dim + i];
          const double scale =
              1 / std::sqrt(sum) / (head < hp_.kda_heads ? std::sqrt(static_cast<double>(dim)) : 1);
          for (int64_t i = 0; i < dim; ++i) y[head * dim + i] *= scale;
        }
        expect(y, Slot::kQkv, kExact);
        break;
      }
      case Stage::kKdaGates: {
        const Row x = in(Slot::kX);
        Row g = Times(layer.kda.f_b, Times(layer.kda.f_a, x));
        for (int64_t i = 0; i < width; ++i) {
          g[i] = hp_.gate_lower_bound * Logistic(layer.kda.a[i / dim] * (g[i] + layer.kda.dt_bias[i]));
        }
        expect(g, Slot::kDecay, 2 * product_);
        Row beta = Times(layer.kda.beta, x);
        for (double& b : beta) b = Logistic(b);
        expect(beta, Slot::kBeta, product_);
        expect(Times(layer.kda.g_b, Times(layer.kda.g_a, x)), Slot::kOutGate, 2 * product_);
        break;
      }
      case Stage::kKdaRecur: {
        const Row qkv = in(Slot::kQkv), g = in(Slot::kDecay), beta = in(Slot::kBeta);
        if (position == 0) memory.state.assign(hp_.kda_heads, Row(dim * dim));
        Row o(width);
        for (int64_t h = 0; h < hp_.kda_heads; ++h) {
          Row& s = memory.state[h];
          const double* q = qkv.data() + h * dim;
          const double *k = q + width, *val = k + width;
          for (int64_t i = 0; i < dim; ++i) {
            for (int64_t j = 0; j < dim; ++j) s[i * dim + j] *= std::exp(g[h * dim + i]);
          }
          for (int64_t j = 0; j < dim; ++j) {
            double read = 0;
            for (int64_t i = 0; i < dim; ++i) read += s[i * dim + j] * k[i];
            const double delta = beta[h] * (val[j] - read);
            for (int64_t i = 0; i < dim; ++i) {
              s[i * dim + j] += k[i] * delta;
              o[h * dim + j] += s[i * dim + j] * q[i];
            }
          }
        }
        expect(o, Slot::kMixed, 3e-5);
        break;
      }
      case Stage::kKdaNorm: {
        const Row mixed = in(Slot::kMixed), gate = in(Slot::kOutGate);
        Row y;
        for (int64_t h = 0; h < hp_.kda_heads; ++h) {
          y = concatenate(y, Rms(Row(mixed.begin() + h * dim, mixed.begin() + (h + 1) * dim),
                                 layer.kda.o_norm, hp_.rms_eps));
        }
        for (int64_t i = 0; i < width; ++i) y[i] *= Logistic(gate[i]);
        expect(y, Slot::kMixedNormed, kExact);
        break;
      }
      case Stage::kKdaOut:
        expect(Times(layer.kda.out, in(Slot::kMixedNormed)), Slot::kBranch, product_);
        break;
      case Stage::kDsaQ: {
        const Row a = Rms(Times(layer.dsa.q_a, in(Slot::kX)), layer.dsa.q_a_norm, hp_.rms_eps);
        expect(a, Slot::kQResid, 2 * product_);
        expect(Times(layer.dsa.q_b, in(Slot::kQResid)), Slot::kQ, product_);
        break;
      }
      case Stage::kDsaKv:
        expect(Rms(Times(layer.dsa.kv_a, in(Slot::kX)), layer.dsa.kv_a_norm, hp_.rms_eps), Slot::kLatent,
               2 * product_);
        memory.latent.resize(position);
        memory.latent.push_back(in(Slot::kLatent));
        break;
      case Stage::kDsaIndex: {
        const Row x = in(Slot::kX);
        expect(Times(layer.dsa.index_q_b, in(Slot::kQResid)), Slot::kIndexQ, product_);
        Row k = Times(layer.dsa.index_k, x);
        const double count = static_cast<double>(k.size());
        const double mean = std::accumulate(k.begin(), k.end(), 0.0) / count;
        double var = 0;
        for (const double e : k) var += (e - mean) * (e - mean) / count;
        for (size_t i = 0; i < k.size(); ++i) {
          k[i] = (k[i] - mean) / std::sqrt(var + hp_.layer_norm_eps) * layer.dsa.index_k_norm[i] +
                 layer.dsa.index_k_norm_bias[i];
        }
        expect(k, Slot::kIndexK, 3 * product_);
        expect(Times(layer.dsa.index_gate, x), Slot::kIndexGate, product_);
        expect(Times(layer.dsa.index_proj, x), Slot::kIndexW, product_);
        memory.key.resize(position), memory.gate.resize(position);
        memory.key.push_back(in(Slot::kIndexK));
        memory.gate.push_back(in(Slot::kIndexGate));
        break;
      }
      case Stage::kDsaSelect:
        Select(v, layer, memory, r, position, name);
        break;
      case Stage::kDsaAttend: {
        const Row q = in(Slot::kQ);
        const int32_t* list = v.Ints(Slot::kSelected) + r * hp_.max_selected();
        const int32_t count = v.Ints(Slot::kSelectedCount)[r];
        Row y;
        for (int64_t h = 0; h < hp_.heads; ++h) {
          Row score, sum(hp_.v_head_dim);
          double total = 0;
          std::vector<Row> k_rows;
          for (int64_t c = 0; c < hp_.kv_lora_rank; ++c) k_rows.push_back(WeightRow(layer.dsa.k_b, h, c));
          for (int32_t i = 0; i < count; ++i) {
            const Row& latent = memory.latent[list[i]];
            double s = 0;
            for (int64_t e = 0; e < hp_.qk_head_dim; ++e) {
              double key = 0;
              for (int64_t c = 0; c < hp_.kv_lora_rank; ++c) key += k_rows[c][e] * latent[c];
              s += q[h * hp_.qk_head_dim + e] * key;
            }
            score.push_back(s / std::sqrt(static_cast<double>(hp_.qk_head_dim)));
          }
          const double top = *std::max_element(score.begin(), score.end());
          for (int32_t i = 0; i < count; ++i) {
            const double w = std::exp(score[i] - top);
            total += w;
            const Row value = Times(layer.dsa.v_b, memory.latent[list[i]], h);
            for (size_t e = 0; e < sum.size(); ++e) sum[e] += w * value[e];
          }
          for (double& e : sum) e /= total;
          y = concatenate(y, sum);
        }
        expect(y, Slot::kAttended, 3 * product_);
        break;
      }
      case Stage::kDsaOut:
        expect(Times(layer.dsa.out, in(Slot::kAttended)), Slot::kBranch, product_);
        break;
      case Stage::kHcPost: {
        const Row branch = in(Slot::kBranch), post = in(Slot::kPost), comb = in(Slot::kComb);
        const Row x = Doubles(streams_.data() + r * n * d, n * d);
        Row y(n * d);
        for (int64_t h = 0; h < n; ++h) {
          for (int64_t i = 0; i < d; ++i) {
            y[h * d + i] = post[h] * branch[i];
            for (int64_t j = 0; j < n; ++j) y[h * d + i] += comb[j * n + h] * x[j * d + i];
          }
        }
        expect(y, Slot::kStreams, kExact);
        break;
      }
      case Stage::kResidual: {
        Row y = Doubles(residual_.data() + r * d, d);
        const Row branch = in(Slot::kBranch);
        for (int64_t i = 0; i < d; ++i) y[i] += branch[i];
        expect(y, Slot::kResidual, 1e-6);
        break;
      }
      case Stage::kFfnGateUp:
        expect(swiglu(layer.dense.gate, layer.dense.up, in(Slot::kX), 0), Slot::kFfnHidden, product_);
        break;
      case Stage::kFfnDown:
        expect(Times(layer.dense.down, in(Slot::kFfnHidden)), Slot::kBranch, product_);
        break;
      case Stage::kMoeRoute: {
        const Row logits = Times(layer.moe.router, in(Slot::kX));
        expect(logits, Slot::kRouterLogits, product_);
        const int32_t* ids = v.Ints(Slot::kExpertIds) + r * hp_.experts_used;
        ASSERT_TRUE(std::is_sorted(ids, ids + hp_.experts_used)) << name;
        double worst_in = 1e9, best_out = -1e9, sum = 0;
        Row weights;
        for (int64_t e = 0; e < hp_.experts; ++e) {
          const bool chosen = std::binary_search(ids, ids + hp_.experts_used, static_cast<int32_t>(e));
          const double s = Logistic(logits[e]), rank = s + layer.moe.router_bias[e];
          if (chosen) {
            worst_in = std::min(worst_in, rank);
            weights.push_back(s);
            sum += s;
          } else {
            best_out = std::max(best_out, rank);
          }
        }
        ASSERT_EQ(weights.size(), static_cast<size_t>(hp_.experts_used))
            << name << "an expert twice or out of range";
        ASSERT_GE(worst_in, best_out - 10 * product_) << name << "not the best experts";
        for (double& w : weights) w *= hp_.routed_scale / sum;
        expect(weights, Slot::kExpertWeights, 3 * product_);
        break;
      }
      case Stage::kMoeGateUp: {
        Row y;
        for (int64_t k = 0; k < hp_.experts_used; ++k) {
          y = concatenate(y, swiglu(layer.moe.gate, layer.moe.up, in(Slot::kX),
                                    v.Ints(Slot::kExpertIds)[r * hp_.experts_used + k]));
        }
        expect(y, Slot::kMoeHidden, product_);
        break;
      }
      case Stage::kMoeDown: {
        const Row hidden = in(Slot::kMoeHidden);
        Row y;
        for (int64_t k = 0; k < hp_.experts_used; ++k) {
          const Row part(hidden.begin() + k * hp_.expert_ffn, hidden.begin() + (k + 1) * hp_.expert_ffn);
          y = concatenate(y, Times(layer.moe.down, part, v.Ints(Slot::kExpertIds)[r * hp_.experts_used + k]));
        }
        expect(y, Slot::kExpertOut, product_);
        break;
      }
      case Stage::kMoeSharedGateUp:
        expect(swiglu(layer.moe.shared_gate, layer.moe.shared_up, in(Slot::kX), 0), Slot::kSharedHidden,
               product_);
        break;
      case Stage::kMoeSharedDown:
        expect(Times(layer.moe.shared_down, in(Slot::kSharedHidden)), Slot::kSharedOut, product_);
        break;
      case Stage::kMoeCombine: {
        Row y = in(Slot::kSharedOut);
        const Row parts = in(Slot::kExpertOut), w = in(Slot::kExpertWeights);
        for (int64_t k = 0; k < hp_.experts_used; ++k) {
          for (int64_t i = 0; i < d; ++i) y[i] += w[k] * parts[k * d + i];
        }
        expect(y, Slot::kBranch, kExact);
        break;
      }
      case Stage::kHeadNorm: {
        Row mean = trunk ? Row(d) : in(Slot::kResidual);
        if (trunk) {
          const Row x = in(Slot::kStreams);
          for (int64_t i = 0; i < n * d; ++i) mean[i % d] += x[i] / static_cast<double>(n);
        }
        expect(Rms(mean, trunk ? m_.weights.output_norm : m_.weights.nextn[0].shared_head_norm, hp_.rms_eps),
               Slot::kFinal, kExact);
        break;
      }
      case Stage::kHeadLogits:
        expect(Times(m_.weights.head, in(Slot::kFinal)), Slot::kLogits, product_);
        break;
      case Stage::kMtpInput: {
        const auto& w = m_.weights.nextn[0];
        const Row e = Rms(WeightRow(m_.weights.embedding, 0, tokens_[r]), w.enorm, hp_.rms_eps);
        const Row h = Rms(Doubles(hidden_ + r * d, d), w.hnorm, hp_.rms_eps);
        expect(Times(w.eh_proj, concatenate(e, h)), Slot::kResidual, 2 * product_);
        break;
      }
      case Stage::kCount:
        break;
    }
  }

  void Select(const plan::StepView& v, const model::Layer& layer, Memory& memory, int r, int64_t position,
              const std::string& name) {
    const int64_t pool = hp_.index_kpool, dim = hp_.index_head_dim, visible = position + 1,
                  pools = visible / pool;
    // Pools from the whole history, anew for every query.
    std::vector<std::pair<double, int64_t>> scores;
    double largest = 1e-3;
    for (int64_t p = 0; p < pools; ++p) {
      double score = 0;
      Row pooled(dim);
      for (int64_t c = 0; c < dim; ++c) {
        double total = 0;
        for (int64_t s = 0; s < pool; ++s) {
          const double w = std::exp(memory.gate[p * pool + s][c] + layer.dsa.index_ape[s * dim + c]);
          total += w;
          pooled[c] += w * memory.key[p * pool + s][c];
        }
        pooled[c] /= total;
      }
      for (int64_t h = 0; h < hp_.index_heads; ++h) {
        const float* q = v.Floats(Slot::kIndexQ) + (r * hp_.index_heads + h) * dim;
        double dot = 0;
        for (int64_t c = 0; c < dim; ++c) dot += q[c] * pooled[c];
        score += v.Floats(Slot::kIndexW)[r * hp_.index_heads + h] * std::max(dot, 0.0);
      }
      score /= std::sqrt(static_cast<double>(hp_.index_heads * dim));
      largest = std::max(largest, std::abs(score));
      scores.emplace_back(score, p);
    }
    const int32_t* list = v.Ints(Slot::kSelected) + r * hp_.max_selected();
    const int32_t count = v.Ints(Slot::kSelectedCount)[r];
    const int64_t keep = std::min(hp_.pools_kept(), pools);
    ASSERT_EQ(count, keep * pool + visible % pool) << name;
    ASSERT_TRUE(std::is_sorted(list, list + count)) << name;
    ASSERT_TRUE(std::adjacent_find(list, list + count) == list + count) << name;
    for (int64_t i = 0; i < visible % pool; ++i)
      ASSERT_EQ(list[count - 1 - i], position - i) << name << "tail";
    for (int64_t i = count; i < hp_.max_selected(); ++i) ASSERT_EQ(list[i], -1) << name;
    double worst_in = 1e9, best_out = -1e9;
    for (const auto& [score, p] : scores) {
      const bool first = std::binary_search(list, list + count, static_cast<int32_t>(p * pool));
      const bool last = std::binary_search(list, list + count, static_cast<int32_t>(p * pool + pool - 1));
      ASSERT_EQ(first, last) << name << "half a pool";
      if (first) {
        worst_in = std::min(worst_in, score);
      } else {
        best_out = std::max(best_out, score);
      }
    }
    ASSERT_GE(worst_in, best_out - 1e-5 * largest) << name << "not the best pools";
  }

  const SmallModel& m_;
  const model::HParams& hp_;
  const model::Layer none_;
  double product_;
  int64_t position_ = 0;
  std::vector<int32_t> tokens_;
  const float* hidden_ = nullptr;
  std::map<int, Memory> memory_;
  std::map<plan::Stage, int> steps_;
  std::vector<float> streams_, residual_;
};

}  // namespace glint::test
