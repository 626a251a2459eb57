#include "model/convert.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>

#include "base/half.h"
#include "gguf/gguf.h"
#include "model/glm_flash/gguf_source.h"
#include "model/model_data.h"
#include "tests/model/dialects.h"
#include "tests/model/scratch.h"

namespace glint::model {
namespace {

const std::string kMicro = std::string(GLINT_TEST_DATA) + "/reference/micro";

class Conversion : public testing::Test {
 protected:
  void Copy() {
    for (const char* name : {"config.json", "model.safetensors"}) {
      std::filesystem::copy_file(kMicro + "/" + name, scratch_ / name,
                                 std::filesystem::copy_options::overwrite_existing);
      std::filesystem::permissions(scratch_ / name, std::filesystem::perms::owner_write,
                                   std::filesystem::perm_options::add);
    }
  }
  Scratch scratch_;
};

TEST_F(Conversion, F32IsTheCheckpointBitForBit) {
  auto summary = Convert(kMicro, scratch_ / "out.gguf", {.type = quant::Type::kF32});
  ASSERT_TRUE(summary.ok()) << summary.status().message();
  EXPECT_EQ(summary->fallbacks, 0u);
  auto model = Load(scratch_ / "out.gguf", {.require_mtp = true});
  ASSERT_TRUE(model.ok()) << model.status().message();
  auto source = Load(kMicro);
  ASSERT_TRUE(source.ok());
  EXPECT_EQ(model->hparams, source->hparams);
  EXPECT_EQ(AllTensors(*model), AllTensors(*source));
  EXPECT_EQ(model->dialect, "A");
  EXPECT_EQ(model->name, "micro");
  EXPECT_EQ(summary->tensors, AllTensors(*source).size());
}

// Names, shapes and keys by spec/gguf.md 2.1 and 3: what other programs look for.
TEST_F(Conversion, WritesDialectA) {
  ASSERT_TRUE(Convert(kMicro, scratch_ / "out.gguf", {.type = quant::Type::kQ8_0, .name = "M"}).ok());
  auto file = gguf::File::Open(scratch_ / "out.gguf", BlockSizeOf);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(*file->GetString("general.architecture"), "glm5next");
  EXPECT_EQ(*file->GetString("general.name"), "M");
  EXPECT_EQ(*file->GetUint("general.file_type"), 7u);
  EXPECT_EQ(*file->GetUint("glm5next.block_count"), 9u);
  EXPECT_EQ(*file->GetUint("glm5next.nextn_predict_layers"), 1u);
  EXPECT_EQ(*file->GetUints("glm5next.attention.head_count_kv"),
            (std::vector<uint64_t>{0, 0, 0, 1, 0, 0, 0, 1, 1}));
  EXPECT_EQ(*file->GetUint("glm5next.attention.key_length"), 32u);
  EXPECT_EQ(*file->GetUint("glm5next.attention.key_length_mla"), 16u);
  EXPECT_EQ(*file->GetUint("glm5next.attention.indexer.kpool"), 4u);
  EXPECT_EQ(file->GetFloats("glm5next.swiglu_clamp_exp")->size(), 9u);
  EXPECT_EQ(*file->GetUint("glm5next.rope.dimension_count"), 0u);
  EXPECT_EQ(*file->GetUint("glm5next.expert_gating_func"), 2u);
  const auto expect = [&](const char* name, std::array<uint64_t, 4> ne, int dims, quant::Type type) {
    const auto* t = file->FindTensor(name);
    ASSERT_NE(t, nullptr) << name;
    EXPECT_EQ(t->ne, ne) << name;
    EXPECT_EQ(t->dims, dims) << name;
    EXPECT_EQ(t->type, static_cast<uint32_t>(type)) << name;
  };
  using quant::Type;
  expect("token_embd.weight", {64, 256, 1, 1}, 2, Type::kQ8_0);
  expect("blk.0.ssm_conv1d_q.weight", {4, 1, 64, 1}, 4, Type::kF32);
  expect("blk.0.ssm_a", {4, 1, 1, 1}, 1, Type::kF32);
  expect("blk.0.ssm_dt.bias", {64, 1, 1, 1}, 1, Type::kF32);
  expect("blk.0.ssm_f_b.weight", {16, 64, 1, 1}, 2, Type::kF16);  // 16 columns hold no block
  expect("blk.0.hc_attn_fn.weight", {256, 24, 1, 1}, 2, Type::kQ8_0);
  expect("blk.3.attn_k_b.weight", {16, 32, 4, 1}, 3, Type::kF16);
  expect("blk.3.attn_v_b.weight", {32, 16, 4, 1}, 3, Type::kQ8_0);
  expect("blk.3.indexer_compressor_ape.weight", {16, 4, 1, 1}, 2, Type::kF32);
  expect("blk.3.indexer_compressor_gate.weight", {64, 16, 1, 1}, 2, Type::kQ8_0);
  expect("blk.3.indexer.proj.weight", {64, 2, 1, 1}, 2, Type::kF32);
  expect("blk.2.ffn_gate_inp.weight", {64, 8, 1, 1}, 2, Type::kF32);
  expect("blk.2.exp_probs_b.bias", {8, 1, 1, 1}, 1, Type::kF32);
  expect("blk.2.ffn_down_exps.weight", {32, 64, 8, 1}, 3, Type::kQ8_0);
  expect("blk.8.nextn.eh_proj.weight", {128, 64, 1, 1}, 2, Type::kQ8_0);
  EXPECT_EQ(file->FindTensor("blk.8.hc_attn_fn.weight"), nullptr);
  // -exp(A_log)
  auto raw = ReadRaw(kMicro);
  const auto a_log = Floats(*FindRaw(raw, "model.language_model.layers.0.self_attn.A_log"));
  float a[4];
  std::memcpy(a, file->FindTensor("blk.0.ssm_a")->data, sizeof a);
  for (int h = 0; h < 4; ++h) EXPECT_FLOAT_EQ(a[h], -std::exp(a_log[static_cast<size_t>(h)]));
}

// Every quantised row is what the format's own encoder makes of the checkpoint's row.
TEST_F(Conversion, QuantisesRowByRow) {
  auto source = Load(kMicro);
  ASSERT_TRUE(source.ok());
  for (const quant::Type type : {quant::Type::kBF16, quant::Type::kF16, quant::Type::kQ8_0}) {
    SCOPED_TRACE(quant::Name(type));
    ASSERT_TRUE(Convert(kMicro, scratch_ / "out.gguf", {.type = type}).ok());
    auto model = Load(scratch_ / "out.gguf");
    ASSERT_TRUE(model.ok()) << model.status().message();
    const auto check = [&](const Matrix& got, const Matrix& from) {
      const quant::Format& format = *quant::Find(got.type);
      EXPECT_EQ(got.type, type);
      std::vector<float> row(static_cast<size_t>(from.columns));
      std::vector<std::byte> want(got.row_bytes);
      for (int64_t s = 0; s < from.slices; ++s) {
        for (int64_t r = 0; r < from.rows; ++r) {
          std::memcpy(row.data(), from.Row(s, r), from.row_bytes);
          format.encode(row.data(), nullptr, want.data(), row.size());
          ASSERT_EQ(0, std::memcmp(want.data(), got.Row(s, r), want.size())) << s << ", " << r;
        }
      }
    };
    check(model->weights.layers[0].dense.down, source->weights.layers[0].dense.down);
    check(model->weights.layers[3].dsa.v_b, source->weights.layers[3].dsa.v_b);
    check(model->weights.layers[6].moe.up, source->weights.layers[6].moe.up);
    check(model->weights.nextn[0].eh_proj, source->weights.nextn[0].eh_proj);
    check(model->weights.head, source->weights.head);
  }
}

TEST_F(Conversion, FallsBackWhereRowsAreNoWholeBlocks) {
  auto summary = Convert(kMicro, scratch_ / "out.gguf", {.type = quant::Type::kQ4_K});
  ASSERT_TRUE(summary.ok()) << summary.status().message();
  EXPECT_GT(summary->fallbacks, 0u);
  auto model = Load(scratch_ / "out.gguf");
  ASSERT_TRUE(model.ok());
  EXPECT_EQ(model->weights.head.type, quant::Type::kQ8_0);              // 64 columns
  EXPECT_EQ(model->weights.layers[0].kda.f_b.type, quant::Type::kF16);  // 16
}

TEST_F(Conversion, ExpertsMayHaveTheirOwnType) {
  ASSERT_TRUE(Convert(kMicro, scratch_ / "out.gguf",
                      {.type = quant::Type::kBF16, .experts = quant::Type::kQ8_0, .experts_set = true})
                  .ok());
  auto model = Load(scratch_ / "out.gguf");
  ASSERT_TRUE(model.ok());
  EXPECT_EQ(model->weights.head.type, quant::Type::kBF16);
  EXPECT_EQ(model->weights.layers[2].moe.gate.type, quant::Type::kQ8_0);
  EXPECT_EQ(model->weights.layers[2].moe.shared_gate.type, quant::Type::kBF16);
  EXPECT_EQ(model->weights.layers[2].hc_attn.fn.type, quant::Type::kF32);
}

TEST_F(Conversion, NeverOverwritesItsInputs) {
  Copy();
  const std::string before = ReadText(scratch_ / "model.safetensors");
  std::filesystem::create_hard_link(scratch_ / "model.safetensors", scratch_ / "hard.gguf");
  std::filesystem::create_symlink(scratch_ / "model.safetensors", scratch_ / "soft.gguf");
  for (const char* out : {"model.safetensors", "hard.gguf", "soft.gguf", "config.json"}) {
    auto summary = Convert(scratch_.path(), scratch_ / out, {});
    ASSERT_FALSE(summary.ok()) << out;
    EXPECT_EQ(summary.status().code(), Code::kBadInput) << summary.status().message();
  }
  EXPECT_EQ(ReadText(scratch_ / "model.safetensors"), before);
}

TEST_F(Conversion, WhatATypeCanNotHoldIsNamed) {
  Copy();
  struct Bad {
    float value;
    quant::Type type;
    bool refused;
  };
  for (const Bad& bad : {Bad{NAN, quant::Type::kQ8_0, true}, Bad{INFINITY, quant::Type::kQ8_0, true},
                         Bad{NAN, quant::Type::kF32, false}, Bad{1e5f, quant::Type::kF16, true},
                         Bad{1e5f, quant::Type::kQ8_0, false}}) {
    auto raw = ReadRaw(kMicro);
    RawTensor& t = *FindRaw(raw, "model.language_model.layers.4.mlp.experts.6.up_proj.weight");
    std::memcpy(t.bytes.data() + 4 * (3 * 64 + 17), &bad.value, 4);
    WriteRaw(scratch_ / "model.safetensors", raw);
    auto summary = Convert(scratch_.path(), scratch_ / "out.gguf", {.type = bad.type});
    EXPECT_EQ(summary.ok(), !bad.refused) << bad.value;
    if (summary.ok() || !bad.refused) continue;
    EXPECT_NE(summary.status().message().find("blk.4.ffn_up_exps.weight"), std::string::npos)
        << summary.status().message();
    EXPECT_NE(summary.status().message().find("slice 6, row 3, column 17"), std::string::npos)
        << summary.status().message();
  }
}

// micro with the stories tokenizer: 4,096 rows of embedding and head.
TEST_F(Conversion, TokenizerTemplateAndSamplingGoAlong) {
  constexpr uint64_t kVocab = 4096, kHidden = 64;
  auto raw = ReadRaw(kMicro);
  for (const char* name : {"lm_head.weight", "model.language_model.embed_tokens.weight"}) {
    RawTensor& t = *FindRaw(raw, name);
    t.shape[0] = kVocab;
    t.bytes.resize(kVocab * kHidden * 4);
  }
  WriteRaw(scratch_ / "model.safetensors", raw);
  WriteText(scratch_ / "config.json",
            Replaced(ReadText(kMicro + "/config.json"), "\"vocab_size\": 256", "\"vocab_size\": 4096"));
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) {
    WriteText(scratch_ / name, ReadText(std::string(GLINT_TEST_DATA) + "/stories/" + name));
  }
  WriteText(scratch_ / "chat_template.jinja", "{{ messages }}");
  WriteText(scratch_ / "generation_config.json",
            R"({"temperature": 0.75, "top_p": 0.5, "top_k": 20, "eos_token_id": [4078, 4085, 4087]})");
  auto source = Load(scratch_.path());
  ASSERT_TRUE(source.ok()) << source.status().message();
  ASSERT_TRUE(Convert(scratch_.path(), scratch_ / "out.gguf", {.type = quant::Type::kQ8_0}).ok());
  auto model = Load(scratch_ / "out.gguf");
  ASSERT_TRUE(model.ok()) << model.status().message();
  for (const ModelData* m : {&*source, &*model}) {
    ASSERT_TRUE(m->tokenizer.has_value());
    EXPECT_EQ(m->tokenizer->tokens.size(), kVocab);
    EXPECT_EQ(m->tokenizer->stop_ids, (std::vector<int32_t>{4078, 4085, 4087}));
    EXPECT_EQ(m->chat_template, "{{ messages }}");
    EXPECT_EQ(m->sampling.temperature, 0.75f);
    EXPECT_EQ(m->sampling.top_p, 0.5f);
    EXPECT_EQ(m->sampling.top_k, 20);
  }
  EXPECT_EQ(model->tokenizer->tokens, source->tokenizer->tokens);
  EXPECT_EQ(model->tokenizer->kinds, source->tokenizer->kinds);
  EXPECT_EQ(model->tokenizer->merges, source->tokenizer->merges);
  EXPECT_EQ(model->tokenizer->ignore_merges, source->tokenizer->ignore_merges);
  EXPECT_EQ(model->tokenizer->pad_id, source->tokenizer->pad_id);

