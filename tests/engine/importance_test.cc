// `glint imatrix`: sums against what sessions show of themselves, and against sums of other tensors.
#include "engine/importance.h"

#include <gtest/gtest.h>

#include <cmath>
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

}  // namespace
}  // namespace glint::engine
