// Fingerprints are the same wherever a model lies, and another for another model.
#include "model/fingerprint.h"

#include <gtest/gtest.h>

#include <set>

#include "model/glm_flash/tensors.h"
#include "model/model_data.h"
#include "tests/model/dialects.h"
#include "tests/model/scratch.h"
#include "tests/support/small_model.h"
#include "text/fingerprint.h"

namespace glint::model {
namespace {

const std::string kMicro = std::string(GLINT_TEST_DATA) + "/reference/micro";

TEST(Fingerprint, SameInEverySourceOfAModel) {
  const auto original = Load(kMicro);
  ASSERT_TRUE(original.ok()) << original.status().message();
  const std::string trunk = TrunkFingerprint(original->hparams, original->weights);
  const std::string mtp = MtpFingerprint(original->hparams, original->weights);
  EXPECT_EQ(trunk.size(), 32u);
  EXPECT_NE(trunk, mtp);
  for (const Dialect dialect : kAllDialects) {
    for (const int shards : {1, 3}) {
      Scratch scratch;
      const auto paths = WriteDialect(*original, scratch / "copy", {.dialect = dialect, .shards = shards});
      ASSERT_TRUE(paths.ok()) << paths.status().message();
      for (const bool with_mtp : {true, false}) {
        const auto model = Load((*paths)[0], {.mtp = with_mtp});
        ASSERT_TRUE(model.ok()) << model.status().message();
        EXPECT_EQ(TrunkFingerprint(model->hparams, model->weights), trunk) << Name(dialect) << shards;
        EXPECT_EQ(MtpFingerprint(model->hparams, model->weights), with_mtp ? mtp : "")
            << Name(dialect) << shards;
      }
    }
  }
}

TEST(Fingerprint, OfASyntheticModelFollowsSpecAndSeed) {
  std::set<std::string> all;
  for (const char* spec : {"tiny", "tiny,seed=2", "tiny,layers=3", "tiny,experts=4", "tiny,recipe=q4_k"}) {
    std::string first;
    for (int repeat = 0; repeat < 2; ++repeat) {
      const auto model = LoadSynthetic(spec);
      ASSERT_TRUE(model.ok()) << spec << ": " << model.status().message();
      const std::string print = TrunkFingerprint(model->hparams, model->weights);
      EXPECT_TRUE(first.empty() || print == first) << spec;
      first = print;
    }
    EXPECT_TRUE(all.insert(first).second) << spec;
  }
}

// Every weight of a vector, both ends of every matrix, its type and the numbers of the architecture count.
TEST(Fingerprint, SeesEveryTensorAndNumber) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  test::SmallModel m;
  test::MakeSmall(m, seed, true);
  const auto of = [&] { return TrunkFingerprint(m.hp, m.weights) + MtpFingerprint(m.hp, m.weights); };
  const std::string before = of();
  for (const Tensor& tensor : ListTensors(m.hp)) {
    const Site site = SiteOf(m.weights, m.hp, tensor.block);
    if (tensor.kind->vector != nullptr) {
      const Vector values = *tensor.kind->vector(site);
      float& one = const_cast<float&>(values[m.rng() % values.size()]);
      const float was = one;
      one = std::nextafter(one, 100.0f);
      EXPECT_NE(of(), before) << tensor.Name();
      one = was;
      continue;
    }
    Matrix& matrix = *tensor.kind->matrix(site);
    for (const uint64_t at : {uint64_t{0}, matrix.bytes() - 1}) {
      std::byte& one = const_cast<std::byte&>(matrix.data[at]);
      one ^= std::byte{1};
      EXPECT_NE(of(), before) << tensor.Name() << " byte " << at;
      one ^= std::byte{1};
    }
    const quant::Type type = std::exchange(matrix.type, quant::Type::kBF16);
    EXPECT_NE(of(), before) << tensor.Name();
    matrix.type = type;
    const std::vector<float> scales(static_cast<size_t>(matrix.slices), 1.5f);
    matrix.scales = scales.data();
    EXPECT_NE(of(), before) << tensor.Name();
    matrix.scales = nullptr;
  }
  for (float* x : {&m.hp.rms_eps, &m.hp.routed_scale, &m.hp.swiglu_limit, &m.hp.gate_lower_bound,
                   &m.hp.hc_eps, &m.hp.layer_norm_eps, &m.hp.l2_eps, &m.hp.router_eps}) {
    const float was = std::exchange(*x, *x * 1.5f);
    EXPECT_NE(of(), before);
    *x = was;
  }
  for (int64_t* n : {&m.hp.index_topk, &m.hp.experts_used, &m.hp.sinkhorn_iters, &m.hp.block}) {
    ++*n;
    EXPECT_NE(of(), before);
    --*n;
  }
  m.hp.norm_topk = !m.hp.norm_topk;
  EXPECT_NE(of(), before);
  m.hp.norm_topk = !m.hp.norm_topk;
  m.hp.context_length = 17;  // how far one should go changes no number
  EXPECT_EQ(of(), before);
}

// Stretches reach from the first byte to the last, in matrices just above the size that is read whole too.
TEST(Fingerprint, SamplesLargeMatricesEvenly) {
  for (const int64_t columns : {1024, 1025, 1100, 5000}) {
    test::SmallModel m;
    test::MakeSmall(m, 1, false);
    std::vector<float> data(static_cast<size_t>(columns), 1.0f);
    m.weights.head.columns = columns, m.weights.head.rows = 1;
    m.weights.head.row_bytes = 4 * static_cast<size_t>(columns);
    m.weights.head.data = reinterpret_cast<const std::byte*>(data.data());
    const std::string before = TrunkFingerprint(m.hp, m.weights);
    int seen = 0;
    for (size_t i = 0; i < data.size(); ++i) {
      data[i] = 2;
      seen += TrunkFingerprint(m.hp, m.weights) != before;
      data[i] = 1;
    }
    EXPECT_GE(seen, std::min<int64_t>(columns, 1000)) << columns;
    data.back() = 3;
    EXPECT_NE(TrunkFingerprint(m.hp, m.weights), before);
  }
}

TEST(Fingerprint, OfATokenizer) {
  text::TokenizerData data;
  data.tokens = {"a", "b", "ab", "<x>", "[PAD4]"};
  data.kinds = {text::TokenKind::kNormal, text::TokenKind::kNormal, text::TokenKind::kNormal,
                text::TokenKind::kControl, text::TokenKind::kUnused};
  data.merges = {{"a", "b"}};
  const std::string before = text::Fingerprint(data);
  EXPECT_EQ(before.size(), 32u);
  auto other = data;
  other.tokens[1] = "c";
  EXPECT_NE(text::Fingerprint(other), before);
  other = data;
  other.kinds[3] = text::TokenKind::kUserDefined;
  EXPECT_NE(text::Fingerprint(other), before);
  other = data;
  other.merges = {{"b", "a"}};
  EXPECT_NE(text::Fingerprint(other), before);
  other = data;
  other.ignore_merges = false;
  EXPECT_NE(text::Fingerprint(other), before);
  other = data;
  other.stop_ids = {3};
  other.tokens[4] = "";
  EXPECT_EQ(text::Fingerprint(other), before);
}

}  // namespace
}  // namespace glint::model
