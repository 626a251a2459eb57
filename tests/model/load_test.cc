// GGUF files of every dialect, whole and split, with and without their MTP block, and the ways in which they can be wrong.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "model/census.h"
#include "model/load.h"
#include "model/model_data.h"
#include "tests/model/dialects.h"
#include "tests/model/scratch.h"
#include "text/byte_alphabet.h"
#include "text/gguf_tokenizer.h"

namespace glint::model {
namespace {

const std::string kMicro = std::string(GLINT_TEST_DATA) + "/reference/micro";

const ModelData& Micro() {
  static const auto* model = new Result<ModelData>(Load(kMicro));
  EXPECT_TRUE(model->ok()) << model->status().message();
  return **model;
}

void ExpectMessage(const Status& status, Code code, std::initializer_list<std::string_view> parts) {
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.code(), code) << status.message();
  for (const std::string_view part : parts) {
    EXPECT_NE(status.message().find(part), std::string::npos)
        << "no \"" << part << "\" in: " << status.message();
  }
}

class EveryDialect : public testing::TestWithParam<Dialect> {
 protected:
  Result<ModelData> WriteAndLoad(DialectOptions options, const LoadOptions& load = {}, int named = 0) {
    options.dialect = GetParam();
    auto paths = WriteDialect(Micro(), scratch_ / "model", options);
    if (!paths.ok()) return paths.status();
    return Load((*paths)[static_cast<size_t>(named)], load);
  }
  Scratch scratch_;
};

TEST_P(EveryDialect, LoadsTheSameModel) {
  auto model = WriteAndLoad({});
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->hparams, Micro().hparams);
  EXPECT_EQ(AllTensors(*model), AllTensors(Micro()));
  EXPECT_EQ(model->dialect, std::string(Name(GetParam())).substr(std::string(Name(GetParam())).size() - 1));
  EXPECT_EQ(model->name, "written by a test");
}

TEST_P(EveryDialect, LoadsTheSameFromAnyShard) {
  for (int named = 0; named < 4; ++named) {
    auto model = WriteAndLoad({.shards = 4}, {}, named);
    ASSERT_TRUE(model.ok()) << model.status().message();
    EXPECT_EQ(model->hparams, Micro().hparams);
    EXPECT_EQ(AllTensors(*model), AllTensors(Micro()));
  }
}

TEST_P(EveryDialect, TrunkOnly) {
  auto model = WriteAndLoad({.mtp = false});
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->hparams.nextn_layers, 0);
  EXPECT_EQ(model->weights.nextn.size(), 0u);
  EXPECT_TRUE(model->notes.empty() || GetParam() == Dialect::kB);
  ExpectMessage(WriteAndLoad({.mtp = false}, {.require_mtp = true}).status(), Code::kBadFile,
                {"MTP", "model.gguf"});
}

TEST_P(EveryDialect, VariantsOfShapeMeanTheSame) {
  auto model = WriteAndLoad({.a_as_row = true, .scalar_clamp = true});
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->hparams, Micro().hparams);
  EXPECT_EQ(AllTensors(*model), AllTensors(Micro()));
}

TEST_P(EveryDialect, MissingPoolSizeIsRefused) {
  auto model = WriteAndLoad(
      {.drop = {"attention.indexer.kpool", "attention.indexer.block_size", "attention.indexer.pool_size"}});
  ExpectMessage(model.status(), Code::kBadFile, {"attention.indexer.kpool", "missing", "model.gguf"});
}

TEST_P(EveryDialect, IncompleteMtpBlockIsLeftOutOrNamed) {
  for (const char* gone :
       {"blk.8.nextn.eh_proj.weight", "blk.8.ffn_down_exps.weight", "blk.8.attn_norm.weight"}) {
    SCOPED_TRACE(gone);
    auto model = WriteAndLoad({.drop = {gone}});
    ASSERT_TRUE(model.ok()) << model.status().message();
    EXPECT_EQ(model->weights.nextn.size(), 0u);
    EXPECT_EQ(model->hparams.nextn_layers, 0);
    ASSERT_FALSE(model->notes.empty());
    EXPECT_NE(model->notes.back().find(gone), std::string::npos) << model->notes.back();
    ExpectMessage(WriteAndLoad({.drop = {gone}}, {.require_mtp = true}).status(), Code::kBadFile,
                  {gone, "model.gguf"});
    // Not wanted, not missed.
    auto without = WriteAndLoad({.drop = {gone}}, {.mtp = false});
    ASSERT_TRUE(without.ok());
    EXPECT_EQ(without->notes.size(), GetParam() == Dialect::kB ? 1u : 0u);
  }
}

