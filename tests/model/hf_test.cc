// Hugging Face checkpoints: every tensor against the stored one by the published mapping (spec/gguf.md section 4), spellings,
// FP8, and what must be refused.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "base/half.h"
#include "model/glm_flash/hf_source.h"
#include "model/model_data.h"
#include "tests/model/dialects.h"
#include "tests/model/scratch.h"

namespace glint::model {
namespace {

const std::string kMicro = std::string(GLINT_TEST_DATA) + "/reference/micro";
const std::string kPrefix = "model.language_model.layers.";

class HfCheckpoint : public testing::Test {
 protected:
  HfCheckpoint() : tensors_(ReadRaw(kMicro)), config_(ReadText(kMicro + "/config.json")) {}

  Result<ModelData> LoadChanged(const LoadOptions& options = {}) {
    WriteText(scratch_ / "config.json", config_);
    WriteRaw(scratch_ / "model.safetensors", tensors_);
    return Load(scratch_.path(), options);
  }
  void ExpectRefused(Code code, std::initializer_list<std::string_view> parts,
                     const LoadOptions& options = {}) {
    auto model = LoadChanged(options);
    ASSERT_FALSE(model.ok());
    EXPECT_EQ(model.status().code(), code) << model.status().message();
    for (const std::string_view part : parts) {
      EXPECT_NE(model.status().message().find(part), std::string::npos)
          << "no \"" << part << "\" in: " << model.status().message();
    }
  }
  RawTensor& Raw(const std::string& name) { return *FindRaw(tensors_, name); }

