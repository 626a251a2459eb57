#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "model/census.h"
#include "model/fingerprint.h"
#include "model/glm_flash/tensors.h"
#include "model/model_data.h"

namespace glint::model {
namespace {

// The bytes of everything, tensor by tensor.
std::vector<std::vector<std::byte>> AllBytes(ModelData& model) {
  std::vector<std::vector<std::byte>> out;
  for (const Tensor& tensor : ListTensors(model.hparams)) {
    const Site site = SiteOf(model.weights, model.hparams, tensor.block);
    if (tensor.kind->matrix != nullptr) {
      const Matrix& m = *tensor.kind->matrix(site);
      out.emplace_back(m.data, m.data + m.bytes());
    } else {
      const auto bytes = std::as_bytes(*tensor.kind->vector(site));
      out.emplace_back(bytes.begin(), bytes.end());
    }
  }
  return out;
}

Result<ModelData> Make(const std::string& spec) { return LoadSynthetic(spec); }

TEST(Synthetic, IsTheSameEveryTime) {
  auto a = Make("tiny,seed=7"), b = Make("tiny,seed=7"), c = Make("tiny,seed=8");
  ASSERT_TRUE(a.ok() && b.ok() && c.ok());
  EXPECT_EQ(AllBytes(*a), AllBytes(*b));
  EXPECT_NE(AllBytes(*a), AllBytes(*c));
}

// A fixed point: another generator, pool or order would change it on purpose only.
TEST(Synthetic, HasItsPublishedBits) {
  auto model = Make("tiny,recipe=f32,seed=1");
  ASSERT_TRUE(model.ok()) << model.status().message();
  // Written out once more, from the description in synthetic.cc.
  const auto mix = [](uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  };
  const auto draw = [&](uint64_t key, uint64_t i) { return mix(key + (i + 1) * 0x9E3779B97F4A7C15u); };
  const auto fnv = [](const std::string& s) {
    uint64_t h = 0xCBF29CE484222325u;
    for (const char c : s) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
    return h;
  };
  const float deviation = 1.0f;  // embedding
  uint32_t deviation_bits;
  std::memcpy(&deviation_bits, &deviation, 4);
  const uint64_t pool = mix(1 ^ (uint64_t{0} << 32) ^ deviation_bits),
                 key = mix(1 ^ fnv("token_embd.weight"));
  const Matrix& embedding = model->weights.embedding;
  for (uint64_t i = 0; i < 1000; ++i) {
    const uint64_t bits = draw(pool, draw(key, i / 32) % 256 * 32 + i % 32);
    double sum = -131070;
    for (int part = 0; part < 4; ++part) sum += static_cast<double>(bits >> (16 * part) & 0xffff);
    float got;
    std::memcpy(&got, embedding.data + 4 * i, 4);
    ASSERT_NEAR(got, sum * std::sqrt(3.0) / 65536, 1e-6) << i;
  }
}

TEST(Synthetic, BindsEveryTensorInTheCensusType) {
  for (const char* spec :
       {"tiny", "tiny,recipe=q4_k", "tiny,recipe=ds4", "tiny,recipe=bf16,mtp=0", "tiny,recipe=q6_k",
        "tiny,layers=1,recipe=f16", "tiny,hidden=96,dense_ffn=80,recipe=q4_k"}) {
    SCOPED_TRACE(spec);
    auto model = Make(spec);
    ASSERT_TRUE(model.ok()) << model.status().message();
    auto census = SyntheticCensus(spec);
    ASSERT_TRUE(census.ok());
    const auto tensors = ListTensors(model->hparams);
    ASSERT_EQ(tensors.size(), census->tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) {
      const CensusTensor& row = census->tensors[i];
      SCOPED_TRACE(row.name);
      EXPECT_EQ(tensors[i].Name(), row.name);
      const Site site = SiteOf(model->weights, model->hparams, tensors[i].block);
      if (tensors[i].kind->matrix != nullptr) {
        const Matrix& m = *tensors[i].kind->matrix(site);
        EXPECT_EQ(m.type, row.type);
        EXPECT_EQ(m.bytes(), row.bytes);
        EXPECT_EQ((Shape{m.columns, m.rows, m.slices}), tensors[i].shape);
      } else {
        EXPECT_EQ(tensors[i].kind->vector(site)->size(), static_cast<size_t>(tensors[i].shape.count()));
      }
    }
  }
}

// Rows of a normalised input come out near 1 in every quantised type: the deviation is 1 / sqrt(columns).
TEST(Synthetic, WeightsHaveTheirScale) {
  for (const char* recipe : {"f32", "bf16", "q8_0", "q6_k", "q4_k"}) {
    SCOPED_TRACE(recipe);
    auto model = Make(std::string("tiny,recipe=") + recipe);
    ASSERT_TRUE(model.ok()) << model.status().message();
    for (const Matrix* m : {&model->weights.layers[0].kda.q, &model->weights.layers[3].moe.down,
                            &model->weights.layers[0].dense.down, &model->weights.head}) {
      const quant::Format& format = *quant::Find(m->type);
      std::vector<float> row(static_cast<size_t>(m->columns));
      double squares = 0, sum = 0;
      for (int64_t r = 0; r < m->rows; ++r) {
        format.decode(m->Row(0, r), row.data(), row.size());
        for (const float w : row) squares += double{w} * w, sum += w;
      }
      const auto n = static_cast<double>(m->columns * m->rows);
      EXPECT_NEAR(squares / n * static_cast<double>(m->columns), 1, 0.1);
      EXPECT_NEAR(sum / n * std::sqrt(static_cast<double>(m->columns)), 0, 0.1);
    }
  }
}

// The description, carried out by its words, gives the bytes that the model would have here; so does Read from any byte on.
TEST(Synthetic, DescribesWhatLiesElsewhere) {
  for (const char* spec :
       {"tiny,recipe=ds4", "tiny,hidden=96,dense_ffn=80,recipe=q4_k", "tiny,vocab=301,mtp=0"}) {
    SCOPED_TRACE(spec);
    auto here = LoadSynthetic(spec), there = LoadSynthetic(spec, {.weights_elsewhere = true});
    ASSERT_TRUE(here.ok() && there.ok());
    EXPECT_EQ(here->synthetic, nullptr);
    ASSERT_NE(there->synthetic, nullptr);
    const SyntheticFill& fill = *there->synthetic;
    const auto a = ListBound(here->weights), b = ListBound(there->weights);
    ASSERT_EQ(a.size(), b.size());
    size_t matrices = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      SCOPED_TRACE(a[i].Name());
      ASSERT_EQ(a[i].Name(), b[i].Name());
      if (a[i].vector != nullptr) {
        EXPECT_TRUE(std::equal(a[i].vector->begin(), a[i].vector->end(), b[i].vector->begin()));
        continue;
      }
      const Matrix &x = *a[i].matrix, &y = *b[i].matrix;
      ASSERT_EQ(x.type, y.type);
      ASSERT_EQ(x.bytes(), y.bytes());
      ASSERT_EQ(x.row_bytes, y.row_bytes);
      ASSERT_TRUE(fill.matrices.contains(y.data));
      const SyntheticFill::Source& source = fill.matrices.at(y.data);
      const SyntheticFill::Pool& pool = fill.pools.at(source.pool);
      for (uint64_t at = 0; at < x.bytes(); ++at) {
        uint64_t z = source.key + (at / pool.chunk_bytes + 1) * 0x9E3779B97F4A7C15u;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        z ^= z >> 31;
        ASSERT_EQ(pool.bytes.at(z % 256 * pool.chunk_bytes + at % pool.chunk_bytes), x.data[at]) << at;
      }
      std::vector<std::byte> part(static_cast<size_t>(x.bytes() - x.bytes() / 3));
      fill.Read(source, x.bytes() / 3, part);
      EXPECT_TRUE(std::equal(part.begin(), part.end(), x.data + x.bytes() / 3));
      ++matrices;
    }
    EXPECT_EQ(fill.matrices.size(), matrices);  // so every matrix has an address of its own
    EXPECT_EQ(TrunkFingerprint(there->hparams, there->weights, &fill),
              TrunkFingerprint(here->hparams, here->weights));
    EXPECT_EQ(MtpFingerprint(there->hparams, there->weights, &fill),
              MtpFingerprint(here->hparams, here->weights));
  }
}

// A model of the released size takes no memory here.
TEST(Synthetic, ElsewhereOnlyVectorsCount) {
  auto model = LoadSynthetic("glm-5.3-flash", {.weights_elsewhere = true});
  ASSERT_TRUE(model.ok()) << model.status().message();
  uint64_t bytes = 0;
  for (const BoundTensor& bound : ListBound(model->weights))
    if (bound.matrix != nullptr) bytes += bound.matrix->bytes();
  EXPECT_GT(bytes, uint64_t{300} << 30);
  auto larger = LoadSynthetic("glm-5.3-flash,experts=200000", {.weights_elsewhere = true});
  ASSERT_FALSE(larger.ok());
  EXPECT_EQ(larger.status().code(), Code::kNoRoom) << larger.status().message();
}

TEST(Synthetic, WhatIsBoundIsListedInTheOrderOfTensors) {
  for (const char* spec : {"tiny", "tiny,mtp=0", "tiny,layers=1"}) {
    auto model = Make(spec);
    ASSERT_TRUE(model.ok());
    const auto bound = ListBound(model->weights);
    const auto tensors = ListTensors(model->hparams);
    ASSERT_EQ(bound.size(), tensors.size()) << spec;
    for (size_t i = 0; i < bound.size(); ++i) {
      EXPECT_EQ(bound[i].Name(), tensors[i].Name());
      const Site site = SiteOf(model->weights, model->hparams, tensors[i].block);
      if (tensors[i].kind->matrix != nullptr) {
        EXPECT_EQ(bound[i].matrix, tensors[i].kind->matrix(site));
      } else {
        EXPECT_EQ(bound[i].vector, tensors[i].kind->vector(site));
      }
    }
  }
  EXPECT_TRUE(ListBound(Weights{}).empty());
}

TEST(Synthetic, MtpFollowsTheOptions) {
  EXPECT_EQ(LoadSynthetic("tiny")->weights.nextn.size(), 1u);
  EXPECT_EQ(LoadSynthetic("tiny", {.mtp = false})->weights.nextn.size(), 0u);
  EXPECT_EQ(LoadSynthetic("tiny,mtp=0")->weights.nextn.size(), 0u);
  auto demanded = LoadSynthetic("tiny,mtp=0", {.require_mtp = true});
  ASSERT_FALSE(demanded.ok());
  EXPECT_EQ(demanded.status().code(), Code::kBadInput);
  // The trunk's weights are the same with and without the block.
  auto with = LoadSynthetic("tiny"), without = LoadSynthetic("tiny,mtp=0");
  auto all = AllBytes(*with), trunk = AllBytes(*without);
  all.resize(trunk.size());
  EXPECT_EQ(all, trunk);
}

TEST(Synthetic, RefusesWhatDoesNotFit) {
  auto large = Make("glm-5.3-flash,recipe=bf16,experts=200000");
  ASSERT_FALSE(large.ok());
  EXPECT_EQ(large.status().code(), Code::kNoRoom) << large.status().message();
  EXPECT_NE(large.status().message().find("B for its weights"), std::string::npos)
      << large.status().message();
}

TEST(Synthetic, HasAByteTokenizer) {
  auto model = Make("tiny");
  ASSERT_TRUE(model.ok() && model->tokenizer);
  const auto& t = *model->tokenizer;
  EXPECT_EQ(t.tokens.size(), 512u);
  EXPECT_EQ(t.tokens[' '], "\u0120");
  EXPECT_EQ(t.tokens['a'], "a");
  EXPECT_EQ(t.kinds[511], text::TokenKind::kUnused);
  EXPECT_FALSE(Make("tiny,vocab=200")->tokenizer.has_value());
}

TEST(Synthetic, CanBeInterrupted) {
  int calls = 0;
  auto model = LoadSynthetic("tiny", {.progress = [&](uint64_t done, uint64_t total) {
                               EXPECT_LE(done, total);
                               return ++calls < 5;
                             }});
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.status().message(), "interrupted");
}

}  // namespace
}  // namespace glint::model