TEST_P(EveryDialect, MoreMtpBlocksThanThereAre) {
  DialectOptions options{.more = [](gguf::Writer& w, const std::string& arch) {
    w.SetU32(arch + ".block_count", 10);
    w.SetU32(arch + ".nextn_predict_layers", 2);
  }};
  auto model = WriteAndLoad(options);
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->weights.nextn.size(), 0u);
  ASSERT_FALSE(model->notes.empty());
  ExpectMessage(WriteAndLoad(options, {.require_mtp = true}).status(), Code::kBadFile, {"2 MTP blocks"});
}

TEST_P(EveryDialect, EveryTensorIsNeeded) {
  DialectOptions options;
  options.dialect = GetParam();
  for (const auto census = TakeCensus(kMicro); const CensusTensor& tensor : census->tensors) {
    if (tensor.name.starts_with("blk.8.") ||
        (tensor.name.starts_with("blk.") && tensor.name[4] != '3' && tensor.name[4] != '0')) {
      continue;  // one block of each kind will do
    }
    options.drop = {tensor.name};
    auto model = WriteAndLoad(options);
    // Names of D and of old C differ from the census' spelling: nothing was dropped then.
    if (model.ok()) {
      EXPECT_TRUE(GetParam() == Dialect::kD || GetParam() == Dialect::kOldC) << tensor.name;
      continue;
    }
    ExpectMessage(model.status(), model.status().code(), {tensor.name, "model.gguf"});
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryDialect, testing::ValuesIn(kAllDialects),
                         [](const auto& p) { return std::string(Name(p.param)); });

// Keys of dialect A, one wrong at a time.
struct WrongKey {
  const char* name;
  void (*set)(gguf::Writer&);
  Code code;
  const char* says;
};

class WrongKeys : public testing::TestWithParam<WrongKey> {};

TEST_P(WrongKeys, AreRefusedByName) {
  Scratch scratch;
  auto paths = WriteDialect(Micro(), scratch / "model",
                            {.more = [](gguf::Writer& w, const std::string&) { GetParam().set(w); }});
  ASSERT_TRUE(paths.ok()) << paths.status().message();
  ExpectMessage(Load(paths->front()).status(), GetParam().code, {GetParam().says, paths->front()});
}

INSTANTIATE_TEST_SUITE_P(
    One, WrongKeys,
    testing::Values(
        WrongKey{"architecture", [](gguf::Writer& w) { w.SetString("general.architecture", "llama"); },
                 Code::kUnsupported, "llama"},
        WrongKey{"projector", [](gguf::Writer& w) { w.SetString("general.architecture", "clip"); },
                 Code::kUnsupported, "projector"},
        WrongKey{"architecture_kind", [](gguf::Writer& w) { w.SetU32("general.architecture", 3); },
                 Code::kBadFile, "general.architecture"},
        WrongKey{"vocab_size", [](gguf::Writer& w) { w.SetU32("glm5next.vocab_size", 255); }, Code::kBadFile,
                 "vocab_size is 255"},
        WrongKey{"kind", [](gguf::Writer& w) { w.SetString("glm5next.embedding_length", "64"); },
                 Code::kBadFile, "embedding_length"},
        WrongKey{"blocks", [](gguf::Writer& w) { w.SetU32("glm5next.block_count", 1); }, Code::kBadFile,
                 "no trunk"},
        WrongKey{"blocks_huge", [](gguf::Writer& w) { w.SetU32("glm5next.block_count", 0xffffffff); },
                 Code::kBadFile, "block_count"},
        WrongKey{"more_blocks", [](gguf::Writer& w) { w.SetU32("glm5next.block_count", 12); }, Code::kBadFile,
                 "head_count_kv"},
        WrongKey{"nextn_in_trunk", [](gguf::Writer& w) { w.SetU32("glm5next.nextn_predict_layers", 2); },
                 Code::kBadFile, "blk.7.hc_attn_fn.weight"},
        WrongKey{"schedule_short",
                 [](gguf::Writer& w) {
                   w.SetU32s("glm5next.attention.head_count_kv", {0, 1});
                 },
                 Code::kBadFile, "head_count_kv has 2"},
        WrongKey{"schedule_value",
                 [](gguf::Writer& w) {
                   w.SetU32s("glm5next.attention.head_count_kv", {0, 0, 0, 4, 0, 0, 0, 1, 1});
                 },
                 Code::kBadFile, "head_count_kv[3] is 4"},
        WrongKey{"schedule_mtp",
                 [](gguf::Writer& w) {
                   w.SetU32s("glm5next.attention.head_count_kv", {0, 0, 0, 1, 0, 0, 0, 1, 0});
                 },
                 Code::kBadFile, "head_count_kv[8] is 0"},
        WrongKey{"schedule_other",
                 [](gguf::Writer& w) {
                   w.SetU32s("glm5next.attention.head_count_kv", {0, 0, 1, 0, 0, 0, 0, 1, 1});
                 },
                 Code::kBadFile, "blk.2.attn_q_a.weight"},
        WrongKey{"tail",
                 [](gguf::Writer& w) { w.SetBool("glm5next.attention.indexer.kpool_select_tail", false); },
                 Code::kUnsupported, "kpool_select_tail"},
        WrongKey{"shared_indexer",
                 [](gguf::Writer& w) {
                   w.SetStrings("glm5next.attention.indexer.types", {"full", "shared"});
                 },
                 Code::kUnsupported, "indexer.types"},
        WrongKey{"gating", [](gguf::Writer& w) { w.SetU32("glm5next.expert_gating_func", 1); },
                 Code::kUnsupported, "expert_gating_func is 1"},
        WrongKey{"groups",
                 [](gguf::Writer& w) {
                   w.SetU32("glm5next.expert_group_count", 4);
                   w.SetU32("glm5next.expert_group_used_count", 2);
                 },
                 Code::kUnsupported, "expert_group_count"},
        WrongKey{"clamps",
                 [](gguf::Writer& w) {
                   w.SetF32s("glm5next.swiglu_clamp_exp", {1, 1, 1, 2, 1, 1, 1, 1, 1});
                 },
                 Code::kUnsupported, "swiglu_clamp_exp has 2"},
        WrongKey{"clamp_kinds", [](gguf::Writer& w) { w.SetF32("glm5next.swiglu_clamp_shexp", 7); },
                 Code::kUnsupported, "swiglu_clamp_shexp has 7"},
        WrongKey{"clamp_zero",
                 [](gguf::Writer& w) {
                   w.SetF32("glm5next.swiglu_clamp_exp", 0);
                   w.SetF32("glm5next.swiglu_clamp_shexp", 0);
                 },
                 Code::kBadFile, "SwiGLU limit is 0"},
        WrongKey{"topk", [](gguf::Writer& w) { w.SetU32("glm5next.attention.indexer.top_k", 18); },
                 Code::kBadFile, "multiple of the pool size"},
        WrongKey{"shape", [](gguf::Writer& w) { w.SetU32("glm5next.attention.q_lora_rank", 25); },
                 Code::kBadFile, "blk.3.attn_q_a.weight: shape [64, 24], wanted [64, 25]"},
        WrongKey{"experts", [](gguf::Writer& w) { w.SetU32("glm5next.expert_count", 9); }, Code::kBadFile,
                 "blk.2.ffn_gate_inp.weight"},
        WrongKey{"nan", [](gguf::Writer& w) { w.SetF32("glm5next.attention.layer_norm_rms_epsilon", NAN); },
                 Code::kBadFile, "RMSNorm epsilon"}),
    [](const auto& p) { return std::string(p.param.name); });

TEST(LoadGguf, EveryKeyIsNeededOrHasAMeaningWithout) {
  // Absent, these leave the model as it is: other keys or tensors say the same, or their meaning without is this model's.
  const std::set<std::string> harmless = {"nextn_predict_layers", "vocab_size",
                                          "expert_gating_func",   "expert_shared_count",
                                          "expert_weights_norm",  "attention.layer_norm_epsilon",
                                          "kda.head_dim",         "expert_shared_feed_forward_length"};
  Scratch scratch;
  for (const char* key : {"block_count",
                          "nextn_predict_layers",
                          "embedding_length",
                          "feed_forward_length",
                          "attention.head_count",
                          "attention.layer_norm_rms_epsilon",
                          "attention.layer_norm_epsilon",
                          "attention.q_lora_rank",
                          "attention.kv_lora_rank",
                          "vocab_size",
                          "expert_count",
                          "expert_used_count",
                          "expert_gating_func",
                          "expert_feed_forward_length",
                          "expert_shared_count",
                          "expert_weights_scale",
                          "expert_weights_norm",
                          "attention.indexer.head_count",
                          "attention.indexer.key_length",
                          "attention.indexer.top_k",
                          "hyper_connection.count",
                          "hyper_connection.sinkhorn_iterations",
                          "hyper_connection.epsilon",
                          "attention.head_count_kv",
                          "context_length",
                          "ssm.conv_kernel",
                          "kda.head_dim",
                          "kda.gate_lower_bound",
                          "attention.indexer.kpool",
                          "expert_shared_feed_forward_length"}) {
    SCOPED_TRACE(key);
    auto paths = WriteDialect(Micro(), scratch / "model", {.drop = {key}});
    ASSERT_TRUE(paths.ok());
    auto model = Load(paths->front());
    if (harmless.contains(key)) {
      ASSERT_TRUE(model.ok()) << model.status().message();
      EXPECT_EQ(model->hparams, Micro().hparams);
    } else {
      ExpectMessage(model.status(), Code::kBadFile, {key, "missing", paths->front()});
    }
  }
}

TEST(LoadGguf, VectorsMustBeFinite) {
  Scratch scratch;
  const std::string bias = "blk.2.exp_probs_b.bias";
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    std::vector<float> values(static_cast<size_t>(Micro().hparams.experts));
    values[3] = bad;
    auto paths = WriteDialect(Micro(), scratch / "model",
                              {.drop = {bias}, .more = [&](gguf::Writer& w, const std::string&) {
                                 w.AddTensor(bias, 0, {values.size()}, 4 * values.size(),
                                             [values](const gguf::Writer::Sink& sink) {
                                               return sink(std::as_bytes(std::span(values)));
                                             });
                               }});
    ASSERT_TRUE(paths.ok()) << paths.status().message();
    ExpectMessage(Load(paths->front()).status(), Code::kBadFile,
                  {paths->front(), bias, "entry 3 is", "wanted a finite number"});
  }
}

