// The sampler against the rules of docs/sampling.md written a second time: in double precision with full
// sorts, by frequencies of draws, and by ids computed with another language.
#include "glint/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/math.h"
#include "engine/random.h"

namespace glint {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

Sampler Make(const SamplerOptions& options, int64_t vocab) {
  auto sampler = Sampler::Create(options, vocab);
  EXPECT_TRUE(sampler.ok()) << sampler.status().message();
  return std::move(*sampler);
}

std::vector<float> RandomLogits(std::mt19937_64& rng, size_t n, float spread) {
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> logits(n);
  for (auto& l : logits) l = normal(rng);
  return logits;
}

// Probability of each id after the filters, in double, by sorting everything. Filters are those of the
// documentation, with real numbers where the sampler has integers.
std::vector<double> Probabilities(const std::vector<float>& logits, const SamplerOptions& o) {
  std::vector<int> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::erase_if(order, [&](int i) { return !(logits[i] > -kInf); });
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return logits[a] > logits[b]; });
  if (o.top_k > 0 && order.size() > static_cast<size_t>(o.top_k)) order.resize(o.top_k);
  std::vector<double> p(logits.size());
  double sum = 0;
  for (const int i : order)
    sum += p[i] = std::exp((double{logits[i]} - logits[order[0]]) / double{o.temperature});
  double cumulative = 0, kept = 0;
  for (size_t n = 0; n < order.size(); ++n) {
    double& x = p[order[n]];
    if (n > 0 && (cumulative >= double{o.top_p} * sum || x < double{o.min_p})) {
      x = 0;
      cumulative = kInf;  // a prefix: whatever follows goes too
    } else {
      cumulative += x;
      kept += x;
    }
  }
  for (auto& x : p) x /= kept;
  return p;
}

TEST(Sampler, GreedyTakesTheHighestAndTheLowerIdOfEquals) {
  auto sampler = Make({.temperature = 0}, 5);
  EXPECT_EQ(*sampler.Sample(std::vector<float>{1, 3, 2, 3, -1}), 1);
  EXPECT_EQ(*sampler.Sample(std::vector<float>{kNan, -kInf, -5, -5, kNan}), 2);
  EXPECT_EQ(*sampler.Sample(std::vector<float>{0, 1, kInf, 2, kInf}), 2);
  EXPECT_EQ(*sampler.Sample(std::vector<float>{-0.0f, 0.0f, -1, -1, -1}), 0);
}

TEST(Sampler, PaddingIsNeverChosen) {
  std::vector<float> logits(12, -3.0f);
  for (size_t i = 8; i < 12; ++i) logits[i] = 50;
  auto greedy = Make({.temperature = 0}, 8);
  EXPECT_EQ(*greedy.Sample(logits), 0);
  auto random = Make({.seed = 3}, 8);
  for (int i = 0; i < 2000; ++i) ASSERT_LT(*random.Sample(logits), 8);
}

TEST(Sampler, NothingLeftIsAnError) {
  auto sampler = Make({.logit_bias = {{0, -kInf}, {1, -kInf}, {2, -kInf}}}, 3);
  const auto banned = sampler.Sample(std::vector<float>{1, 2, 3});
  ASSERT_FALSE(banned.ok());
  EXPECT_EQ(banned.status().code(), Code::kBadInput);
  EXPECT_NE(banned.status().message().find("no id is left"), std::string::npos);
  auto nans = Make({}, 2);
  EXPECT_FALSE(nans.Sample(std::vector<float>{kNan, kNan}).ok());
  EXPECT_FALSE(nans.Sample(std::vector<float>{1}).ok()) << "fewer logits than ids";
  EXPECT_TRUE(nans.Sample(std::vector<float>{kNan, 1}).ok()) << "an error changes nothing";
}