  // One token more than there are rows.
  WriteText(scratch_ / "config.json",
            Replaced(ReadText(kMicro + "/config.json"), "\"vocab_size\": 256", "\"vocab_size\": 4095"));
  auto wrong = Load(scratch_.path());
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.status().message().find("4095"), std::string::npos) << wrong.status().message();
}

TEST_F(Conversion, RefusalLeavesNothing) {
  auto summary = Convert(kMicro, scratch_ / "out.gguf", {.type = quant::Type::kQ8_K});
  ASSERT_FALSE(summary.ok());
  EXPECT_EQ(summary.status().code(), Code::kUnsupported);
  int calls = 0;
  summary =
      Convert(kMicro, scratch_ / "out.gguf", {.progress = [&](uint64_t, uint64_t) { return ++calls < 2; }});
  EXPECT_FALSE(summary.ok());
  EXPECT_TRUE(std::filesystem::is_empty(scratch_.path()));
}

TEST_F(Conversion, ByARecipe) {
  const auto recipe = Recipe::Read(
      "vectors = keep\nblk.3.* & role:dsa = bf16\nrole:experts = q8_0\n*.ffn_gate_inp = keep\n* = f16\n",
      "test");
  ASSERT_TRUE(recipe.ok()) << recipe.status().message();
  ConvertOptions options;
  options.recipe = &*recipe;
  options.inputs = {scratch_ / "my.recipe"};
  const auto summary = Convert(kMicro, scratch_ / "out.gguf", options);
  ASSERT_TRUE(summary.ok()) << summary.status().message();
  const auto file = gguf::File::Open(scratch_ / "out.gguf", BlockSizeOf);
  ASSERT_TRUE(file.ok());
  const auto type = [&](const char* name) {
    const auto* const info = file->FindTensor(name);
    return info == nullptr ? std::string("none")
                           : std::string(quant::Name(static_cast<quant::Type>(info->type)));
  };
  EXPECT_EQ(type("blk.3.attn_q_b.weight"), "bf16");
  EXPECT_EQ(type("blk.7.attn_q_b.weight"), "f16");
  EXPECT_EQ(type("blk.3.ffn_up_exps.weight"), "q8_0");
  EXPECT_EQ(type("blk.3.ffn_gate_inp.weight"), "f32");
  EXPECT_EQ(type("output_norm.weight"), "f32");
  EXPECT_EQ(*file->GetUint("general.file_type"), 1u);  // mostly f16
  // The recipe is an input: nothing is written over it.
  std::ofstream(scratch_ / "my.recipe") << "* = f16\n";
  const auto refused = Convert(kMicro, scratch_ / "my.recipe", options);
  EXPECT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("is also an input"), std::string::npos)
      << refused.status().message();
}

}  // namespace
}  // namespace glint::model