TEST(LoadGguf, NoLimitStatedIsNoLimit) {
  Scratch scratch;
  auto paths = WriteDialect(Micro(), scratch / "model", {.drop = {"swiglu_clamp_exp", "swiglu_clamp_shexp"}});
  auto model = Load(paths->front());
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->hparams.swiglu_limit, std::numeric_limits<float>::infinity());
  ASSERT_EQ(model->notes.size(), 1u);
  EXPECT_NE(model->notes[0].find("SwiGLU clamp"), std::string::npos) << model->notes[0];
}

TEST(LoadGguf, SamplingHintsAreRead) {
  Scratch scratch;
  auto paths = WriteDialect(Micro(), scratch / "model", {.more = [](gguf::Writer& w, const std::string&) {
                              w.SetF32("general.sampling.temp", 0.75f);
                              w.SetF32("general.sampling.top_p", 0.5f);
                              w.SetI32("general.sampling.top_k", 40);
                            }});
  auto model = Load(paths->front());
  ASSERT_TRUE(model.ok());
  EXPECT_EQ(model->sampling.temperature, 0.75f);
  EXPECT_EQ(model->sampling.top_p, 0.5f);
  EXPECT_EQ(model->sampling.top_k, 40);
}

TEST(LoadGguf, SamplingHintsOutOfRangeAreIgnoredWithANote) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const auto& [temperature, top_p] : {std::pair{-1.0f, 0.0f}, {kNan, kNan}, {INFINITY, 1.5f}}) {
    Scratch scratch;
    auto paths = WriteDialect(Micro(), scratch / "model",
                              {.more = [t = temperature, p = top_p](gguf::Writer& w, const std::string&) {
                                w.SetF32("general.sampling.temp", t);
                                w.SetF32("general.sampling.top_p", p);
                              }});
    auto model = Load(paths->front());
    ASSERT_TRUE(model.ok()) << model.status().message();
    EXPECT_FALSE(model->sampling.temperature.has_value());
    EXPECT_FALSE(model->sampling.top_p.has_value());
    ASSERT_EQ(model->notes.size(), 2u);
    EXPECT_NE(model->notes[0].find("temperature"), std::string::npos) << model->notes[0];
    EXPECT_NE(model->notes[1].find("top_p"), std::string::npos) << model->notes[1];
  }
}