TEST(Sampler, OptionsOutOfRangeAreNamed) {
  const struct {
    SamplerOptions options;
    const char* name;
  } cases[] = {
      {{.temperature = -1}, "temperature"},
      {{.temperature = kNan}, "temperature"},
      {{.temperature = kInf}, "temperature"},
      {{.top_k = -1}, "top_k"},
      {{.top_p = 0}, "top_p"},
      {{.top_p = 1.01f}, "top_p"},
      {{.top_p = kNan}, "top_p"},
      {{.min_p = 1}, "min_p"},
      {{.min_p = -0.1f}, "min_p"},
      {{.repetition_penalty = 0}, "repetition_penalty"},
      {{.repetition_penalty = kInf}, "repetition_penalty"},
      {{.presence_penalty = kNan}, "presence_penalty"},
      {{.frequency_penalty = kInf}, "frequency_penalty"},
      {{.logit_bias = {{10, 1}}}, "logit_bias"},
      {{.logit_bias = {{-1, 1}}}, "logit_bias"},
      {{.logit_bias = {{3, kNan}}}, "logit_bias"},
      {{.logit_bias = {{3, kInf}}}, "logit_bias"},
  };
  for (const auto& c : cases) {
    const auto sampler = Sampler::Create(c.options, 10);
    ASSERT_FALSE(sampler.ok()) << c.name;
    EXPECT_EQ(sampler.status().code(), Code::kBadInput);
    EXPECT_NE(sampler.status().message().find(c.name), std::string::npos) << sampler.status().message();
  }
  EXPECT_FALSE(Sampler::Create({}, 0).ok());
}

// By hand: logits 2, -1, 1, 0.5. Ids 0 and 1 stand in the prompt, id 2 was generated twice.
//   repetition 2:  0: 2 / 2 = 1;  1: -1 * 2 = -2;  2: 1 / 2 = 0.5;  3: untouched 0.5
//   presence 0.25, frequency 0.125 (generated only):  2: 0.5 - 0.25 - 2 * 0.125 = 0
TEST(Sampler, PenaltiesOfAHandComputedCase) {
  const std::vector<float> logits{2, -1, 1, 0.5f};
  // A bias decides who wins; each probe lifts one id by a little more or less than its distance to the
  // winner, 1.
  const auto winner = [&](int32_t id, float lift) {
    auto sampler = Make(
        {.temperature = 0, .repetition_penalty = 2, .presence_penalty = 0.25f, .frequency_penalty = 0.125f},
        4);
    sampler.Observe(std::vector<int32_t>{0, 1});
    sampler.Observe(std::vector<int32_t>{99, -7});  // ignored
    EXPECT_EQ(*sampler.Sample(std::vector<float>{0, 0, 9, 0}), 2);
    EXPECT_EQ(*sampler.Sample(std::vector<float>{0, 0, 99, 0}), 2);
    auto changed = logits;
    changed[static_cast<size_t>(id)] += lift;
    return *sampler.Sample(changed);
  };
  EXPECT_EQ(winner(0, 0), 0);
  EXPECT_EQ(winner(3, 0.49f), 0);   // 0.99 < 1
  EXPECT_EQ(winner(3, 0.51f), 3);   // 1.01
  EXPECT_EQ(winner(2, 1.99f), 0);   // 2.99 / 2 - 0.5 = 0.995
  EXPECT_EQ(winner(2, 2.01f), 2);   // 1.005
  EXPECT_EQ(winner(1, 2.99f), 0);   // 1.99 / 2 = 0.995
  EXPECT_EQ(winner(1, 3.01f), 1);   // 1.005
  EXPECT_EQ(winner(0, -0.99f), 0);  // 1.01 / 2 = 0.505 against 0.5
  EXPECT_EQ(winner(0, -1.01f), 3);  // 0.495
}

// Weights 1, e^-1 = 0.368, e^-2 = 0.135, e^-3 = 0.050; their sum is 1.553, the first two are 0.881 of it.
TEST(Sampler, FiltersOfAHandComputedCase) {
  const std::vector<float> logits{-3, 0, -2, -1};
  const auto kept = [&](SamplerOptions options) {
    options.seed = 5;
    auto sampler = Make(options, 4);
    std::set<int32_t> ids;
    for (int i = 0; i < 2000; ++i) ids.insert(*sampler.Sample(logits));
    return ids;
  };
  using Set = std::set<int32_t>;
  EXPECT_EQ(kept({}), (Set{0, 1, 2, 3}));
  EXPECT_EQ(kept({.min_p = 0.37f}), (Set{1}));
  EXPECT_EQ(kept({.min_p = 0.36f}), (Set{1, 3}));
  EXPECT_EQ(kept({.min_p = 0.13f}), (Set{1, 2, 3}));
  EXPECT_EQ(kept({.top_p = 0.64f}), (Set{1}));
  EXPECT_EQ(kept({.top_p = 0.65f}), (Set{1, 3}));
  EXPECT_EQ(kept({.top_p = 0.88f}), (Set{1, 3}));
  EXPECT_EQ(kept({.top_p = 0.89f}), (Set{1, 2, 3}));
  EXPECT_EQ(kept({.top_k = 3}), (Set{1, 2, 3}));
  // Top-p measures after top-k: 1 is 0.731 of the first two.
  EXPECT_EQ(kept({.top_k = 2, .top_p = 0.72f}), (Set{1}));
  EXPECT_EQ(kept({.top_k = 2, .top_p = 0.74f}), (Set{1, 3}));
}

