// The forward pass against the numbers of another implementation in double precision: logits, the inside of layers, states, discrete
// choices, and the MTP block. docs/testing.md says where they come from and what the tolerances rest on.
#include "tests/engine/reference.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "cpu/state.h"
#include "engine/session_impl.h"
#include "glint/session.h"

namespace glint {
namespace {

using test::ArgMax;
using test::Reference;

// Of the range (largest less smallest) of a prompt's logits. Transformers' own float32 run stays within 4e-6 of it.
constexpr double kLogitsTolerance = 2e-4;
// Of the largest magnitude in a tensor inside the model, states included: see docs/testing.md.
constexpr double kInsideTolerance = 2e-5;

struct Case {
  const char* model;
  const char* form;
  bool canonical;  // without levers
};

class ReferenceTest : public testing::TestWithParam<Case> {
 protected:
  ReferenceTest() : reference_(GetParam().model), model_(Open(false)) {
    for (const auto& t : reference_.tensors()) prompts_.insert(t.name.substr(0, t.name.find('.')));
  }

  static Model Open(bool mtp) {
    ModelOptions options{.threads = 2, .mtp = mtp};
    if (GetParam().canonical) options.without = {"all"};
    return test::MustOpen(test::ModelPath(GetParam().model, GetParam().form), options);
  }

  Session NewSession(const Model& model, bool mtp = false) {
    auto session = Session::Create(model, {.context = 256, .mtp = mtp});
    EXPECT_TRUE(session.ok()) << session.status().message();
    return std::move(*session);
  }

  // Rows first.. of `logits` against rows first.. of logits_f64.
  void ExpectLogits(const std::string& prompt, size_t first, std::span<const float> logits,
                    const std::string& what) {
    const auto want = reference_.Floats(prompt + ".logits_f64");
    const auto [low, high] = std::minmax_element(want.begin(), want.end());
    ExpectNear({want.data() + first * vocab(), logits.size()}, logits, kLogitsTolerance * (*high - *low),
               prompt + " " + what);
  }

  static void ExpectNear(std::span<const double> want, std::span<const float> got, double tolerance,
                         const std::string& what) {
    ASSERT_EQ(want.size(), got.size()) << what;
    double worst = 0;
    size_t at = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      const double off = std::abs(want[i] - double{got[i]});
      if (!(off <= worst)) worst = off, at = i;
      if (std::isnan(off)) break;
    }
    EXPECT_LE(worst, tolerance) << what << ": entry " << at << " is " << got[at] << ", the reference says "
                                << want[at];
    if (std::getenv("GLINT_TEST_VERBOSE") != nullptr)
      printf("%-32s %.3g of %.3g\n", what.c_str(), worst, tolerance);
  }

  size_t vocab() const { return static_cast<size_t>(model_.vocab_size()); }

  Reference reference_;
  Model model_;
  std::set<std::string> prompts_;
};

TEST_P(ReferenceTest, LogitsOfWholePrompts) {
  for (const auto& prompt : prompts_) {
    const auto ids = reference_.Ints(prompt + ".ids");
    auto session = NewSession(model_);
    std::vector<float> logits(ids.size() * vocab(), NAN);
    ASSERT_TRUE(session.Append(ids, LogitRows::kAll, logits).ok());
    ExpectLogits(prompt, 0, logits, "prefill");
  }
}

TEST_P(ReferenceTest, LogitsOfChunks) {
  for (const auto& prompt : prompts_) {
    const auto ids = reference_.Ints(prompt + ".ids");
    auto session = NewSession(model_);
    size_t done = 0;
    for (const int32_t size : reference_.Ints(prompt + ".chunked.sizes")) {
      std::vector<float> logits(static_cast<size_t>(size) * vocab(), NAN);
      ASSERT_TRUE(session.Append(std::span(ids).subspan(done, size), LogitRows::kAll, logits).ok());
      ExpectLogits(prompt, done, logits, "chunk at " + std::to_string(done));
      done += static_cast<size_t>(size);
    }
    EXPECT_EQ(done, ids.size());
  }
}

TEST_P(ReferenceTest, OneTokenAtATimeAndGreedyContinuation) {
  for (const auto& prompt : prompts_) {
    const auto ids = reference_.Ints(prompt + ".ids"), greedy = reference_.Ints(prompt + ".decode.ids");
    auto session = NewSession(model_);
    std::vector<float> all, logits(vocab());
    for (const int32_t id : ids) {
      ASSERT_TRUE(session.Append({&id, 1}, LogitRows::kLast, logits).ok());
      all.insert(all.end(), logits.begin(), logits.end());
    }
    for (size_t k = 0; k < greedy.size(); ++k) {
      const int32_t id = ArgMax(logits);
      ASSERT_EQ(id, greedy[k]) << prompt << ", generated token " << k;
      ASSERT_TRUE(session.Append({&id, 1}, LogitRows::kLast, logits).ok());
      all.insert(all.end(), logits.begin(), logits.end());
    }
    ExpectLogits(prompt, 0, all, "token by token");
  }
}

// What one pass left in the slots that its steps write, by "layer.slot" and, where a layer writes a slot twice, the site or stage.
class Recorder {
 public:
  explicit Recorder(const model::HParams& hp) : hp_(hp) {}