std::function<void(gguf::Writer&, const std::string&)> WithTokens(size_t count) {
  return [count](gguf::Writer& w, const std::string&) {
    text::TokenizerData data;
    for (size_t i = 0; i < count; ++i) {
      const char byte = static_cast<char>(static_cast<uint8_t>(i));
      data.tokens.push_back(i < 256 ? text::ToAlphabet({&byte, 1}) : "<more" + std::to_string(i) + ">");
      data.kinds.push_back(i < 256 ? text::TokenKind::kNormal : text::TokenKind::kControl);
    }
    data.stop_ids = {0};
    ASSERT_TRUE(text::WriteGgufTokenizer(data, "T", w).ok());
  };
}

TEST(LoadGguf, TokensBeyondTheEmbeddingAreRefusedRowsBeyondTheTokensArePadding) {
  Scratch scratch;
  auto paths = WriteDialect(Micro(), scratch / "model", {.more = WithTokens(257)});
  ASSERT_TRUE(paths.ok());
  ExpectMessage(Load(paths->front()).status(), Code::kBadFile, {"257 tokens", "256 rows", paths->front()});

  auto wide = LoadSynthetic("tiny,vocab=300");
  ASSERT_TRUE(wide.ok());
  paths = WriteDialect(*wide, scratch / "model", {.more = WithTokens(290)});
  ASSERT_TRUE(paths.ok());
  auto model = Load(paths->front());
  ASSERT_TRUE(model.ok()) << model.status().message();
  ASSERT_TRUE(model->tokenizer.has_value());
  EXPECT_EQ(model->tokenizer->tokens.size(), 300u);
  EXPECT_EQ(model->tokenizer->kinds[289], text::TokenKind::kControl);
  EXPECT_EQ(model->tokenizer->kinds[290], text::TokenKind::kUnused);
  EXPECT_EQ(model->chat_template, "T");
}

