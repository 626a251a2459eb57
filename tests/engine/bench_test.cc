#include "engine/bench.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "engine/model_impl.h"

namespace glint::engine {
namespace {

Model Tiny(int threads = 1) {
  auto model = Model::Synthetic("tiny", {.threads = threads});
  EXPECT_TRUE(model.ok()) << model.status().message();
  return *model;
}

BenchArm Arm(const std::string& name, const Model& model, const BenchSettings& settings) {
  return {.name = name, .model = model, .tokens = RandomTokens(settings.Context(), model.usable_vocab(), 1)};
}

const BenchControl kNoControl{.progress = {}, .interrupted = [] { return false; }};

// Each arm twice, its places in the block equally far from both ends taken together; over as many blocks as arms each arm has
// each place as often as the others.
TEST(BenchOrder, IsMirroredAndGoesRound) {
  EXPECT_EQ(BlockOrder(1, 0), (std::vector<int>{0, 0}));
  EXPECT_EQ(BlockOrder(1, 7), (std::vector<int>{0, 0}));
  int first = 0, repeats = 0;
  for (int block = 0; block < 1000; ++block) {
    const auto order = BlockOrder(2, block);
    EXPECT_EQ(order, BlockOrder(2, block));
    EXPECT_EQ(order, order[0] == 0 ? (std::vector<int>{0, 1, 1, 0}) : (std::vector<int>{1, 0, 0, 1}));
    if (block % 2 == 0) first += order[0];
    repeats += block > 0 && BlockOrder(2, block - 1)[0] == order[0] ? 1 : 0;
  }
  // Drawn, not alternating: 500 groups, in half of which the second arm begins; about every fourth block begins as the last one.
  EXPECT_NEAR(first, 250, 60);
  EXPECT_NEAR(repeats, 250, 60);
  for (int arms = 1; arms <= 6; ++arms) {
    std::map<std::pair<int, size_t>, int> times;  // arm, place
    for (int block = 0; block < 2 * arms; ++block) {
      const auto order = BlockOrder(arms, block);
      ASSERT_EQ(order.size(), static_cast<size_t>(2 * arms));
      for (int arm = 0; arm < arms; ++arm) {
        size_t places = 0;
        for (size_t place = 0; place < order.size(); ++place) {
          if (order[place] == arm) places += place, ++times[{arm, place}];
        }
        EXPECT_EQ(places, order.size() - 1) << "a linear drift adds unequally";
      }
    }
    for (const auto& [where, count] : times) EXPECT_EQ(count, 2);
  }
}

TEST(Bench, TakesTheSamplesAskedForInOrder) {
  const BenchSettings settings{.depths = {0, 1, 24}, .prefill = 5, .decode = 3, .blocks = 3, .warmup = 2};
  const Model model = Tiny();
  const std::vector<BenchArm> arms{Arm("a", model, settings), Arm("b", model, settings)};
  uint64_t last = 0;
  bool rises = true;
  const auto run = RunBench(arms, settings,
                            {.progress =
                                 [&](uint64_t done, uint64_t total) {
                                   rises = rises && done >= last && done <= total;
                                   last = done;
                                   return true;
                                 },
                             .interrupted = [] { return false; }});
  ASSERT_TRUE(run.ok()) << run.status().message();
  EXPECT_TRUE(run->complete);
  EXPECT_TRUE(rises);
  ASSERT_EQ(run->samples.size(), 3u * 2 * 2 * (2 * 3 + 2));
  std::map<std::tuple<int, int, BenchPhase, bool>, int> counts;
  int depth = 0, block = -1;
  for (const BenchSample& s : run->samples) {
    EXPECT_GT(s.seconds, 0);
    EXPECT_GE(s.depth, depth);
    if (s.depth > depth) block = -1;
    depth = s.depth;
    EXPECT_GE(s.block, block);
    block = s.block;
    ++counts[{s.arm, s.depth, s.phase, s.block < 0}];
    if (s.block >= 0) {
      EXPECT_EQ(BlockOrder(2, s.block)[static_cast<size_t>(s.position)], s.arm);
    }
  }
  for (const auto& [cell, count] : counts) EXPECT_EQ(count, std::get<3>(cell) ? 2 : 6);
}

// Passes of each number of rows: as many samples of each, of `decode` passes.
TEST(Bench, TakesSamplesOfPassesOfSeveralRows) {
  const BenchSettings settings{.depths = {0, 9}, .decode = 3, .rows = {1, 2, 5}, .blocks = 2, .warmup = 1};
  EXPECT_EQ(settings.Works().size(), 3u);
  EXPECT_EQ(settings.Tokens(settings.Works()[2]), 15);
  EXPECT_EQ(settings.Context(), 24);
  const Model model = Tiny();
  const std::vector<BenchArm> arms{Arm("a", model, settings), Arm("b", model, settings)};
  const auto run = RunBench(arms, settings, kNoControl);
  ASSERT_TRUE(run.ok()) << run.status().message();
  std::map<std::tuple<int, int, int>, int> counts;  // arm, depth, rows
  for (const BenchSample& s : run->samples) {
    EXPECT_EQ(s.phase, BenchPhase::kDecode);
    ++counts[{s.arm, s.depth, s.rows}];
  }
  EXPECT_EQ(counts.size(), 2u * 2 * 3);
  for (const auto& [cell, count] : counts) EXPECT_EQ(count, 2 * 2 + 1) << std::get<2>(cell);
}

// What is read is [depth, depth + tokens) after everything before it, at every depth, and nothing else: an id out of range is met if and
// only if it lies there.
TEST(Bench, ReadsTheTokensOfItsDepths) {
  const Model model = Tiny();
  for (const BenchWork work : {BenchWork{BenchPhase::kPrefill}, BenchWork{BenchPhase::kDecode},
                               BenchWork{BenchPhase::kDecode, 2}, BenchWork{BenchPhase::kDecode, 4}}) {
    for (const int64_t depth : {int64_t{0}, int64_t{1}, int64_t{2}, int64_t{3}, int64_t{16}, int64_t{33}}) {
      BenchSettings settings{.depths = {depth}, .blocks = 1, .warmup = 0};
      (work.phase == BenchPhase::kPrefill ? settings.prefill : settings.decode) = 4 / work.rows;
      settings.rows = {work.rows};
      for (int64_t bad = 0; bad < depth + 6; ++bad) {
        SCOPED_TRACE(testing::Message()
                     << Name(work.phase) << " rows " << work.rows << " depth " << depth << " bad " << bad);
        BenchArm arm = Arm("x", model, settings);
        arm.tokens.resize(static_cast<size_t>(depth + 6), 0);
        arm.tokens[static_cast<size_t>(bad)] = -1;
        const auto run = RunBench({&arm, 1}, settings, kNoControl);
        EXPECT_EQ(run.ok(), bad >= depth + 4);
        if (!run.ok()) {
          EXPECT_TRUE(run.status().message().starts_with("arm 'x': ")) << run.status().message();
        }
      }
    }
  }
}

TEST(Bench, MoreBlocksAsTimeAllowsButNoMoreThanTheMost) {
  const Model model = Tiny();
  for (const double seconds : {0.0, 1e9}) {
    const BenchSettings settings{
        .depths = {4}, .decode = 1, .blocks = 2, .most_blocks = 5, .seconds = seconds};
    const BenchArm arm = Arm("x", model, settings);
    const auto run = RunBench({&arm, 1}, settings, kNoControl);
    ASSERT_TRUE(run.ok());
    EXPECT_EQ(run->samples.size(), 1u + 2 * (seconds > 0 ? 5 : 2));
  }
}

// Whenever it is interrupted, what had been measured is there, and says that it is not all.
TEST(Bench, AnInterruptionKeepsWhatWasMeasured) {
  const BenchSettings settings{.depths = {4, 8}, .prefill = 2, .decode = 2, .blocks = 2};
  const BenchArm arm = Arm("x", Tiny(), settings);
  std::set<size_t> seen;
  for (int calls = 0; calls < 400; calls += 3) {
    int left = calls;
    const auto run = RunBench({&arm, 1}, settings,
                              {.progress = {}, .interrupted = [&] { return left == 0 || --left == 0; }});
    ASSERT_TRUE(run.ok()) << run.status().message();
    seen.insert(run->samples.size());
    if (run->complete) {
      EXPECT_EQ(run->samples.size(), 20u);
      break;
    }
    EXPECT_LE(run->samples.size(), 20u);
  }
  EXPECT_TRUE(seen.contains(0));
  EXPECT_TRUE(seen.contains(20)) << "never came to the end";
  EXPECT_GT(seen.size(), 10u);
}

TEST(Bench, RefusesWhatCanNotBe) {
  const Model model = Tiny();
  BenchSettings settings{.depths = {8}, .decode = 4};
  BenchArm arm = Arm("short", model, settings);
  arm.tokens.pop_back();
  auto run = RunBench({&arm, 1}, settings, kNoControl);
  ASSERT_FALSE(run.ok());
  EXPECT_EQ(run.status().message(), "arm 'short': 11 tokens are given, 12 are needed");
  EXPECT_FALSE(RunBench({}, settings, kNoControl).ok());
  settings.rows = {0};
  EXPECT_FALSE(RunBench({&arm, 1}, settings, kNoControl).ok());
  settings.rows.clear();
  EXPECT_FALSE(RunBench({&arm, 1}, settings, kNoControl).ok());
  settings.depths.clear();
  EXPECT_FALSE(RunBench({&arm, 1}, settings, kNoControl).ok());
}

// Checked arms read the tokens of their samples too, in the same places, and are measured as others are.
TEST(Bench, AnArmCanBeCheckedFirst) {
  const BenchSettings settings{.depths = {0, 5}, .prefill = 3, .decode = 2, .rows = {1, 3}, .warmup = 0};
  BenchArm arm = Arm("x", Tiny(), settings);
  arm.check = true;
  const auto run = RunBench({&arm, 1}, settings, kNoControl);
  ASSERT_TRUE(run.ok()) << run.status().message();
  EXPECT_EQ(run->samples.size(), 2u * 3 * 2);
}

// All weights in use, and more with each token in the context.
TEST(Bench, DecodeBytesGrowWithDepth) {
  const Model model = Tiny();
  double last = static_cast<double>(model.weight_bytes_per_token());
  for (const int64_t depth : {0, 16, 64, 256}) {
    const auto bytes = DecodeBytes(model, depth);
    ASSERT_TRUE(bytes.ok());
    EXPECT_GT(*bytes, last) << depth;
    last = *bytes;
  }
}

// More rows move more, but less than as many passes of one would: all but the experts, the caches' rows and the embedding's is read once.
TEST(Bench, BytesOfAPassGrowWithItsRows) {
  const Model model = Tiny();
  const double one = *DecodeBytes(model, 64);
  double last = one;
  for (const int rows : {2, 3, 4, 8}) {
    const auto bytes = DecodeBytes(model, 64, rows);
    ASSERT_TRUE(bytes.ok());
    EXPECT_GT(*bytes, last);
    EXPECT_LT(*bytes, rows * one);
    last = *bytes;
  }
}

TEST(Bench, RandomTokensAreOfTheirSeedAlone) {
  const auto ids = RandomTokens(1000, 61, 7);
  EXPECT_EQ(ids, RandomTokens(1000, 61, 7));
  EXPECT_NE(ids, RandomTokens(1000, 61, 8));
  EXPECT_EQ(RandomTokens(10, 61, 7), std::vector<int32_t>(ids.begin(), ids.begin() + 10));
  EXPECT_EQ(std::set<int32_t>(ids.begin(), ids.end()).size(), 61u);
  EXPECT_EQ(*std::min_element(ids.begin(), ids.end()), 0);
}

// The same weights in the same place, other threads and levers, the same logits; either may go first.
TEST(WithOptions, SharesTheWeights) {
  std::optional<Model> base = Tiny();
  auto other = WithOptions(*base, {.threads = 2, .without = {"all"}});
  ASSERT_TRUE(other.ok()) << other.status().message();
  EXPECT_EQ(other->threads(), 2);
  EXPECT_EQ(other->name(), base->name());
  EXPECT_EQ(other->fingerprint(), base->fingerprint());
  EXPECT_EQ(other->tokenizer_fingerprint(), base->tokenizer_fingerprint());
  EXPECT_EQ(other->impl()->data.weights.head.data, base->impl()->data.weights.head.data);
  EXPECT_NE(other->impl()->backend.get(), base->impl()->backend.get());
  const BenchSettings settings{.depths = {3}, .prefill = 3, .decode = 3};
  EXPECT_FALSE(WithOptions(*base, {.threads = -1}).ok());
  EXPECT_FALSE(WithOptions(*base, {.with = {"no.such.lever"}}).ok());
  base.reset();
  const BenchArm arm = Arm("x", *other, settings);
  EXPECT_TRUE(RunBench({&arm, 1}, settings, kNoControl).ok());
}

}  // namespace
}  // namespace glint::engine