TEST(Sampler, BiasComesBeforeThePenalties) {
  // -1 + 3 = 2 is positive, so the repetition penalty divides it: 1. Multiplying first would give -2 + 3 = 1
  // too, hence 4: -1 * 4 + 3 = -1 against (-1 + 3) / 4 = 0.5.
  auto sampler = Make({.temperature = 0, .repetition_penalty = 4, .logit_bias = {{1, 1}, {1, 2}}}, 2);
  sampler.Observe(std::vector<int32_t>{1});
  EXPECT_EQ(*sampler.Sample(std::vector<float>{0.25f, -1}), 1);
}

// 40,000 draws of each setting against the double-precision probabilities. For a right sampler the sum of
// (seen - expected)^2 / expected over n bins has mean n - 1 and deviation sqrt(2 (n - 1)); five deviations of
// a fixed seed.
TEST(Sampler, DrawsFollowTheProbabilities) {
  const SamplerOptions settings[] = {
      {},
      {.temperature = 0.7f},
      {.temperature = 2},
      {.top_k = 1},
      {.top_k = 7},
      {.top_k = 1000},
      {.top_p = 0.9f},
      {.top_p = 0.01f},
      {.min_p = 0.05f},
      {.temperature = 0.7f, .top_k = 40, .top_p = 0.8f, .min_p = 0.02f},
      {.temperature = 1.5f, .top_k = 20, .top_p = 0.99f, .min_p = 0.3f},
  };
  std::mt19937_64 rng(20261129);
  uint64_t seed = 1;
  for (const auto& setting : settings) {
    for (const float spread : {0.5f, 2.0f}) {
      SCOPED_TRACE("setting " + std::to_string(&setting - settings) + ", spread " + std::to_string(spread));
      const auto logits = RandomLogits(rng, 200, spread);
      const auto p = Probabilities(logits, setting);
      auto options = setting;
      options.seed = seed++;
      auto sampler = Make(options, 200);
      constexpr int kDraws = 40000;
      std::vector<int> seen(200);
      for (int i = 0; i < kDraws; ++i) ++seen[static_cast<size_t>(*sampler.Sample(logits))];
      double chi = 0, rest_expected = 0, rest_seen = 0;
      int bins = 0;
      for (size_t i = 0; i < 200; ++i) {
        const double expected = p[i] * kDraws;
        if (expected == 0) {
          ASSERT_EQ(seen[i], 0) << "id " << i << " was filtered out";
        } else if (expected < 10) {
          rest_expected += expected, rest_seen += seen[i];
        } else {
          chi += (seen[i] - expected) * (seen[i] - expected) / expected, ++bins;
        }
      }
      if (rest_expected > 0) chi += std::pow(rest_seen - rest_expected, 2) / rest_expected, ++bins;
      EXPECT_LT(chi, bins - 1 + 5 * std::sqrt(2.0 * bins)) << bins << " bins";
    }
  }
}