TEST(LoadGguf, MtpOnlyFileIsExplained) {
  Scratch scratch;
  DialectOptions options;
  for (const auto census = TakeCensus(kMicro); const CensusTensor& tensor : census->tensors) {
    if (tensor.name.starts_with("blk.") && !tensor.name.starts_with("blk.8."))
      options.drop.insert(tensor.name);
  }
  auto paths = WriteDialect(Micro(), scratch / "mtp-model", options);
  ASSERT_TRUE(paths.ok());
  ExpectMessage(Load(paths->front()).status(), Code::kUnsupported, {"only the MTP block", paths->front()});
}

// A raw A_log under the name of -exp(A_log) would give finite, plausible nonsense.
TEST(LoadGguf, SignOfTheDecayIsChecked) {
  Scratch scratch;
  auto changed = Micro();
  std::vector<float> a(changed.weights.layers[4].kda.a.begin(), changed.weights.layers[4].kda.a.end());
  for (const float bad : {-1.0f, 0.0f, NAN, INFINITY}) {
    a[2] = bad;
    changed.weights.layers[4].kda.a = a;
    auto paths = WriteDialect(changed, scratch / "model");
    ExpectMessage(Load(paths->front()).status(), Code::kBadFile, {"blk.4.ssm_a", "entry 2", "below 0"});
  }
}

