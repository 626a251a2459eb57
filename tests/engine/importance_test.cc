// `glint imatrix`: sums against what sessions show of themselves, and against sums of other tensors.
#include "engine/importance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "engine/session_impl.h"
#include "glint/session.h"
#include "tests/engine/reference.h"

namespace glint::engine {
namespace {

constexpr int64_t kChunk = 40;

std::vector<int32_t> Ids(const Model& model, size_t count) {
  std::mt19937 random(11);
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % static_cast<uint64_t>(model.usable_vocab()));
  return ids;
}

TEST(ImportanceOfText, IsTheMeanSquareOfWhatIsMultiplied) {
  auto model = test::MustOpen(GLINT_TEST_DATA "/reference/micro", {.threads = 2});
  const auto ids = Ids(model, 100);  // the last chunk is shorter
  const auto measured = MeasureImportance(model, ids, kChunk);
  ASSERT_TRUE(measured.ok()) << measured.status().message();
  const auto& hp = model.impl()->data.hparams;

  // The head's input is what AppendWithHidden gives out; a block's, what an observer sees in the slot.
  const auto width = static_cast<size_t>(model.hidden_size());
  std::vector<double> head(width), gate_up(width);
  std::vector<double> routed(static_cast<size_t>(hp.experts));
  int moe = 0;
  while (hp.moe[static_cast<size_t>(moe)] == 0) ++moe;
  for (size_t at = 0; at < ids.size(); at += kChunk) {
    const auto part = std::span(ids).subspan(at, std::min<size_t>(kChunk, ids.size() - at));
    auto session = Session::Create(model, {.context = kChunk});
    ASSERT_TRUE(session.ok());
    session->impl().observer = [&](const plan::StepView& view) {
      if (view.step.stage != plan::Stage::kMoeRoute || view.step.layer != moe) return;
      const float* const x = view.Floats(plan::Slot::kX);
      const int32_t* const experts = view.Ints(plan::Slot::kExpertIds);
      for (int r = 0; r < view.rows; ++r) {
        for (size_t c = 0; c < width; ++c)
          gate_up[c] += std::pow(double{x[static_cast<size_t>(r) * width + c]}, 2);
        for (int64_t e = 0; e < hp.experts_used; ++e)
          ++routed[static_cast<size_t>(experts[r * hp.experts_used + e])];
      }
    };
    std::vector<float> hidden(part.size() * width);
    ASSERT_TRUE(session->AppendWithHidden(part, LogitRows::kNone, {}, hidden).ok());
    for (size_t i = 0; i < hidden.size(); ++i) head[i % width] += std::pow(double{hidden[i]}, 2);
  }
  const auto expect = [&](const std::string& name, const std::vector<double>& sums) {
    const model::Importance* got = measured->matrix.Find(name);
    ASSERT_NE(got, nullptr) << name;
    ASSERT_EQ(got->counts, std::vector<float>{100.0f}) << name;
    for (size_t c = 0; c < width; ++c)
      ASSERT_NEAR(got->mean[c], sums[c] / 100, sums[c] / 100 * 1e-5) << name << " " << c;
  };
  expect("output.weight", head);
  const std::string block = "blk." + std::to_string(moe) + ".";
  expect(block + "ffn_gate_shexp.weight", gate_up);
  const model::Importance* experts = measured->matrix.Find(block + "ffn_up_exps.weight");
  ASSERT_NE(experts, nullptr);
  ASSERT_EQ(experts->matrices, static_cast<uint64_t>(hp.experts));
  for (size_t e = 0; e < routed.size(); ++e) EXPECT_EQ(experts->counts[e], routed[e]) << e;
  // Every row goes to experts_used of them, so the sums of all are that many times those of the rows.
  for (size_t c = 0; c < width; ++c) {
    double sum = 0;
    for (size_t e = 0; e < routed.size(); ++e)
      sum += double{experts->mean[e * width + c]} * experts->counts[e];
    EXPECT_NEAR(sum, gate_up[c] * static_cast<double>(hp.experts_used), sum * 1e-5 + 1e-12) << c;
  }
}

// The matrices of a block's experts see the same tokens: one line a block names them all.
TEST(ImportanceOfText, ExpertsNeverHitAreALineABlock) {
  auto model = test::MustOpen(GLINT_TEST_DATA "/reference/micro", {});
  const auto measured = MeasureImportance(model, Ids(model, 1), kChunk);
  ASSERT_TRUE(measured.ok()) << measured.status().message();
  std::map<std::string, std::pair<size_t, std::vector<std::string>>>
      wanted;  // by block: unhit experts, matrices
  size_t experts = 0;
  for (const auto& [name, importance] : measured->matrix.tensors()) {
    const size_t at = name.find("ffn_"), kind = name.find("_exps.weight");
    const auto unhit =
        static_cast<size_t>(std::count(importance.counts.begin(), importance.counts.end(), 0.0f));
    if (kind == std::string::npos) {
      EXPECT_EQ(unhit, 0u) << name;
      continue;
    }
    experts = importance.counts.size();
    auto& [count, matrices] = wanted[name.substr(0, at)];
    count = unhit;
    matrices.push_back(name.substr(at));
  }
  ASSERT_GT(experts, static_cast<size_t>(model.impl()->data.hparams.experts_used));
  ASSERT_GT(wanted.size(), 1u);
  EXPECT_EQ(measured->never_hit.size(), wanted.size());
  for (const auto& [block, of] : wanted) {
    const auto& [count, matrices] = of;
    EXPECT_EQ(matrices.size(), 3u) << block;
    const auto line = std::find_if(measured->never_hit.begin(), measured->never_hit.end(),
                                   [&](const std::string& text) { return text.starts_with(block + "{"); });
    ASSERT_NE(line, measured->never_hit.end()) << block;
    EXPECT_TRUE(
        line->ends_with("}: " + std::to_string(count) + " of " + std::to_string(experts) + " experts"))
        << *line;
    for (const std::string& matrix : matrices) EXPECT_NE(line->find(matrix), std::string::npos) << *line;
  }
}

TEST(ImportanceOfText, DoesNotDependOnThreads) {
  const auto measure = [](int threads) {
    auto model = test::MustOpen(GLINT_TEST_DATA "/reference/micro", {.threads = threads});
    return MeasureImportance(model, Ids(model, 60), kChunk);
  };
  const auto one = measure(1), three = measure(3);
  ASSERT_TRUE(one.ok() && three.ok());
  ASSERT_EQ(one->matrix.tensors().size(), three->matrix.tensors().size());
  for (const auto& [name, importance] : one->matrix.tensors()) {
    EXPECT_EQ(importance.mean, three->matrix.Find(name)->mean) << name;
    EXPECT_EQ(importance.counts, three->matrix.Find(name)->counts) << name;
  }
  auto model = test::MustOpen(GLINT_TEST_DATA "/reference/micro", {});
  EXPECT_FALSE(MeasureImportance(model, {}, kChunk).ok());
}

std::vector<double> DecodedRow(const model::Matrix& w, int64_t slice, int64_t row) {
  std::vector<float> out(static_cast<size_t>(w.columns));
  quant::Find(w.type)->decode(w.Row(slice, row), out.data(), out.size());
  return {out.begin(), out.end()};
}

// Means of squares that the test takes of what it computes itself, beside those that were measured.
struct Means {
  std::vector<double> squares;
  double rows = 0;
  void Add(size_t at, double x) {
    if (squares.size() <= at) squares.resize(at + 1);
    squares[at] += x * x;
  }
};

void Expect(const MeasuredImportance& measured, const std::string& name, const Means& means,
            double tolerance) {
  const model::Importance* const got = measured.matrix.Find(name);
  ASSERT_NE(got, nullptr) << name;
  for (const float count : got->counts) EXPECT_EQ(count, means.rows) << name;
  ASSERT_EQ(got->mean.size(), means.squares.size()) << name;
  for (size_t i = 0; i < got->mean.size(); ++i) {
    const double wanted = means.squares[i] / means.rows;
    ASSERT_NEAR(got->mean[i], wanted, wanted * tolerance) << name << " " << i;
  }
}

// attn_v_b is applied to each head's mix of latent rows, which the test makes in double precision from what the stages before
// hand on: queries, latent rows and the positions chosen.
TEST(ImportanceOfText, OfTheLatentMix) {
  auto model = test::MustOpen(GLINT_TEST_DATA "/reference/micro", {.threads = 2});
  const auto ids = Ids(model, 70);
  const auto measured = MeasureImportance(model, ids, kChunk);
  ASSERT_TRUE(measured.ok()) << measured.status().message();
  const auto& hp = model.impl()->data.hparams;
  int block = 0;
  while (hp.mixers[static_cast<size_t>(block)] != model::Mixer::kDsa) ++block;
  const model::Matrix& k_b = model.impl()->data.weights.layers[static_cast<size_t>(block)].dsa.k_b;
  const auto rank = static_cast<size_t>(hp.kv_lora_rank), qk = static_cast<size_t>(hp.qk_head_dim);
  Means mix;
  for (size_t at = 0; at < ids.size(); at += kChunk) {
    const auto part = std::span(ids).subspan(at, std::min<size_t>(kChunk, ids.size() - at));
    auto session = Session::Create(model, {.context = kChunk});
    ASSERT_TRUE(session.ok());
    std::vector<float> latent;  // of all positions so far
    session->impl().observer = [&](const plan::StepView& view) {
      if (view.step.layer != block) return;
      if (view.step.stage == plan::Stage::kDsaKv) {
        const float* const rows = view.Floats(plan::Slot::kLatent);
        latent.insert(latent.end(), rows, rows + static_cast<size_t>(view.rows) * rank);
      }
      if (view.step.stage != plan::Stage::kDsaAttend) return;
      for (size_t r = 0; r < static_cast<size_t>(view.rows); ++r) {
        const int32_t* const list =
            view.Ints(plan::Slot::kSelected) + r * static_cast<size_t>(hp.max_selected());
        const auto count = static_cast<size_t>(view.Ints(plan::Slot::kSelectedCount)[r]);
        for (int64_t h = 0; h < hp.heads; ++h) {
          const float* const q =
              view.Floats(plan::Slot::kQ) + (r * static_cast<size_t>(hp.heads) + static_cast<size_t>(h)) * qk;
          std::vector<double> query(rank), weights(count);
          for (size_t d = 0; d < rank; ++d) {
            const auto row = DecodedRow(k_b, h, static_cast<int64_t>(d));
            for (size_t i = 0; i < qk; ++i) query[d] += row[i] * double{q[i]};
          }
          double sum = 0;
          for (size_t i = 0; i < count; ++i) {
            double score = 0;
            for (size_t d = 0; d < rank; ++d)
              score += query[d] * double{latent[static_cast<size_t>(list[i]) * rank + d]};
            sum += weights[i] = std::exp(score / std::sqrt(static_cast<double>(qk)));
          }
          for (size_t d = 0; d < rank; ++d) {
            double x = 0;
            for (size_t i = 0; i < count; ++i)
              x += weights[i] / sum * double{latent[static_cast<size_t>(list[i]) * rank + d]};
            mix.Add(static_cast<size_t>(h) * rank + d, x);
          }
        }
        ++mix.rows;
      }
    };
    ASSERT_TRUE(session->Append(part, LogitRows::kNone, {}).ok());
  }
  // Far below what a wrong row, head or position does; float sums and the rounding of activations are 1e-4.
  Expect(*measured, "blk." + std::to_string(block) + ".attn_v_b.weight", mix, 1e-3);
}

TEST(ImportanceOfText, OfTheMtpBlock) {
  auto model = test::MustOpen(GLINT_TEST_DATA "/reference/micro", {.threads = 2, .mtp = true});
  const auto ids = Ids(model, 101);  // the last chunk has 21 tokens, and one of 40 ends at a chunk's end
  const auto measured = MeasureImportance(model, ids, kChunk);
  ASSERT_TRUE(measured.ok()) << measured.status().message();
  const auto& data = model.impl()->data;
  const auto width = static_cast<size_t>(model.hidden_size());
  Means joined, attention;
  double routed = 0;
  for (size_t at = 0; at < ids.size(); at += kChunk) {
    const auto part = std::span(ids).subspan(at, std::min<size_t>(kChunk, ids.size() - at));
    auto session = Session::Create(model, {.context = kChunk, .mtp = true});
    ASSERT_TRUE(session.ok());
    std::vector<float> hidden(part.size() * width);
    ASSERT_TRUE(session->AppendWithHidden(part, LogitRows::kNone, {}, hidden).ok());
    session->impl().observer = [&](const plan::StepView& view) {
      if (view.step.stage == plan::Stage::kMoeRoute) routed += view.rows;
      if (view.step.stage != plan::Stage::kDsaQ) return;
      for (size_t i = 0; i < static_cast<size_t>(view.rows) * width; ++i)
        attention.Add(i % width, view.Floats(plan::Slot::kX)[i]);
      attention.rows += view.rows;
    };
    const auto next = part.subspan(1);
    ASSERT_TRUE(session->AppendMtp(next, std::span(hidden).first(next.size() * width), {}, {}).ok());
    const auto normed = [&](std::vector<double> x, const model::Vector& w, size_t to) {
      double squares = 0;
      for (const double v : x) squares += v * v;
      const double r = 1 / std::sqrt(squares / static_cast<double>(width) + double{data.hparams.rms_eps});
      for (size_t c = 0; c < width; ++c) joined.Add(to + c, x[c] * r * double{w[c]});
    };
    for (size_t t = 0; t < next.size(); ++t) {
      normed(DecodedRow(data.weights.embedding, 0, next[t]), data.weights.nextn[0].enorm, 0);
      const auto* const row = hidden.data() + t * width;
      normed({row, row + width}, data.weights.nextn[0].hnorm, width);
      ++joined.rows;
    }
  }
  ASSERT_EQ(joined.rows, 98);  // no token follows the last of each chunk
  Expect(*measured, "blk.8.nextn.eh_proj.weight", joined, 1e-4);
  Expect(*measured, "blk.8.attn_q_a.weight", attention, 1e-5);
  double counted = 0;
  for (const float count : measured->matrix.Find("blk.8.ffn_down_exps.weight")->counts)
    counted += double{count};
  EXPECT_EQ(counted, routed * static_cast<double>(data.hparams.experts_used));
  // The trunk's figures are those of the trunk alone: the head counts no row of the MTP block.
  auto trunk = test::MustOpen(GLINT_TEST_DATA "/reference/micro", {.threads = 2});
  const auto alone = MeasureImportance(trunk, ids, kChunk);
  ASSERT_TRUE(alone.ok());
  for (const auto& [name, importance] : alone->matrix.tensors())
    EXPECT_EQ(importance.mean, measured->matrix.Find(name)->mean) << name;
  // Every matrix of the model but the embedding.
  size_t matrices = 0;
  for (const model::Tensor& tensor : model::ListTensors(data.hparams))
    matrices += tensor.kind->matrix != nullptr && tensor.id() != model::TensorId::kEmbedding;
  EXPECT_EQ(measured->matrix.tensors().size(), matrices);
}

TEST(ImportanceOfText, StatesItsMemoryAndRefusesWhatDoesNotFit) {
  auto model = test::MustOpen(GLINT_TEST_DATA "/reference/micro", {.threads = 1, .mtp = true});
  const auto ids = Ids(model, 50);
  const auto memory = MemoryForImportance(model, ids.size(), kChunk);
  const auto measured = MeasureImportance(model, ids, kChunk);
  ASSERT_TRUE(memory.ok() && measured.ok());
  uint64_t sums = 0;
  for (const auto& [name, importance] : measured->matrix.tensors())
    sums += sizeof(double) * (importance.mean.size() + importance.counts.size());
  EXPECT_EQ(memory->sums, sums);
  EXPECT_EQ(memory->state, model.impl()->backend->StateBytes(kChunk, true));
  EXPECT_GT(memory->buffers, 0u);
  EXPECT_TRUE(memory->CheckRoom({memory->total(), "a box"}).ok());
  const Status refused = memory->CheckRoom({memory->total() - 1, "a box"});
  EXPECT_EQ(refused.code(), Code::kNoRoom);
  EXPECT_NE(refused.message().find("a box leaves"), std::string::npos) << refused.message();
}

}  // namespace
}  // namespace glint::engine