// The uniform numbers behind the draws: equal counts in 256 cells of the top and of the low byte, for several
// seeds, and no correlation between neighbours or neighbouring seeds.
TEST(Sampler, GeneratorIsUniform) {
  for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{0x9e3779b97f4a7c15}, ~uint64_t{0}}) {
    std::vector<int> top(256), low(256);
    constexpr int kDraws = 256 * 400;
    double product = 0, across = 0;
    const auto centred = [](uint64_t x) { return std::ldexp(static_cast<double>(x >> 11), -53) - 0.5; };
    for (uint64_t n = 0; n < kDraws; ++n) {
      const uint64_t x = engine::Draw64(seed, n);
      ++top[x >> 56], ++low[x & 255];
      product += centred(x) * centred(engine::Draw64(seed, n + 1));
      across += centred(x) * centred(engine::Draw64(seed + 1, n));
    }
    for (const auto& cells : {top, low}) {
      double chi = 0;
      for (const int c : cells) chi += (c - 400.0) * (c - 400.0) / 400.0;
      EXPECT_NEAR(chi, 255, 5 * std::sqrt(510.0)) << seed;
    }
    // Each product has variance 1/144.
    EXPECT_LT(std::abs(product), 5 * std::sqrt(kDraws / 144.0)) << seed;
    EXPECT_LT(std::abs(across), 5 * std::sqrt(kDraws / 144.0)) << seed;
  }
}

// Computed with Python's integers and math.exp from docs/sampling.md; every draw lies at least 9e-4 of the
// chosen id's share away from its neighbour, 1,000 times what the two exps differ by.
TEST(Sampler, SeedsGiveTheseIds) {
  EXPECT_EQ(engine::Draw64(0, 0), 0xa706dd2f4d197e6fu);
  EXPECT_EQ(engine::Draw64(0, 1), 0xb382a305f4414f5eu);
  EXPECT_EQ(engine::Draw64(1, 0), 0x5e41ab087439611eu);
  EXPECT_EQ(engine::Draw64(~uint64_t{0}, 7), 0xb94ec6a04d7b4627u);

  std::vector<float> logits(1000);
  for (size_t i = 0; i < 1000; ++i) logits[i] = static_cast<float>(i * 37 % 101) / 8;
  const struct {
    SamplerOptions options;
    std::vector<int32_t> ids;
  } cases[] = {
      {{.seed = 0}, {371, 603, 827, 472, 491, 262, 87, 494, 726, 614, 49, 838, 636, 412, 614, 423}},
      {{.temperature = 0.7f, .top_p = 0.9f, .seed = 1234},
       {554, 472, 434, 797, 756, 636, 666, 363, 898, 958, 232, 240, 30, 827, 483, 969}},
      {{.temperature = 1.5f, .top_k = 40, .seed = 99},
       {868, 423, 191, 221, 827, 939, 232, 292, 827, 838, 423, 90, 524, 131, 838, 19}},
      {{.min_p = 0.1f, .seed = 7},
       {472, 38, 483, 311, 19, 464, 248, 622, 289, 161, 46, 49, 30, 565, 491, 259}},
  };
  for (const auto& c : cases) {
    auto sampler = Make(c.options, 1000);
    std::vector<int32_t> ids;
    for (size_t i = 0; i < c.ids.size(); ++i) ids.push_back(*sampler.Sample(logits));
    EXPECT_EQ(ids, c.ids) << "seed " << c.options.seed;
  }
}

// At the released vocabulary, with ties in plenty: ordering only as far as needed gives what sorting
// everything gives.
TEST(Sampler, PartialOrderingChangesNothing) {
  constexpr size_t kVocab = 154880;
  std::mt19937_64 rng(7);
  for (const float step : {0.0f, 0.5f, 0.01f}) {  // 0: all logits equal
    auto logits = RandomLogits(rng, kVocab, 3);
    for (auto& l : logits) l = step == 0 ? 0 : std::round(l / step) * step;
    std::vector<size_t> order(kVocab);
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
    for (const int32_t top_k : {0, 1, 63, 64, 65, 5000}) {
      for (const float top_p : {1.0f, 0.95f, 0.25f}) {
        SCOPED_TRACE("top_k " + std::to_string(top_k) + ", top_p " + std::to_string(top_p));
        std::vector<uint64_t> weights;
        for (size_t i = 0; i < (top_k == 0 ? kVocab : static_cast<size_t>(top_k)); ++i) {
          weights.push_back(
              static_cast<uint64_t>(Exp((logits[order[i]] - logits[order[0]]) / 1.3f) * 0x1p40f));
        }
        const auto total = std::accumulate(weights.begin(), weights.end(), uint64_t{0});
        uint64_t kept = 0;
        // The total times top_p as a long double has all its 58 bits.
        for (size_t i = 0;
             i < weights.size() && static_cast<long double>(kept) < total * static_cast<long double>(top_p);
             ++i) {
          kept += weights[i];
        }
        auto sampler = Make({.temperature = 1.3f, .top_k = top_k, .top_p = top_p, .seed = 11}, kVocab);
        for (uint64_t n = 0; n < 4; ++n) {
          // High half of draw * kept, by halves of the draw.
          const uint64_t draw = engine::Draw64(11, n), low = (draw & 0xffffffff) * (kept >> 32);
          uint64_t target = (draw >> 32) * (kept >> 32);
          const uint64_t a = (draw >> 32) * (kept & 0xffffffff),
                         carry = (draw & 0xffffffff) * (kept & 0xffffffff) >> 32;
          target += (low >> 32) + (a >> 32) + (((low & 0xffffffff) + (a & 0xffffffff) + carry) >> 32);
          size_t i = 0;
          for (uint64_t passed = weights[0]; passed <= target; passed += weights[++i]) {
          }
          ASSERT_EQ(*sampler.Sample(logits), static_cast<int32_t>(order[i]));
        }
      }
    }
  }
}