  plan::Observer observer() {
    return [this](const plan::StepView& view) {
      for (const plan::Slot slot : view.step.out) {
        if (slot == plan::Slot::kLogits) continue;
        const auto width = static_cast<size_t>(plan::Width(slot, hp_)) * static_cast<size_t>(view.rows);
        const std::string key = Key(view.step, slot);
        if (slot == plan::Slot::kSelected || slot == plan::Slot::kSelectedCount ||
            slot == plan::Slot::kExpertIds) {
          const int32_t* data = view.Ints(slot);
          ints[key].assign(data, data + width);
        } else {
          const float* data = view.Floats(slot);
          floats[key].assign(data, data + width);
        }
      }
    };
  }

  std::map<std::string, std::vector<float>> floats;
  std::map<std::string, std::vector<int32_t>> ints;

 private:
  static std::string Key(const plan::Step& step, plan::Slot slot) {
    const plan::Stage last = step.covers.empty() ? step.stage : step.covers.back();
    std::string key = std::to_string(step.layer) + "." + std::string(plan::Name(slot));
    switch (slot) {
      case plan::Slot::kStreams:
      case plan::Slot::kPost:
      case plan::Slot::kComb:
      case plan::Slot::kCollapsed:
        return key + (step.site == plan::Step::Site::kFfn ? ".ffn" : ".attn");
      case plan::Slot::kX:
        return key + (last == plan::Stage::kFfnNorm ? ".ffn" : ".attn");
      case plan::Slot::kBranch:
        return key + (last == plan::Stage::kKdaOut || last == plan::Stage::kDsaOut ? ".attn" : ".ffn");
      case plan::Slot::kResidual:
        return key + (last == plan::Stage::kMtpInput ? ".input" : ".sum");
      default:
        return key;
    }
  }

