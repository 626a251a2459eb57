#include "plan/profile.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cmath>
#include <map>
#include <random>

#include "plan/chrome_trace.h"
#include "tests/support/small_model.h"

namespace glint::plan {
namespace {

class ProfileOfInventedTimes : public testing::Test {
 protected:
  void SetUp() override {
    test::MakeSmall(model_, 1, false);
    PlanRequest request;
    request.hparams = &model_.hp;
    request.weights = &model_.weights;
    auto plan = MakePlan(request);
    ASSERT_TRUE(plan.ok());
    plan_ = std::move(*plan);
  }

  // Every step takes `step` and `clock` to be timed, `gap` lies between them, and `outside` around the pass.
  PassTimes Times(double step, double gap, double outside, double clock = 0) const {
    PassTimes times;
    double now = gap;
    for (size_t i = 0; i < plan_.steps.size(); ++i) {
      times.steps.push_back({now, step, clock});
      now += step + clock + gap;
    }
    times.whole = now;
    times.outside = outside;
    return times;
  }

  Profile Make(const std::vector<std::vector<PassTimes>>& timed,
               const std::vector<std::vector<double>>& untimed = {}, bool per_layer = false) const {
    std::vector<PassShape> shapes(timed.front().size());
    return MakeProfile({plan_, model_.hp, model_.weights, shapes, timed, untimed, per_layer});
  }

