#include "cpu/limits.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "cpu/kernels.h"
#include "cpu/limit_loops.h"
#include "tests/cpu/passes.h"

namespace glint::cpu {
namespace {

std::vector<const LimitLoops*> Tables() {
  std::vector<const LimitLoops*> tables = {&ScalarLimitLoops()};
#if defined(__x86_64__)
  if (Avx2Kernels() != nullptr) tables.push_back(&kAvx2LimitLoops);
  if (Avx512Kernels() != nullptr) tables.push_back(&kAvx512LimitLoops);
#elif defined(__aarch64__)
  if (NeonKernels() != nullptr) tables.push_back(&kNeonLimitLoops);
#endif
  return tables;
}

// A pass that skipped lines would report a bandwidth that is not there.
TEST(Limits, ReadingTouchesEveryLine) {
  std::mt19937_64 rng(1);
  constexpr size_t kBytes = 6 * kReadUnit;
  std::vector<std::byte> memory(kBytes + 64);
  std::byte* const data = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
  for (size_t i = 0; i < kBytes; ++i) data[i] = static_cast<std::byte>(rng());
  for (const LimitLoops* loops : Tables()) {
    for (const size_t bytes : {kReadUnit, 2 * kReadUnit, kBytes}) {
      const uint64_t before = loops->read(data, bytes);
      for (size_t at = 0; at < bytes; at += 8) {  // the lowest bit of every word
        data[at] ^= std::byte{1};
        EXPECT_NE(loops->read(data, bytes), before) << loops->name << ", byte " << at << " of " << bytes;
        data[at] ^= std::byte{1};
      }
      EXPECT_EQ(loops->read(data, bytes), before);
    }
  }
}

TEST(Limits, LoopsCountWhatTheyMultiply) {
  for (const LimitLoops* loops : Tables()) {
    for (const auto loop : {loops->digits, loops->bytes, loops->floats}) {
      if (loop == nullptr) continue;
      EXPECT_GT(loop(1), 0u) << loops->name;
      EXPECT_EQ(loop(10), 10 * loop(1)) << loops->name;
    }
  }
}

TEST(Limits, AreMeasuredWithTheThreadsGiven) {
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    uint64_t reports = 0, last = 0;
    const auto limits = MeasureLimits(pool,
                                      [&](uint64_t done, uint64_t total) {
                                        EXPECT_LE(done, total);
                                        EXPECT_TRUE(done > last || done == 0) << done;
                                        last = done;
                                        ++reports;
                                        return true;
                                      },
                                      {.read_bytes = 5 << 20, .passes = 3, .seconds = 1e-5});
    ASSERT_TRUE(limits.ok()) << limits.status().message();
    EXPECT_EQ(limits->threads, threads);
    EXPECT_EQ(limits->read_bytes, uint64_t{5} << 20);
    EXPECT_EQ(limits->instructions, BestLimitLoops().name);
    EXPECT_GE(reports, 9u);
    for (const plan::Rate& rate : {limits->read, limits->integer_products, limits->float_products}) {
      EXPECT_GT(rate.median, 0);
      EXPECT_GE(rate.best, rate.median);
    }
    EXPECT_EQ(limits->byte_products.best > 0, BestLimitLoops().bytes != nullptr);
  }
}

TEST(Limits, MeasuringStopsWhenAsked) {
  ThreadPool pool(2);
  const auto limits = MeasureLimits(pool, [](uint64_t done, uint64_t) { return done < 2; },
                                    {.read_bytes = 1 << 20, .seconds = 1e-5});
  ASSERT_FALSE(limits.ok());
  EXPECT_EQ(limits.status().message(), "interrupted");
}

// Taking the memory that is read may last as long as reading it.
TEST(Limits, FillingStopsWhenAsked) {
  ThreadPool pool(2);
  constexpr uint64_t kPieces = 3;
  uint64_t asked = 0;
  const LimitOptions options{.read_bytes = kPieces << 26, .passes = 1, .seconds = 1e-5};
  for (uint64_t stop = 1; stop <= kPieces; ++stop) {
    asked = 0;
    const auto limits = MeasureLimits(
        pool,
        [&](uint64_t done, uint64_t) {
          EXPECT_EQ(done, 0u) << "a pass was measured";
          return ++asked < stop;
        },
        options);
    ASSERT_FALSE(limits.ok());
    EXPECT_EQ(limits.status().message(), "interrupted");
    EXPECT_EQ(asked, stop);
  }
}

// A timed pass is the pass: same bits, and times that lie in order within the whole.
TEST(TimedPass, HasTheBitsOfAPlainOneAndTimesInOrder) {
  test::SmallModel model;
  test::MakeSmall(model, 5, true);
  test::Runner runner(model, {2, {}, true, false});
  const auto tokens = model.Tokens(21);
  auto plain = runner.State(), timed = runner.State();
  const auto want = runner.Trunk(*plain, tokens);

  const auto plan = runner.Plan(plan::Pass::kTrunk, 21);
  const plan::Segment segment{timed.get(), 0, 0, 21};
  std::vector<int32_t> wanted(tokens.size());
  for (size_t i = 0; i < wanted.size(); ++i) wanted[i] = static_cast<int32_t>(i);
  std::vector<float> logits(want.size());
  plan::Batch batch;
  batch.tokens = tokens;
  batch.segments = {&segment, 1};
  batch.wanted = wanted;
  batch.logits = logits.data();
  std::vector<plan::StepTime> times(plan.steps.size() - 1);
  double whole = 0;
  const Status refused = runner.backend().RunTimed(plan, batch, times, &whole);
  EXPECT_EQ(refused.code(), Code::kInternal);
  times.resize(plan.steps.size());
  const Status status = runner.backend().RunTimed(plan, batch, times, &whole);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(logits, want);
  EXPECT_EQ(timed->position(), 21);
  // One reading of the clock is the end of a step and the beginning of the next: nothing is in neither, nor in both.
  double at = times.front().start;
  for (const plan::StepTime& time : times) {
    EXPECT_NEAR(time.start, at, 1e-12);
    EXPECT_GE(time.seconds, 0);
    EXPECT_GE(time.clock, 0);
    at = time.start + time.seconds + time.clock;
  }
  EXPECT_GT(times.front().start, 0);
  EXPECT_LE(at, whole);
}

}  // namespace
}  // namespace glint::cpu
