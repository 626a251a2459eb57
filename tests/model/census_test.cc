// The census against the published totals of the released model (spec/budget.md sections 1, 2, 5.1; the figure of ds4 is the size
// of a published artifact, that of ud-iq3_xxs of a published file).
#include "model/census.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace glint::model {
namespace {

struct Published {
  const char* recipe;
  uint64_t total, trunk, mtp, per_token;
  double trunk_other_gb, trunk_experts_gb;
};

class ReleasedCensus : public testing::TestWithParam<Published> {};

TEST_P(ReleasedCensus, GivesThePublishedTotals) {
  const Published& p = GetParam();
  auto census = SyntheticCensus(std::string("glm-5.3-flash,recipe=") + p.recipe);
  ASSERT_TRUE(census.ok()) << census.status().message();
  EXPECT_EQ(census->total_bytes, p.total);
  EXPECT_EQ(census->trunk_bytes, p.trunk);
  EXPECT_EQ(census->mtp_bytes, p.mtp);
  EXPECT_EQ(census->per_token, p.per_token);
  EXPECT_NEAR(static_cast<double>(census->trunk_bytes - census->trunk_expert_bytes) / 1e9, p.trunk_other_gb,
              5.1e-4);
  EXPECT_NEAR(static_cast<double>(census->trunk_expert_bytes) / 1e9, p.trunk_experts_gb, 5.1e-4);
  EXPECT_EQ(census->parameters, uint64_t{320759404382});
  EXPECT_EQ(census->tensors.size(), size_t{1412});
}

INSTANTIATE_TEST_SUITE_P(
    AllRecipes, ReleasedCensus,
    testing::Values(
        Published{"ds4", 190866009464, 186550763768, 4315245696, 18810069240, 15.322, 171.228},
        Published{"q8_0-q4_k", 185145662840, 180868492536, 4277170304, 13722533368, 9.640, 171.228},
        Published{"q8_0-iq3_xxs", 129145412984, 126170574072, 2974838912, 12203146744, 9.640, 116.530},
        Published{"q4_k", 180629839224, 176444419320, 4185419904, 9615652344, 5.216, 171.228},
        Published{"ud-iq3_xxs", 120358051192, 117558078712, 2799972480, 10221869592, 7.690, 109.868}),
    [](const auto& p) {
      std::string name = p.param.recipe;
      for (char& c : name) {
        if (c == '-') c = '_';
      }
      return name;
    });

// Section 2, column B, in MB.
TEST(Census, BytesPerTokenByRole) {
  auto census = SyntheticCensus("glm-5.3-flash,recipe=q8_0-q4_k");
  ASSERT_TRUE(census.ok()) << census.status().message();
  std::map<Role, double> mb;
  for (const CensusTensor& tensor : census->tensors)
    mb[tensor.role] += static_cast<double>(tensor.per_token) / 1e6;
  EXPECT_NEAR(mb[Role::kHead], 674.04, 0.006);
  EXPECT_NEAR(mb[Role::kEmbedding], 0.00, 0.006);
  EXPECT_NEAR(mb[Role::kHc], 37.60 + 0.01, 0.011);
  EXPECT_NEAR(mb[Role::kDsa], 98.04 + 294.13 + 98.04 + 98.04 + 784.33, 0.026);
  EXPECT_NEAR(mb[Role::kIndexer], 73.53 + 6.13 + 6.13 + 5.77 + 0.02, 0.026);
  EXPECT_NEAR(mb[Role::kDense], 481.30, 0.006);
  EXPECT_NEAR(mb[Role::kRouter], 198.18 + 0.05, 0.011);
  EXPECT_NEAR(mb[Role::kShared], 1123.02, 0.006);
  EXPECT_NEAR(mb[Role::kExperts], 3170.89 + 1585.45, 0.011);
  // The output norm of KDA counts among the norms there as well as here.
  EXPECT_NEAR(mb[Role::kKda] + mb[Role::kNorm], 3636.46 + 1212.15 + 123.11 + 13.37 + 1.14 + 1.59, 0.031);
  EXPECT_EQ(mb[Role::kMtp], 0);
}

// Section 5.2: recurrent state 142,606,336 and convolution inputs 10,027,008 bytes, beside the rows of an unfinished block of 16
// (three vectors of 8,192 a row and layer); fp32 latents 2,048 and pooled keys 128 bytes a token and layer, 11 layers.
TEST(Census, CachesOfTheReleasedModel) {
  auto census = SyntheticCensus("glm-5.3-flash");
  ASSERT_TRUE(census.ok());
  EXPECT_EQ(census->fixed_state_bytes, uint64_t{142606336} + 10027008 + uint64_t{34} * 16 * 3 * 8192 * 4);
  EXPECT_EQ(census->bytes_per_context_token, uint64_t{11} * (2048 + 128));
}

TEST(Census, TensorsAreSpelledAsInPublishedFiles) {
  auto census = SyntheticCensus("glm-5.3-flash,recipe=ud-iq3_xxs");
  ASSERT_TRUE(census.ok());
  std::map<std::string, const CensusTensor*> by_name;
  for (const CensusTensor& tensor : census->tensors) by_name[tensor.name] = &tensor;
  const auto expect = [&](const char* name, std::vector<uint64_t> ne, quant::Type type) {
    ASSERT_TRUE(by_name.contains(name)) << name;
    EXPECT_EQ(by_name[name]->ne, ne) << name;
    EXPECT_EQ(by_name[name]->type, type) << name;
  };
  using quant::Type;
  expect("blk.0.ssm_conv1d_q.weight", {4, 1, 8192, 1}, Type::kF32);
  expect("blk.0.ssm_a", {64}, Type::kF32);
  expect("blk.0.ssm_f_b.weight", {128, 8192}, Type::kQ8_0);
  expect("blk.44.hc_ffn_fn.weight", {16384, 24}, Type::kQ8_0);
  expect("blk.3.attn_k_b.weight", {256, 512, 64}, Type::kQ8_0);
  expect("blk.43.attn_v_b.weight", {512, 256, 64}, Type::kQ8_0);
  expect("blk.7.attn_output.weight", {16384, 4096}, Type::kQ6_K);
  expect("blk.8.attn_output.weight", {8192, 4096}, Type::kQ6_K);
  expect("blk.11.ffn_gate_exps.weight", {4096, 2048, 288}, Type::kIQ3_S);
  expect("blk.12.ffn_down_exps.weight", {2048, 4096, 288}, Type::kIQ4_XS);
  expect("blk.45.ffn_down_exps.weight", {2048, 4096, 288}, Type::kQ3_K);
  expect("blk.45.nextn.eh_proj.weight", {8192, 4096}, Type::kQ8_0);
  expect("blk.45.indexer_compressor_ape.weight", {128, 4}, Type::kF32);
  EXPECT_FALSE(by_name.contains("blk.45.hc_attn_fn.weight"));
}

TEST(Census, RefusesWhatItDoesNotKnow) {
  for (const auto& [spec, wanted] : std::initializer_list<std::pair<const char*, const char*>>{
           {"glm-6", "glm-5.3-flash"},
           {"", "tiny"},
           {"tiny,layers", "whole number"},
           {"tiny,layers=", "whole number"},
           {"tiny,layers=2x", "whole number"},
           {"tiny,layers=0", "1 to 4096"},
           {"tiny,layers=99999999999999999999", "whole number"},
           {"tiny,colour=3", "experts_used"},
           {"tiny,recipe=q9", "ud-iq3_xxs"},
           {"tiny,seed=-1", "whole number"},
           {"tiny,experts=1", "experts used"},
           {"tiny,mtp=2", "MTP blocks"},
           {"tiny,kpool=5", "multiple of the pool size"},
       }) {
    auto census = SyntheticCensus(spec);
    ASSERT_FALSE(census.ok()) << spec;
    EXPECT_EQ(census.status().code(), Code::kBadInput) << spec;
    EXPECT_NE(census.status().message().find(wanted), std::string::npos) << census.status().message();
  }
}

}  // namespace
}  // namespace glint::model