// docs/sampling.md step by step: everything sorted, one weight after the other.
class Plain {
 public:
  Plain(SamplerOptions options, size_t vocab) : o_(std::move(options)), generated_(vocab), seen_(vocab) {}

  int32_t Sample(std::vector<float> l) {
    std::vector<float> bias(l.size());
    for (const auto& [id, b] : o_.logit_bias) bias[static_cast<size_t>(id)] += b;
    std::vector<int32_t> order;
    for (size_t i = 0; i < l.size(); ++i) {
      if (!o_.logit_bias.empty()) l[i] += bias[i];
      if (seen_[i]) l[i] = l[i] > 0 ? l[i] / o_.repetition_penalty : l[i] * o_.repetition_penalty;
      if (generated_[i] > 0) {
        l[i] -= o_.presence_penalty;
        l[i] -= o_.frequency_penalty * static_cast<float>(generated_[i]);
      }
      if (l[i] > -kInf) order.push_back(static_cast<int32_t>(i));
    }
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return l[a] > l[b]; });
    if (order.empty()) return -1;
    int32_t chosen = order[0];
    if (o_.temperature > 0) chosen = order[Draw(l, order)];
    seen_[static_cast<size_t>(chosen)] = true;
    ++generated_[static_cast<size_t>(chosen)];
    return chosen;
  }
  void Observe(int32_t id) { seen_[static_cast<size_t>(id)] = true; }

 private:
  size_t Draw(const std::vector<float>& l, const std::vector<int32_t>& order) {
    const float highest = l[order[0]];
    const size_t k = o_.top_k == 0 ? order.size() : std::min(order.size(), static_cast<size_t>(o_.top_k));
    std::vector<uint64_t> weights;
    uint64_t total = 0;
    for (size_t i = 0; i < k; ++i) {
      const float x = l[order[i]];
      weights.push_back(x == highest ? uint64_t{1} << 40
                                     : static_cast<uint64_t>(Exp((x - highest) / o_.temperature) * 0x1p40f));
      total += weights.back();
    }
    __extension__ using Wide = unsigned __int128;
    const auto p = static_cast<uint64_t>(std::lround(std::ldexp(o_.top_p, 32)));
    const auto need = static_cast<uint64_t>((Wide{total} * p + 0xffffffff) >> 32);
    const auto least = static_cast<uint64_t>(o_.min_p * 0x1p40f);
    uint64_t kept = 0;
    for (size_t i = 0; i < k && kept < need && (i == 0 || weights[i] >= least); ++i) kept += weights[i];
    const auto target = static_cast<uint64_t>(Wide{engine::Draw64(o_.seed, draws_++)} * kept >> 64);
    size_t i = 0;
    for (uint64_t passed = weights[0]; passed <= target; passed += weights[++i]) {
    }
    return i;
  }

  SamplerOptions o_;
  std::vector<int> generated_;
  std::vector<bool> seen_;
  uint64_t draws_ = 0;
};