  Scratch scratch_;
  std::vector<RawTensor> tensors_;
  std::string config_;
};

float At(const Matrix& m, int64_t slice, int64_t row, int64_t column) {
  EXPECT_EQ(m.type, quant::Type::kF32);
  float value;
  std::memcpy(&value, m.Row(slice, row) + 4 * column, 4);
  return value;
}

TEST_F(HfCheckpoint, ConfigIsRead) {
  auto model = LoadChanged();
  ASSERT_TRUE(model.ok()) << model.status().message();
  const HParams& hp = model->hparams;
  EXPECT_EQ(hp.vocab_size, 256);
  EXPECT_EQ(hp.hidden, 64);
  EXPECT_EQ(hp.layers, 8);
  EXPECT_EQ(hp.nextn_layers, 1);
  EXPECT_EQ(hp.mixers[3], Mixer::kDsa);
  EXPECT_EQ(hp.mixers[4], Mixer::kKda);
  EXPECT_EQ(hp.moe, (std::vector<uint8_t>{0, 0, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(hp.index_kpool, 4);
  EXPECT_EQ(hp.index_topk, 16);
  EXPECT_EQ(hp.swiglu_limit, 1.0f);
  EXPECT_EQ(hp.routed_scale, 2.5f);
  EXPECT_EQ(hp.hc_eps, 1e-6f);
  EXPECT_EQ(model->dialect, "hf");
  EXPECT_FALSE(model->tokenizer.has_value());
}

TEST_F(HfCheckpoint, TensorsFollowTheMapping) {
  auto model = LoadChanged();
  ASSERT_TRUE(model.ok()) << model.status().message();
  const Layer& dsa = model->weights.layers[3];
  const int64_t heads = 4, qk = 16, v = 16, lora = 32;
  const auto kv_b = Floats(Raw(kPrefix + "3.self_attn.kv_b_proj.weight"));
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t r = 0; r < lora; ++r) {
      for (int64_t d = 0; d < qk; ++d) {
        ASSERT_EQ(At(dsa.dsa.k_b, h, r, d), kv_b[static_cast<size_t>((h * (qk + v) + d) * lora + r)]);
      }
      for (int64_t d = 0; d < v; ++d) {
        ASSERT_EQ(At(dsa.dsa.v_b, h, d, r), kv_b[static_cast<size_t>((h * (qk + v) + qk + d) * lora + r)]);
      }
    }
  }
  for (int64_t expert = 0; expert < 8; ++expert) {
    const std::string name = kPrefix + "5.mlp.experts." + std::to_string(expert);
    const MoeFfn& moe = model->weights.layers[5].moe;
    const auto gate = Floats(Raw(name + ".gate_proj.weight")), up = Floats(Raw(name + ".up_proj.weight")),
               down = Floats(Raw(name + ".down_proj.weight"));
    for (int64_t r = 0; r < 32; ++r) {
      for (int64_t c = 0; c < 64; ++c) {
        ASSERT_EQ(At(moe.gate, expert, r, c), gate[static_cast<size_t>(r * 64 + c)]);
        ASSERT_EQ(At(moe.up, expert, r, c), up[static_cast<size_t>(r * 64 + c)]);
        ASSERT_EQ(At(moe.down, expert, c, r), down[static_cast<size_t>(c * 32 + r)]);
      }
    }
  }
  const auto a_log = Floats(Raw(kPrefix + "0.self_attn.A_log"));
  for (size_t h = 0; h < 4; ++h) {
    EXPECT_FLOAT_EQ(model->weights.layers[0].kda.a[h],
                    static_cast<float>(std::exp(static_cast<double>(a_log[h]))));
  }
  const auto conv = Floats(Raw(kPrefix + "1.self_attn.v_conv1d.weight"));
  EXPECT_EQ(std::vector<float>(model->weights.layers[1].kda.conv_v.begin(),
                               model->weights.layers[1].kda.conv_v.end()),
            conv);
  const auto head_norm = Floats(Raw(kPrefix + "8.shared_head.norm.weight"));
  ASSERT_EQ(model->weights.nextn.size(), 1u);
  EXPECT_EQ(std::vector<float>(model->weights.nextn[0].shared_head_norm.begin(),
                               model->weights.nextn[0].shared_head_norm.end()),
            head_norm);
}

TEST_F(HfCheckpoint, OtherSpellingsMeanTheSame) {
  const auto original = LoadChanged();
  ASSERT_TRUE(original.ok());
  const auto want = AllTensors(*original);
  // Text-only prefix, hyper-connections as modules, fused experts.
  for (RawTensor& t : tensors_) {
    if (t.name.starts_with("model.language_model.")) t.name = "model." + t.name.substr(21);
    for (const std::string site : {"attn", "ffn"}) {
      if (const size_t at = t.name.find("hc_" + site + "_"); at != std::string::npos)
        t.name.replace(at, site.size() + 4, site + "_hc.");
    }
    if (t.name.ends_with("A_log")) t.shape = {1, 1, t.shape[0], 1};
  }
  std::vector<RawTensor> fused;
  for (int layer = 2; layer <= 8; ++layer) {
    const std::string base = "model.layers." + std::to_string(layer) + ".mlp.experts.";
    RawTensor gate_up{base + "gate_up_proj", "F32", {8, 64, 64}, {}},
        down{base + "down_proj", "F32", {8, 64, 32}, {}};
    for (int e = 0; e < 8; ++e) {
      const auto append = [&](RawTensor& to, const std::string& name) {
        const RawTensor& from = Raw(base + std::to_string(e) + "." + name);
        to.bytes.insert(to.bytes.end(), from.bytes.begin(), from.bytes.end());
      };
      append(gate_up, "gate_proj.weight");
      append(gate_up, "up_proj.weight");
      append(down, "down_proj.weight");
    }
    fused.push_back(std::move(gate_up));
    fused.push_back(std::move(down));
  }
  std::erase_if(tensors_, [](const RawTensor& t) {
    return t.name.find("mlp.experts.") != std::string::npos && t.name.ends_with("_proj.weight");
  });
  tensors_.insert(tensors_.end(), fused.begin(), fused.end());
  // Only one spelling of the KDA keys, the text model at the top level, counting leading dense layers.
  for (const char* key : {"\"linear_head_dim\": 16,", "\"linear_num_heads\": 4,",
                          "\"linear_conv_kernel_dim\": 4,", "\"linear_lower_bound\": -5.0,"}) {
    config_ = Replaced(config_, key, "");
  }
  config_ = Replaced(config_, "mlp_layer_types", "unused_1");
  config_ = Replaced(config_, "layer_types", "unused_2");
  const size_t text = config_.find("\"text_config\": {");
  const size_t vision = config_.find("\"vision_config\"");
  std::string inner = config_.substr(text + 16, config_.rfind('}', vision) - text - 16);
  inner = Replaced(inner, "\"model_type\": \"glm5_next_text\",", "");
  inner = Replaced(inner, "\"dtype\": \"float32\",", "");
  inner = Replaced(inner, "\"tie_word_embeddings\": false,", "");
  config_ = "{\"model_type\": \"glm5_next_text\"," + inner + "}";
  auto model = LoadChanged();
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->hparams, original->hparams);
  EXPECT_EQ(AllTensors(*model), want);
}

TEST_F(HfCheckpoint, LayerListsMayCountFromOne) {
  const auto original = LoadChanged();
  config_ = Replaced(config_, "\"layer_types\"", "\"unused\"");
  const size_t at = config_.find("\"kda_layers\"");
  config_ = config_.substr(0, at) + "\"kda_layers\": [1,2,3,5,6,7], \"full_attn_layers\": [4,8]}}}";
  auto model = LoadChanged();
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->hparams, original->hparams);
  config_ = Replaced(config_, "[4,8]", "[4,9]");
  ExpectRefused(Code::kBadFile, {"kda_layers", "config.json"});
}

TEST_F(HfCheckpoint, WrongConfigsAreRefused) {
  const std::string good = config_;
  const auto refused = [&](const std::string& from, const std::string& to, Code code, const char* says) {
    SCOPED_TRACE(to);
    config_ = Replaced(good, from, to);
    ExpectRefused(code, {says, "config.json"});
  };
  refused("\"index_kpool\": 4", "\"unused\": 4", Code::kBadFile, "index_kpool");
  refused("\"index_kpool\": 4", "\"index_kpool\": null", Code::kBadFile, "index_kpool");
  refused("\"index_kpool\": 4", "\"index_kpool\": \"4\"", Code::kBadFile, "index_kpool");
  refused("\"index_kpool_always_select_tail\": true", "\"index_kpool_always_select_tail\": false",
          Code::kUnsupported, "always_select_tail");
  refused("\"qk_rope_head_dim\": 0", "\"qk_rope_head_dim\": 64", Code::kUnsupported, "qk_rope_head_dim");
  refused("\"scoring_func\": \"sigmoid\"", "\"scoring_func\": \"softmax\"", Code::kUnsupported,
          "scoring_func");
  refused("\"n_group\": 1", "\"n_group\": 2", Code::kUnsupported, "n_group");
  refused("\"hidden_act\": \"silu\"", "\"hidden_act\": \"gelu\"", Code::kUnsupported, "hidden_act");
  refused("\"model_type\": \"glm5_next\"", "\"model_type\": \"llama\"", Code::kUnsupported, "model_type");
  refused("\"linear_num_heads\": 4", "\"linear_num_heads\": 5", Code::kBadFile,
          "linear_attn_config.num_heads is 4");
  refused("\"num_hidden_layers\": 8", "\"num_hidden_layers\": 80000000000", Code::kBadFile,
          "num_hidden_layers");
  refused("\"num_hidden_layers\": 8", "\"num_hidden_layers\": 9", Code::kBadFile, "layer_types has 8");
  refused("\"num_hidden_layers\": 8", "\"num_hidden_layers\": 6", Code::kBadFile, "layer_types has 8");
  refused("\"hc_mult\": 4,", "", Code::kBadFile, "hc_mult");
  refused("\"full\"", "\"shared\"", Code::kUnsupported, "indexer_types");
  config_ = good.substr(0, good.size() / 2);
  ExpectRefused(Code::kBadFile, {"config.json"});
}

TEST_F(HfCheckpoint, MissingAndMisshapenTensorsAreNamed) {
  const auto good = tensors_;
  for (const char* name :
       {"3.self_attn.kv_b_proj.weight", "2.mlp.experts.5.up_proj.weight", "0.self_attn.A_log",
        "4.self_attn.k_conv1d.weight", "7.self_attn.indexer.index_kpool_compress_gate"}) {
    SCOPED_TRACE(name);
    tensors_ = good;
    std::erase_if(tensors_, [&](const RawTensor& t) { return t.name == kPrefix + name; });
    ExpectRefused(Code::kBadFile, {name, "missing"});
    tensors_ = good;
    RawTensor& t = Raw(kPrefix + name);
    t.shape[0] -= 1;
    uint64_t bytes = 4;
    for (const uint64_t n : t.shape) bytes *= n;
    t.bytes.resize(bytes);
    ExpectRefused(Code::kBadFile, {name, "shape [", "wanted ["});
  }
  tensors_ = good;
  Raw("lm_head.weight").dtype = "I32";
  ExpectRefused(Code::kUnsupported, {"lm_head.weight", "I32", "BF16"});
  tensors_ = good;
  RawTensor& one = Raw(kPrefix + "2.mlp.experts.5.up_proj.weight");
  one.dtype = "BF16";
  one.bytes.resize(one.bytes.size() / 2);
  ExpectRefused(Code::kUnsupported, {"2.mlp.experts.5.up_proj.weight", "BF16", "F32"});
}

TEST_F(HfCheckpoint, IncompleteMtpBlock) {
  std::erase_if(tensors_, [&](const RawTensor& t) { return t.name == kPrefix + "8.hnorm.weight"; });
  auto model = LoadChanged();
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_TRUE(model->weights.nextn.empty());
  ASSERT_EQ(model->notes.size(), 1u);
  EXPECT_NE(model->notes[0].find("8.hnorm.weight"), std::string::npos);
  ExpectRefused(Code::kBadFile, {"8.hnorm.weight"}, {.require_mtp = true});
}

TEST_F(HfCheckpoint, HalfTypesStayAsTheyAre) {
  for (const char* dtype : {"BF16", "F16"}) {
    SCOPED_TRACE(dtype);
    tensors_ = ReadRaw(kMicro);
    const bool bf16 = std::string_view(dtype) == "BF16";
    for (RawTensor& t : tensors_) {
      const auto values = Floats(t);
      t.dtype = dtype;
      t.bytes.resize(values.size() * 2);
      for (size_t i = 0; i < values.size(); ++i) {
        const uint16_t bits = bf16 ? FloatToBFloat(values[i]) : FloatToHalf(values[i]);
        std::memcpy(t.bytes.data() + 2 * i, &bits, 2);
      }
    }
    auto model = LoadChanged();
    ASSERT_TRUE(model.ok()) << model.status().message();
    const Matrix& k_b = model->weights.layers[3].dsa.k_b;
    EXPECT_EQ(k_b.type, bf16 ? quant::Type::kBF16 : quant::Type::kF16);
    uint16_t got, want;
    std::memcpy(&got, k_b.Row(2, 5) + 2 * 7, 2);  // head 2, latent 5, width 7
    std::memcpy(&want,
                Raw(kPrefix + "3.self_attn.kv_b_proj.weight").bytes.data() + 2 * ((2 * 32 + 7) * 32 + 5), 2);
    EXPECT_EQ(got, want);
    EXPECT_EQ(model->weights.layers[5].moe.down.type, k_b.type);
  }
}

// FP8 with a scale for 128 x 128 weights, at sizes around the block's. The codes are decoded by the format's definition
// (sign, 4 exponent bits of bias 7, 3 mantissa bits) in double.
TEST(HfFp8, IsDequantised) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  Scratch scratch;
  for (const auto& [rows, columns] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 1}, {127, 129}, {128, 128}, {129, 127}, {300, 200}, {256, 384}}) {
    SCOPED_TRACE(testing::Message() << rows << " x " << columns);
    const int64_t down = (rows + 127) / 128, across = (columns + 127) / 128;
    RawTensor weight{"model.layers.0.mlp.gate_proj.weight",
                     "F8_E4M3",
                     {static_cast<uint64_t>(rows), static_cast<uint64_t>(columns)},
                     {}};
    RawTensor scale{
        weight.name + "_scale_inv", "F32", {static_cast<uint64_t>(down), static_cast<uint64_t>(across)}, {}};
    for (int64_t i = 0; i < rows * columns; ++i) {
      auto code = static_cast<uint8_t>(rng());
      if ((code & 0x7f) == 0x7f) code = 0;  // NaN
      weight.bytes.push_back(std::byte{code});
    }
    std::vector<float> scales;
    for (int64_t i = 0; i < down * across; ++i)
      scales.push_back(std::uniform_real_distribution<float>(1e-4f, 1e-2f)(rng));
    scale.bytes.resize(scales.size() * 4);
    std::memcpy(scale.bytes.data(), scales.data(), scale.bytes.size());
    WriteRaw(scratch / "model.safetensors", std::vector<RawTensor>{scale, weight});

    auto files = gguf::SafeTensors::OpenDirectory(scratch.path());
    ASSERT_TRUE(files.ok()) << files.status().message();
    HParams hp;
    hp.hidden = columns, hp.dense_ffn = rows;
    Arena arena;
    HfSource source(hp, *files, arena);
    const TensorKind& kind = Kind(TensorId::kDenseGate);
    auto m = source.GetMatrix({&kind, 0, kind.shape(hp)});
    ASSERT_TRUE(m.ok()) << m.status().message();
    ASSERT_EQ(m->type, quant::Type::kF32);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        const auto code = static_cast<int>(weight.bytes[static_cast<size_t>(r * columns + c)]);
        const int exponent = code >> 3 & 15, mantissa = code & 7;
        const double magnitude =
            exponent == 0 ? mantissa * std::pow(2, -9) : (8 + mantissa) * std::pow(2, exponent - 10);
        const double want = (code & 0x80 ? -magnitude : magnitude) *
                            double{scales[static_cast<size_t>(r / 128 * across + c / 128)]};
        ASSERT_EQ(At(*m, 0, r, c), static_cast<float>(want)) << r << ", " << c;
      }
    }
    scale.shape[0] += 1;
    scale.bytes.resize(scale.bytes.size() + static_cast<size_t>(across) * 4);
    WriteRaw(scratch / "model.safetensors", std::vector<RawTensor>{scale, weight});
    auto wrong = gguf::SafeTensors::OpenDirectory(scratch.path());
    ASSERT_TRUE(wrong.ok());
    EXPECT_FALSE(HfSource(hp, *wrong, arena).GetMatrix({&kind, 0, kind.shape(hp)}).ok());
    WriteRaw(scratch / "model.safetensors", std::vector<RawTensor>{weight});
    auto alone = gguf::SafeTensors::OpenDirectory(scratch.path());
    auto refused = HfSource(hp, *alone, arena).GetMatrix({&kind, 0, kind.shape(hp)});
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.status().message().find("_scale_inv"), std::string::npos) << refused.status().message();
  }
}

}  // namespace
}  // namespace glint::model