  const model::HParams& hp_;
};

// Reference name below a layer -> the recorder's.
const std::map<std::string, std::string>& FloatNames() {
  static const std::map<std::string, std::string> names{{"streams", "streams.ffn"},
                                                        {"attn_hc.post", "post.attn"},
                                                        {"ffn_hc.post", "post.ffn"},
                                                        {"attn_hc.comb", "comb.attn"},
                                                        {"ffn_hc.comb", "comb.ffn"},
                                                        {"attn_hc.collapsed", "collapsed.attn"},
                                                        {"ffn_hc.collapsed", "collapsed.ffn"},
                                                        {"attn_in", "x.attn"},
                                                        {"attn_out", "branch.attn"},
                                                        {"mlp_in", "x.ffn"},
                                                        {"mlp_out", "branch.ffn"},
                                                        {"kda.g", "decay"},
                                                        {"kda.beta", "beta"},
                                                        {"kda.out", "mixed"},
                                                        {"kda.out_gate", "out_gate"},
                                                        {"kda.normed", "mixed_normed"},
                                                        {"q_resid", "q_resid"},
                                                        {"kv_latent", "latent"},
                                                        {"index.q", "index_q"},
                                                        {"index.k", "index_k"},
                                                        {"index.weights", "index_w"},
                                                        {"router.logits", "router_logits"},
                                                        {"router.weights", "expert_weights"}};
  return names;
}

double Largest(std::span<const double> values) {
  double largest = 0;
  for (const double v : values) largest = std::max(largest, std::abs(v));
  return largest;
}

// The reference keeps q, k and v as the convolution leaves them; glint's stage also normalises q and k and scales q.
std::vector<double> NormalisedQkv(const Reference& reference, const std::string& prefix,
                                  const model::HParams& hp) {
  const std::vector<double> parts[3] = {reference.Floats(prefix + "kda.q"),
                                        reference.Floats(prefix + "kda.k"),
                                        reference.Floats(prefix + "kda.v")};
  const auto width = static_cast<size_t>(hp.kda_width()), head = static_cast<size_t>(hp.kda_head_dim);
  const size_t rows = parts[0].size() / width;
  std::vector<double> out;
  for (size_t row = 0; row < rows; ++row) {
    for (int part = 0; part < 3; ++part) {
      for (size_t at = row * width; at < (row + 1) * width; at += head) {
        double squares = 0;
        for (size_t i = at; i < at + head; ++i) squares += parts[part][i] * parts[part][i];
        const double norm =
            part == 2 ? 1 : std::sqrt(squares + 1e-6) * (part == 0 ? std::sqrt(double(head)) : 1);
        for (size_t i = at; i < at + head; ++i) out.push_back(parts[part][i] / norm);
      }
    }
  }
  return out;
}

// The reference pads each row with -1 to the largest size there is.
void ExpectSelected(Recorder& recorder, const std::string& layer, const Reference& reference,
                    const std::string& name) {
  const auto want = reference.Ints(name);
  const auto &got = recorder.ints[layer + ".selected"], &counts = recorder.ints[layer + ".selected_count"];
  ASSERT_EQ(got.size(), want.size()) << name;
  const size_t width = want.size() / counts.size();
  for (size_t row = 0; row < counts.size(); ++row) {
    const auto w = std::span(want).subspan(row * width, width);
    const auto g = std::span(got).subspan(row * width, static_cast<size_t>(counts[row]));
    ASSERT_EQ(std::vector(g.begin(), g.end()), std::vector(w.begin(), std::find(w.begin(), w.end(), -1)))
        << name << ", row " << row;
  }
}

TEST_P(ReferenceTest, InsideOfTheLayers) {
  const auto& hp = model_.impl()->data.hparams;
  std::set<std::string> seen;
  for (const auto& prompt : prompts_) {
    SCOPED_TRACE(prompt);
    const auto ids = reference_.Ints(prompt + ".ids");
    auto session = NewSession(model_);
    Recorder recorder(hp);
    session.impl().observer = recorder.observer();
    ASSERT_TRUE(session.Append(ids, LogitRows::kNone, {}).ok());
    for (const auto& tensor : reference_.tensors()) {
      if (tensor.name.rfind(prompt + ".L", 0) != 0) continue;
      const std::string rest = tensor.name.substr(prompt.size() + 2);  // "3.index.selected"
      const std::string layer = rest.substr(0, rest.find('.')), name = rest.substr(rest.find('.') + 1);
      if (const auto found = FloatNames().find(name); found != FloatNames().end()) {
        const auto want = reference_.Floats(tensor.name);
        const auto& got = recorder.floats[layer + "." + found->second];
        ExpectNear(want, got, kInsideTolerance * Largest(want), tensor.name);
        seen.insert(name);
      } else if (name == "kda.q") {
        const auto want = NormalisedQkv(reference_, prompt + ".L" + layer + ".", hp);
        ExpectNear(want, recorder.floats[layer + ".qkv"], kInsideTolerance, tensor.name);
        seen.insert(name);
      } else if (name == "router.ids") {
        EXPECT_EQ(recorder.ints[layer + ".expert_ids"], reference_.Ints(tensor.name)) << tensor.name;
        seen.insert(name);
      } else if (name == "index.selected") {
        ExpectSelected(recorder, layer, reference_, tensor.name);
        seen.insert(name);
      }
    }
    if (reference_.Has(prompt + ".final_norm")) {
      const auto want = reference_.Floats(prompt + ".final_norm");
      ExpectNear(want, recorder.floats["-1.final"], kInsideTolerance * Largest(want), prompt + ".final_norm");
    }
  }
  EXPECT_EQ(seen.size(), FloatNames().size() + 3) << "some kind of tensor was never compared";
}

TEST_P(ReferenceTest, StatesAfterThePrompt) {
  const auto& hp = model_.impl()->data.hparams;
  int compared = 0;
  for (const auto& prompt : prompts_) {
    const auto ids = reference_.Ints(prompt + ".ids");
    auto session = NewSession(model_);
    ASSERT_TRUE(session.Append(ids, LogitRows::kNone, {}).ok());
    auto& state = dynamic_cast<cpu::SequenceState&>(*session.impl().state);
    const int64_t end = state.position(), rows = end % hp.block, width = hp.kda_width(),
                  head = hp.kda_head_dim;
    for (int layer = 0; layer < hp.layers; ++layer) {
      const std::string prefix = prompt + ".L" + std::to_string(layer) + ".";
      if (reference_.Has(prefix + "kda.state")) {
        // S stands at the block's start; what the block's rows add is docs/design.md's last line of kda.recur, in double.
        const auto kda = state.Kda(layer);
        std::vector<float> got;
        for (int64_t h = 0; h < hp.kda_heads; ++h) {
          for (int64_t i = 0; i < head; ++i) {
            const double decay = rows == 0 ? 1 : std::exp(double{kda.g[(rows - 1) * width + h * head + i]});
            for (int64_t j = 0; j < head; ++j) {
              double sum = kda.s[(h * head + i) * head + j];
              for (int64_t s = 0; s < rows; ++s) {
                sum += double{kda.kf[s * width + h * head + i]} * double{kda.delta[s * width + h * head + j]};
              }
              got.push_back(static_cast<float>(decay * sum));
            }
          }
        }
        const auto want = reference_.Floats(prefix + "kda.state");
        ExpectNear(want, got, kInsideTolerance * Largest(want), prefix + "kda.state");
        ++compared;
      }
      if (reference_.Has(prefix + "kda.conv_state")) {
        // The reference keeps four inputs, of which only the last three matter.
        const auto kda = state.Kda(layer);
        const auto stored = reference_.Floats(prefix + "kda.conv_state");
        std::vector<double> want;
        std::vector<float> got;
        for (int64_t channel = 0; channel < 3 * width; ++channel) {
          for (int64_t back = 3; back >= 1; --back) {
            want.push_back(stored[channel * 4 + 4 - back]);
            got.push_back(kda.conv[(end - back) % state.layout().conv_ring * 3 * width + channel]);
          }
        }
        ExpectNear(want, got, kInsideTolerance * Largest(want), prefix + "kda.conv_state");
        ++compared;
      }
      if (reference_.Has(prefix + "index.pool_keys")) {
        const auto want = reference_.Floats(prefix + "index.pool_keys");
        const float* pooled = state.Dsa(layer).pooled;
        ExpectNear(want, {pooled, want.size()}, kInsideTolerance * Largest(want), prefix + "index.pool_keys");
        ++compared;
      }
    }
  }
  EXPECT_GE(compared, 3);
}

TEST_P(ReferenceTest, MtpBlock) {
  if (!reference_.Has("p20.nextn.logits")) {
    EXPECT_FALSE(Model::Open(test::ModelPath(GetParam().model, GetParam().form), {.mtp = true}).ok());
    return;
  }
  const Model model = Open(true);
  const auto& hp = model.impl()->data.hparams;
  const auto hidden_size = static_cast<size_t>(model.hidden_size());
  int compared = 0;
  for (const auto& prompt : prompts_) {
    if (!reference_.Has(prompt + ".nextn.logits")) continue;
    ++compared;
    SCOPED_TRACE(prompt);
    const auto ids = reference_.Ints(prompt + ".ids"), next = reference_.Ints(prompt + ".nextn.tokens");
    const auto want = reference_.Floats(prompt + ".nextn.logits");
    const auto [low, high] = std::minmax_element(want.begin(), want.end());
    const double tolerance = kLogitsTolerance * (*high - *low);

    auto session = NewSession(model, true);
    std::vector<float> hidden(ids.size() * hidden_size), logits(ids.size() * vocab(), NAN),
        out(hidden.size(), NAN);
    ASSERT_TRUE(session.AppendWithHidden(ids, LogitRows::kNone, {}, hidden).ok());
    const auto h_in = reference_.Floats(prompt + ".nextn.h_in");
    ExpectNear(h_in, hidden, kInsideTolerance * Largest(h_in), "nextn.h_in");

    Recorder recorder(hp);
    session.impl().observer = recorder.observer();
    ASSERT_TRUE(session.AppendMtp(next, hidden, logits, out).ok());
    session.impl().observer = {};
    const std::string layer = std::to_string(hp.layers);
    const auto h_out = reference_.Floats(prompt + ".nextn.h_out");
    ExpectNear(h_out, out, kInsideTolerance * Largest(h_out), "nextn.h_out");
    for (const auto& [name, key] : std::map<std::string, std::string>{
             {"eh", "residual.input"}, {"attn_out", "branch.attn"}, {"moe_out", "branch.ffn"}}) {
      const auto inside = reference_.Floats(prompt + ".nextn." + name);
      ExpectNear(inside, recorder.floats[layer + "." + key], kInsideTolerance * Largest(inside),
                 "nextn." + name);
    }
    ExpectSelected(recorder, layer, reference_, prompt + ".nextn.selected");
    ExpectNear(want, logits, tolerance, "nextn.logits");

    const auto drafts = reference_.Ints(prompt + ".nextn.draft.ids");
    const auto draft_logits = reference_.Floats(prompt + ".nextn.draft.logits");
    std::vector<float> row(logits.end() - static_cast<ptrdiff_t>(vocab()), logits.end());
    std::vector<float> h(out.end() - static_cast<ptrdiff_t>(hidden_size), out.end()), h_next(hidden_size);
    for (size_t k = 0; k < drafts.size(); ++k) {
      ExpectNear({draft_logits.data() + k * vocab(), vocab()}, row, tolerance, "draft " + std::to_string(k));
      const int32_t id = ArgMax(row);
      ASSERT_EQ(id, drafts[k]) << "draft " << k;
      ASSERT_TRUE(session.AppendMtp({&id, 1}, h, row, h_next).ok());
      h = h_next;
    }

    // Cut into parts, drafted rows thrown away in between: the same numbers.
    auto again = NewSession(model, true);
    ASSERT_TRUE(again.AppendWithHidden(ids, LogitRows::kNone, {}, hidden).ok());
    std::vector<float> parts(logits.size(), NAN);
    for (size_t done = 0, size = 1; done < next.size();
         done += size, size = std::min(size + 2, next.size() - done)) {
      const auto tokens = std::span(next).subspan(done, size);
      const auto rows = std::span(hidden).subspan(done * hidden_size, size * hidden_size);
      ASSERT_TRUE(
          again.AppendMtp(tokens, rows, std::span(parts).subspan(done * vocab(), size * vocab()), {}).ok());
      const auto at = again.mtp_position();
      const std::vector<int32_t> wrong(2, 7);
      ASSERT_TRUE(again.AppendMtp(wrong, std::vector<float>(2 * hidden_size, 0.5f), {}, {}).ok());
      ASSERT_TRUE(again.TruncateMtp(at).ok());
    }
    EXPECT_EQ(0, std::memcmp(parts.data(), logits.data(), parts.size() * sizeof(float)));
  }
  EXPECT_GE(compared, 2);
}

INSTANTIATE_TEST_SUITE_P(Models, ReferenceTest,
                         testing::Values(Case{"micro", "hf", false}, Case{"micro", "hf", true},
                                         Case{"micro", "gguf", false}, Case{"tile", "hf", false},
                                         Case{"tile", "hf", true}, Case{"tile", "gguf", false}),
                         [](const auto& param_info) {
                           return std::string(param_info.param.model) + "_" + param_info.param.form +
                                  (param_info.param.canonical ? "_canonical" : "");
                         });

}  // namespace
}  // namespace glint