  test::SmallModel model_;
  Plan plan_;
};

TEST(Quartiles, LieBetweenNeighbours) {
  const auto q = QuartilesOf({4, 1, 3, 2});
  EXPECT_DOUBLE_EQ(q.low, 1.75);
  EXPECT_DOUBLE_EQ(q.median, 2.5);
  EXPECT_DOUBLE_EQ(q.high, 3.25);
  EXPECT_EQ(QuartilesOf({7}).low, 7);
  EXPECT_EQ(QuartilesOf({}).median, 0);
}

TEST_F(ProfileOfInventedTimes, RowsAndRestAddUpToTheTotal) {
  const size_t steps = plan_.steps.size();
  const Profile p = Make({{Times(2, 0.5, 3)}}, {{100.0}});
  double sum = 0;
  int calls = 0;
  std::map<std::string_view, const ProfileRow*> rows;
  for (const ProfileRow& row : p.rows) {
    sum += row.seconds.median;
    calls += row.calls;
    rows[Name(row.covers.front())] = &row;
    EXPECT_DOUBLE_EQ(row.seconds.median, 2.0 * row.calls) << Name(row.covers.front());
  }
  EXPECT_EQ(calls, static_cast<int>(steps));
  EXPECT_EQ(rows["kda.recur"]->calls, 2);
  EXPECT_EQ(rows["hc.pre"]->calls, 8);  // both sites are one row
  EXPECT_DOUBLE_EQ(p.rest, 0.5 * static_cast<double>(steps + 1));
  EXPECT_DOUBLE_EQ(p.outside, 3);
  EXPECT_DOUBLE_EQ(sum + p.rest + p.outside, p.total.median);
  EXPECT_DOUBLE_EQ(p.seconds_in_steps(), sum);
  EXPECT_DOUBLE_EQ(p.untimed.median, 100);
  EXPECT_TRUE(std::is_sorted(p.rows.begin(), p.rows.end(), [](const auto& a, const auto& b) {
    return a.covers.front() < b.covers.front();
  }));
}

// What timing takes is a row of its own: no step's, not the rest's, and not in what is compared with runs that nobody times.
TEST_F(ProfileOfInventedTimes, TheClockIsARowOfItsOwn) {
  const auto steps = static_cast<double>(plan_.steps.size());
  const Profile with = Make({{Times(2, 0.5, 3, 0.25)}}), without = Make({{Times(2, 0.5, 3)}});
  EXPECT_DOUBLE_EQ(with.clock, 0.25 * steps);
  EXPECT_DOUBLE_EQ(with.undisturbed(), without.total.median);
  EXPECT_DOUBLE_EQ(with.seconds_in_steps(), without.seconds_in_steps());
  EXPECT_DOUBLE_EQ(with.rest, without.rest);
  double sum = with.rest + with.outside + with.clock;
  for (const ProfileRow& row : with.rows) sum += row.seconds.median;
  EXPECT_DOUBLE_EQ(sum, with.total.median);
  EXPECT_EQ(without.clock, 0);
}

// What happens in one pass of a run counts with its share; what happens once in all repetitions does not.
TEST_F(ProfileOfInventedTimes, KeepsTheRareStepAndDropsTheRareDisturbance) {
  std::vector<std::vector<PassTimes>> timed(5, std::vector<PassTimes>(4, Times(1, 0, 0)));
  for (auto& run : timed) run[3] = Times(5, 0, 0);  // the last pass of each run is dear
  timed[2][1] = Times(1000, 0, 0);                  // once, somebody else had the machine
  const Profile p = Make(timed);
  const auto steps = static_cast<double>(plan_.steps.size());
  EXPECT_DOUBLE_EQ(p.total.median, steps * (1 + 1 + 1 + 5) / 4);
  EXPECT_DOUBLE_EQ(p.total.high, p.total.median);
  EXPECT_DOUBLE_EQ(p.rest, 0);
}

// Random times: medians of parts do not add up to the median of the whole by themselves.
TEST_F(ProfileOfInventedTimes, AddsUpWhateverTheTimes) {
  std::mt19937_64 rng(7);
  std::vector<std::vector<PassTimes>> timed(7);
  for (auto& run : timed) {
    for (int pass = 0; pass < 3; ++pass) {
      run.push_back(Times(1, 0.1, std::exponential_distribution<double>(1)(rng)));
      run.back().whole = 0;
      for (StepTime& step : run.back().steps) {
        step.seconds = std::exponential_distribution<double>(1)(rng);
        step.clock = std::exponential_distribution<double>(10)(rng);
        run.back().whole += 1.01 * step.seconds + step.clock;
      }
    }
  }
  const Profile p = Make(timed, {}, true);
  double sum = p.rest + p.outside + p.clock;
  for (const ProfileRow& row : p.rows) sum += row.seconds.median;
  EXPECT_NEAR(sum, p.total.median, 1e-9 * sum);
}

TEST_F(ProfileOfInventedTimes, LayersApartAddUpToLayersTogether) {
  const Profile together = Make({{Times(2, 0, 0)}}), apart = Make({{Times(2, 0, 0)}}, {}, true);
  const auto sum = [](const Profile& p, Stage stage) {
    double seconds = 0, bytes = 0;
    for (const ProfileRow& row : p.rows)
      if (row.covers.front() == stage) seconds += row.seconds.median, bytes += row.bytes.total();
    return std::pair(seconds, bytes);
  };
  for (const ProfileRow& row : together.rows) {
    const auto [seconds, bytes] = sum(apart, row.covers.front());
    EXPECT_DOUBLE_EQ(seconds, row.seconds.median);
    EXPECT_NEAR(bytes, row.bytes.total(), 1e-9 * bytes);
  }
  EXPECT_EQ(apart.rows.front().covers.front(), Stage::kEmbed);
  EXPECT_EQ(apart.rows.back().covers.front(), Stage::kHeadLogits);
  int layer = -1;
  for (const ProfileRow& row : apart.rows) {
    if (row.layer < 0) continue;
    EXPECT_GE(row.layer, layer);
    layer = row.layer;
  }
  EXPECT_EQ(layer, 3);
}

// What viewers read: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU (Trace Event Format).
TEST_F(ProfileOfInventedTimes, TraceIsAnObjectOfNestedCompleteEvents) {
  const std::vector<PassTimes> passes = {Times(0.25, 0.5, 2), Times(0.125, 0, 0)};
  std::vector<PassShape> shapes(2);
  shapes[1].position = 1;
  const std::vector<TraceTrack> tracks = {
      {"prefill", &plan_, std::span(passes).first(1), std::span(shapes).first(1)},
      {"decode \"quoted\"", &plan_, passes, shapes}};
  const auto root =
      boost::json::parse(ChromeTrace("a process", tracks, model_.hp, model_.weights)).as_object();
  EXPECT_EQ(root.at("displayTimeUnit").as_string(), "ms");
  std::map<std::string, int> by_phase, by_category;
  struct Span {
    double begin, end;
  };
  std::map<int64_t, std::vector<Span>> open;  // by thread: events are in order, parents first
  for (const auto& value : root.at("traceEvents").as_array()) {
    const auto& event = value.as_object();
    const std::string phase(event.at("ph").as_string());
    ++by_phase[phase];
    EXPECT_TRUE(event.at("name").is_string());
    EXPECT_EQ(event.at("pid").to_number<int64_t>(), 1);
    const auto thread = event.at("tid").to_number<int64_t>();
    if (phase == "M") {
      EXPECT_TRUE(event.at("args").as_object().at("name").is_string());
      continue;
    }
    ASSERT_EQ(phase, "X");
    ++by_category[std::string(event.at("cat").as_string())];
    const double begin = event.at("ts").to_number<double>(),
                 end = begin + event.at("dur").to_number<double>();
    EXPECT_GE(end, begin);
    auto& spans = open[thread];
    while (!spans.empty() && spans.back().end <= begin + 1e-3) spans.pop_back();
    if (!spans.empty()) {
      EXPECT_GE(begin, spans.back().begin - 1e-3);
      EXPECT_LE(end, spans.back().end + 1e-3);  // inside its parent, or the viewer draws it wrong
    }
    spans.push_back({begin, end});
  }
  const int steps = static_cast<int>(plan_.steps.size());
  EXPECT_EQ(by_phase["M"], 3);  // the process and two threads
  EXPECT_EQ(by_category["stage"], 3 * steps);
  EXPECT_EQ(by_category["pass"], 3);
  EXPECT_EQ(by_category["layer"], 3 * 4);
  // The second pass begins where the first, and what was around it, ended; times are microseconds.
  const auto& events = root.at("traceEvents").as_array();
  std::vector<double> starts;
  for (const auto& event : events) {
    const auto& o = event.as_object();
    if (o.contains("cat") && o.at("cat").as_string() == "pass" && o.at("tid").to_number<int>() == 2)
      starts.push_back(o.at("ts").to_number<double>());
  }
  EXPECT_EQ(starts, (std::vector<double>{0, (passes[0].whole + 2) * 1e6}));
}

}  // namespace
}  // namespace glint::plan