// Vocabularies around the sizes of a pass's pieces; rows that are flat, peaked, full of ties, of holes and of infinities.
TEST(Sampler, DrawsAreThoseOfThePlainDefinition) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  const auto any = [&rng](auto... of) {
    const std::common_type_t<decltype(of)...> list[] = {of...};
    return list[rng() % sizeof...(of)];
  };
  for (int round = 0; round < 400; ++round) {
    const size_t vocab = round % 50 == 0 ? 40000 : any(1, 2, 15, 16, 17, 100, 511, 512, 513, 1025, 3000);
    SamplerOptions o;
    o.temperature = any(1.0f, 1.0f, 0.0f, 0.7f, 1.3f, 100.0f, 1e-3f, 1e-30f, 1e30f, 1e-45f);
    o.top_k = any(0, 0, 0, 1, 2, 40, 500, 100000);
    o.top_p = any(1.0f, 1.0f, 0.95f, 0.5f, 0.01f, 1e-12f, 0.999999f);
    o.min_p = any(0.0f, 0.0f, 0.05f, 0.5f, 1e-4f, 0.99f, 1e-13f);
    o.repetition_penalty = any(1.0f, 1.0f, 1.3f, 0.8f);
    o.presence_penalty = any(0.0f, 0.0f, 0.5f);
    o.frequency_penalty = any(0.0f, 0.0f, 0.25f, -0.25f);
    for (uint64_t i = rng() % 3; i > 0; --i)
      o.logit_bias.emplace_back(static_cast<int32_t>(rng() % vocab), any(0.5f, -2.0f, -kInf, 30.0f));
    o.seed = rng();
    SCOPED_TRACE(testing::Message() << "round " << round << ": " << vocab << " ids, temperature "
                                    << o.temperature << ", top-k " << o.top_k << ", top-p " << o.top_p
                                    << ", min-p " << o.min_p);
    auto sampler = Make(o, static_cast<int64_t>(vocab));
    Plain plain(o, vocab);
    for (int i = 0; i < 3; ++i) {
      const auto id = static_cast<int32_t>(rng() % vocab);
      sampler.Observe({&id, 1});
      plain.Observe(id);
    }
    for (int draw = 0; draw < 8; ++draw) {
      auto logits = RandomLogits(rng, vocab, any(1e-30f, 1e-3f, 1.0f, 4.0f, 30.0f));
      const float step = any(0.0f, 0.0f, 0.5f);
      for (float& l : logits) {
        if (step > 0) l = std::round(l / step) * step;
        if (round % 5 == 1 && rng() % 4 == 0) l = any(kNan, -kInf, -0.0f, 1e38f, -1e38f);
        if (round % 25 == 2 && rng() % 50 == 0) l = kInf;
      }
      const int32_t want = plain.Sample(logits);
      const auto got = sampler.Sample(logits);
      ASSERT_EQ(got.ok() ? *got : -1, want) << "draw " << draw;
    }
  }
}

TEST(Sampler, ResetStartsAnew) {
  std::mt19937_64 rng(5);
  const auto logits = RandomLogits(rng, 300, 1);
  auto sampler = Make({.repetition_penalty = 1.3f, .frequency_penalty = 0.2f, .seed = 42}, 300);
  std::vector<int32_t> first, second;
  for (int i = 0; i < 50; ++i) first.push_back(*sampler.Sample(logits));
  sampler.Reset();
  for (int i = 0; i < 50; ++i) second.push_back(*sampler.Sample(logits));
  EXPECT_EQ(first, second);
  EXPECT_GT(std::set<int32_t>(first.begin(), first.end()).size(), 10u);
}

TEST(Sampler, ExtremeTemperaturesStayFinite) {
  const std::vector<float> logits{-3e38f, 3e38f, 1, 3e38f};
  for (const float t : {1e-45f, 1e-20f, 1.0f, 1e20f, 3e38f}) {
    auto sampler = Make({.temperature = t, .seed = 1}, 4);
    std::set<int32_t> seen;
    for (int i = 0; i < 200; ++i) seen.insert(*sampler.Sample(logits));
    EXPECT_TRUE(seen.count(1) && seen.count(3)) << t;
    if (t <= 1) {
      EXPECT_EQ(seen.size(), 2u) << t;
    }
  }
}

}  // namespace
}  // namespace glint