// Every tensor with each of its dimensions off by one.
TEST(LoadGguf, EveryShapeIsChecked) {
  Scratch scratch;
  int checked = 0;
  for (const auto& tensors = AllTensors(Micro()); const Bytes& tensor : tensors) {
    const bool wanted = tensor.name.starts_with("blk.0.") || tensor.name.starts_with("blk.3.") ||
                        tensor.name.starts_with("blk.8.nextn") || !tensor.name.starts_with("blk.");
    if (!wanted) continue;
    auto paths =
        WriteDialect(Micro(), scratch / "model",
                     {.drop = {tensor.name}, .more = [&](gguf::Writer& w, const std::string&) {
                        // In place of the dropped one: one more row of F32.
                        auto shape = tensor.shape;
                        if (shape.size() == 1) {
                          shape[0] += 1;
                        } else {
                          shape[1] += 1;
                        }
                        std::vector<uint64_t> ne(shape.begin(), shape.end());
                        while (ne.size() > 1 && ne.back() == 1) ne.pop_back();
                        uint64_t bytes = 4;
                        for (const uint64_t n : ne) bytes *= n;
                        w.AddTensor(tensor.name, 0, ne, bytes, [bytes](const gguf::Writer::Sink& sink) {
                          return sink(std::vector<std::byte>(bytes));
                        });
                      }});
    ASSERT_TRUE(paths.ok()) << paths.status().message();
    auto model = Load(paths->front(), {.require_mtp = true});
    SCOPED_TRACE(tensor.name);
    ++checked;
    if (tensor.name == "token_embd.weight") {
      ExpectMessage(model.status(), Code::kBadFile, {"vocab_size is 256", "257 rows"});
    } else {
      ExpectMessage(model.status(), Code::kBadFile, {tensor.name, "wanted "});
    }
  }
  EXPECT_GT(checked, 50);
}

TEST(LoadGguf, QuantisedWeightsAreMappedAndUnknownTypesNamed) {
  Scratch scratch;
  auto tiny = LoadSynthetic("tiny,recipe=q4_k");
  ASSERT_TRUE(tiny.ok());
  auto paths = WriteDialect(*tiny, scratch / "model");
  ASSERT_TRUE(paths.ok()) << paths.status().message();
  auto model = Load(paths->front());
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(AllTensors(*model), AllTensors(*tiny));
  EXPECT_EQ(model->weights.layers[3].moe.gate.type, quant::Type::kQ4_K);

  for (const quant::Format& format : quant::Formats()) {
    auto changed = *tiny;
    Matrix& out = changed.weights.layers[1].kda.out;
    out.type = format.type;
    out.row_bytes = 256 / format.block_weights * format.block_bytes;
    std::vector<std::byte> bytes(out.bytes(), std::byte{0x35});
    out.data = bytes.data();
    paths = WriteDialect(changed, scratch / "model");
    ASSERT_TRUE(paths.ok()) << paths.status().message();
    model = Load(paths->front());
    if (format.runnable()) {
      ASSERT_TRUE(model.ok()) << model.status().message();
      EXPECT_EQ(AllTensors(*model), AllTensors(changed)) << format.name;
      EXPECT_EQ(model->weights.layers[1].kda.out.type, format.type);
    } else {
      ExpectMessage(model.status(), Code::kUnsupported,
                    {"blk.1.attn_output.weight", format.name, "q4_k", "iq2_s"});
    }
  }
}

