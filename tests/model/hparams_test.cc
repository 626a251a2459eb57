// Every check of the hyper-parameters, one wrong field at a time.
#include "model/glm_flash/hparams.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace glint::model {
namespace {

HParams Released() {
  HParams hp;
  hp.vocab_size = 154880, hp.hidden = 4096, hp.layers = 45, hp.nextn_layers = 1, hp.context_length = 1048576;
  for (int i = 0; i < 45; ++i) {
    hp.mixers.push_back(i % 4 == 3 ? Mixer::kDsa : Mixer::kKda);
    hp.moe.push_back(i >= 3);
  }
  hp.kda_heads = 64, hp.kda_head_dim = 128, hp.conv_kernel = 4, hp.gate_lower_bound = -5;
  hp.heads = 64, hp.q_lora_rank = 1536, hp.kv_lora_rank = 512, hp.qk_head_dim = 256, hp.v_head_dim = 256;
  hp.index_heads = 32, hp.index_head_dim = 128, hp.index_topk = 2048, hp.index_kpool = 4;
  hp.dense_ffn = 12288, hp.expert_ffn = 2048, hp.shared_ffn = 2048, hp.experts = 288, hp.experts_used = 8;
  hp.routed_scale = 2.5f, hp.swiglu_limit = 10;
  hp.hc_mult = 4, hp.sinkhorn_iters = 20;
  return hp;
}

TEST(HParams, TheReleasedModelPasses) {
  const Status s = Check(Released());
  EXPECT_TRUE(s.ok()) << s.message();
  EXPECT_EQ(Released().hc_mix(), 24);
  EXPECT_EQ(Released().max_selected(), 2051);  // spec/model.md 7.4
}

TEST(HParams, GridBlockIsTheLargestMultipleUpTo16) {
  const int64_t want[] = {16, 16, 16, 15, 16, 15, 12, 14, 16, 9, 10, 11, 12, 13, 14, 15, 16, 16, 16};
  for (int64_t pool = 0; pool < std::ssize(want); ++pool) EXPECT_EQ(GridBlock(pool), want[pool]) << pool;
}

struct Wrong {
  const char* what;  // must be in the message
  void (*make)(HParams&);
};

class WrongHParams : public testing::TestWithParam<Wrong> {};

TEST_P(WrongHParams, IsRefusedByName) {
  HParams hp = Released();
  GetParam().make(hp);
  const Status s = Check(hp);
  ASSERT_FALSE(s.ok());
  EXPECT_EQ(s.code(), Code::kBadFile);
  EXPECT_NE(s.message().find(GetParam().what), std::string::npos) << s.message();
}

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

INSTANTIATE_TEST_SUITE_P(
    OneField, WrongHParams,
    testing::Values(Wrong{"vocabulary size is 0", [](HParams& h) { h.vocab_size = 0; }},
                    Wrong{"vocabulary size", [](HParams& h) { h.vocab_size = int64_t{1} << 32; }},
                    Wrong{"hidden size is -1", [](HParams& h) { h.hidden = -1; }},
                    Wrong{"layers", [](HParams& h) { h.layers = 0; }},
                    Wrong{"layers", [](HParams& h) { h.layers = 5000; }},
                    Wrong{"MTP blocks", [](HParams& h) { h.nextn_layers = 2; }},
                    Wrong{"MTP blocks", [](HParams& h) { h.nextn_layers = -1; }},
                    Wrong{"context length", [](HParams& h) { h.context_length = 0; }},
                    Wrong{"embedding", [](HParams& h) { h.vocab_size = h.hidden = int64_t{1} << 31; }},
                    Wrong{"layer schedule has 44", [](HParams& h) { h.mixers.pop_back(); }},
                    Wrong{"FFN schedule has 46", [](HParams& h) { h.moe.push_back(1); }},
                    Wrong{"KDA heads", [](HParams& h) { h.kda_heads = 0; }},
                    Wrong{"KDA head width", [](HParams& h) { h.kda_head_dim = 0; }},
                    Wrong{"convolution", [](HParams& h) { h.conv_kernel = 0; }},
                    Wrong{"convolution", [](HParams& h) { h.conv_kernel = 65; }},
                    Wrong{"lower bound is 0", [](HParams& h) { h.gate_lower_bound = 0; }},
                    Wrong{"lower bound is nan", [](HParams& h) { h.gate_lower_bound = kNan; }},
                    Wrong{"lower bound is -inf", [](HParams& h) { h.gate_lower_bound = -kInf; }},
                    Wrong{"e^-88", [](HParams& h) { h.gate_lower_bound = -5.5f; }},
                    Wrong{"attention heads", [](HParams& h) { h.heads = 0; }},
                    Wrong{"q LoRA", [](HParams& h) { h.q_lora_rank = 0; }},
                    Wrong{"kv LoRA", [](HParams& h) { h.kv_lora_rank = 0; }},
                    Wrong{"query and key", [](HParams& h) { h.qk_head_dim = 0; }},
                    Wrong{"value head", [](HParams& h) { h.v_head_dim = 0; }},
                    Wrong{"indexer heads", [](HParams& h) { h.index_heads = 0; }},
                    Wrong{"indexer head width", [](HParams& h) { h.index_head_dim = 0; }},
                    Wrong{"top-k", [](HParams& h) { h.index_topk = 0; }},
                    Wrong{"top-k", [](HParams& h) { h.index_topk = 2047; }},
                    Wrong{"pool size", [](HParams& h) { h.index_kpool = 0; }},
                    Wrong{"grid block", [](HParams& h) { h.block = 12; }},
                    Wrong{"dense FFN", [](HParams& h) { h.dense_ffn = 0; }},
                    Wrong{"expert FFN", [](HParams& h) { h.expert_ffn = 0; }},
                    Wrong{"shared expert", [](HParams& h) { h.shared_ffn = 0; }},
                    Wrong{"experts", [](HParams& h) { h.experts = 0; }},
                    Wrong{"experts used", [](HParams& h) { h.experts_used = 0; }},
                    Wrong{"experts used is 289", [](HParams& h) { h.experts_used = 289; }},
                    Wrong{"expert stack", [](HParams& h) { h.experts = h.expert_ffn = int64_t{1} << 31; }},
                    Wrong{"scale", [](HParams& h) { h.routed_scale = kInf; }},
                    Wrong{"scale", [](HParams& h) { h.routed_scale = 0; }},
                    Wrong{"SwiGLU", [](HParams& h) { h.swiglu_limit = 0; }},
                    Wrong{"SwiGLU", [](HParams& h) { h.swiglu_limit = kNan; }},
                    Wrong{"streams", [](HParams& h) { h.hc_mult = 0; }},
                    Wrong{"streams", [](HParams& h) { h.hc_mult = 17; }},
                    Wrong{"Sinkhorn", [](HParams& h) { h.sinkhorn_iters = 0; }},
                    Wrong{"hyper-connection", [](HParams& h) { h.hc_eps = -1; }},
                    Wrong{"RMSNorm", [](HParams& h) { h.rms_eps = 0; }},
                    Wrong{"LayerNorm", [](HParams& h) { h.layer_norm_eps = kNan; }},
                    Wrong{"l2", [](HParams& h) { h.l2_eps = 0; }},
                    Wrong{"router", [](HParams& h) { h.router_eps = kInf; }}));

TEST(HParams, WidthsOfAbsentKindsAreNotAskedFor) {
  HParams hp = Released();
  hp.nextn_layers = 0;
  hp.moe.assign(45, 0);
  hp.experts = hp.experts_used = hp.expert_ffn = hp.shared_ffn = 0;
  EXPECT_TRUE(Check(hp).ok()) << Check(hp).message();
  hp.nextn_layers = 1;  // the MTP block is always MoE
  EXPECT_FALSE(Check(hp).ok());
}

TEST(HParams, NoLimitIsInfinity) {
  HParams hp = Released();
  hp.swiglu_limit = kInf;
  EXPECT_TRUE(Check(hp).ok());
}

}  // namespace
}  // namespace glint::model