TEST(LoadGguf, ScalesBesideMatricesAreTheirs) {
  Scratch scratch;
  const auto with = [&](const std::string& name, std::vector<float> values, uint32_t type = 0) {
    auto paths = WriteDialect(Micro(), scratch / "model", {.more = [&](gguf::Writer& w, const std::string&) {
                                const auto bytes = std::as_bytes(std::span(values));
                                w.AddTensor(name, type, {bytes.size() / (type == 1 ? 2 : 4)}, bytes.size(),
                                            [bytes](const gguf::Writer::Sink& sink) { return sink(bytes); });
                              }});
    return paths.ok() ? Load(paths->front()) : Result<ModelData>(paths.status());
  };
  std::vector<float> each(static_cast<size_t>(Micro().hparams.experts));
  for (size_t i = 0; i < each.size(); ++i) each[i] = 0.25f * static_cast<float>(i + 1);
  for (const bool one : {false, true}) {
    for (const char* name : {"blk.3.ffn_down_exps.scale", "blk.3.ffn_down_exps.weight.scale"}) {
      auto model = with(name, one ? std::vector<float>{3.5f} : each);
      ASSERT_TRUE(model.ok()) << model.status().message();
      const MoeFfn& moe = model->weights.layers[3].moe;
      EXPECT_EQ(moe.up.scales, nullptr);
      ASSERT_NE(moe.down.scales, nullptr);
      for (size_t i = 0; i < each.size(); ++i) EXPECT_EQ(moe.down.scales[i], one ? 3.5f : each[i]);
    }
  }
  auto head = with("output.scale", {0.5f});
  ASSERT_TRUE(head.ok()) << head.status().message();
  EXPECT_EQ(head->weights.head.scales[0], 0.5f);
  ExpectMessage(with("output.scale", {1, 2}).status(), Code::kBadFile,
                {"output.scale", "2 scales, wanted 1"});
  ExpectMessage(with("blk.3.ffn_down_exps.scale", {1, 2, 3}).status(), Code::kBadFile,
                {"ffn_down_exps.scale", "3 scales, wanted 1 or"});
  ExpectMessage(with("output.scale", {std::nanf("")}).status(), Code::kBadFile, {"output.scale", "finite"});
  ExpectMessage(with("output.scale", {1}, 1).status(), Code::kUnsupported, {"output.scale", "f32"});
}

TEST(LoadGguf, FusedKvIsExplained) {
  Scratch scratch;
  auto paths = WriteDialect(
      Micro(), scratch / "model",
      {.drop = {"blk.3.attn_k_b.weight"}, .more = [](gguf::Writer& w, const std::string&) {
         w.AddTensor(
             "blk.3.attn_kv_b.weight", 0, {32, 128}, 32 * 128 * 4,
             [](const gguf::Writer::Sink& sink) { return sink(std::vector<std::byte>(32 * 128 * 4)); });
       }});
  ExpectMessage(Load(paths->front()).status(), Code::kUnsupported, {"attn_kv_b", "convert the model again"});
}

TEST(LoadGguf, CensusOfAFileIsItsBytes) {
  Scratch scratch;
  for (const Dialect dialect : kAllDialects) {
    auto paths = WriteDialect(Micro(), scratch / "model", {.dialect = dialect, .shards = 3});
    auto census = TakeCensus(paths->back());
    ASSERT_TRUE(census.ok()) << census.status().message();
    uint64_t bytes = 0;
    for (const Bytes& tensor : AllTensors(Micro())) bytes += tensor.bytes.size();
    EXPECT_EQ(census->total_bytes, bytes);
    for (const CensusTensor& tensor : census->tensors) EXPECT_NE(tensor.role, Role::kOther) << tensor.name;
    auto hf = TakeCensus(kMicro);
    ASSERT_TRUE(hf.ok()) << hf.status().message();
    EXPECT_EQ(census->per_token, hf->per_token);
    EXPECT_EQ(census->mtp_bytes, hf->mtp_bytes);
  }
}

TEST(NameFromPath, TakesWhatAPersonWouldSay) {
  EXPECT_EQ(NameFromPath("/models/Flash-Q8-00001-of-00004.gguf"), "Flash-Q8");
  EXPECT_EQ(NameFromPath("dir/stories/"), "stories");
  EXPECT_EQ(NameFromPath("x.gguf"), "x");
  EXPECT_EQ(NameFromPath(".gguf"), ".gguf");
}

}  // namespace
}  // namespace glint::model
