// Jobs of the scheduler over the prefix cache: where they keep, what an abort leaves, what goes wrong.
#include "serve/cached_job.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <random>
#include <stdexcept>

#include "engine/session_impl.h"
#include "engine/snapshot.h"
#include "tests/engine/reference.h"

namespace glint::serve {
namespace {

using Ids = std::vector<int32_t>;
using Verdict = Admission::Verdict;

const Model& Micro() {
  static const Model model = test::MustOpen(test::HfDirectory("micro"), {.device = "cpu", .threads = 2});
  return model;
}

Ids Random(size_t n, uint64_t seed) {
  std::mt19937_64 rng(seed);
  Ids ids(n);
  for (auto& id : ids) id = static_cast<int32_t>(rng() % 256);
  return ids;
}

// A job that is submitted and waited for; `stop_at`: cancelled after so many tokens of the answer, or of the prompt if negative.
struct Ran {
  Ids ids = {};
  JobResult result = {};
  std::vector<int64_t> kept = {};
};
Ran RunJob(Scheduler& scheduler, PrefixCache* cache, Job job, int64_t stop_at = 0) {
  Ran ran;
  std::promise<JobResult> ended;
  std::atomic<uint64_t> id = 0;
  std::promise<void> submitted;
  auto known = submitted.get_future().share();
  job.on_token = [&](int32_t token) {
    ran.ids.push_back(token);
    if (stop_at > 0 && std::ssize(ran.ids) == stop_at) {
      known.wait();
      scheduler.Cancel(id);
    }
    return true;
  };
  job.on_progress = [&](uint64_t done, uint64_t) {
    if (stop_at < 0 && static_cast<int64_t>(done) >= -stop_at) {
      known.wait();
      scheduler.Cancel(id);
    }
  };
  job.on_end = [&](JobResult result) { ended.set_value(std::move(result)); };
  if (cache != nullptr) {
    GoOnFromCache(*cache, {}, job);
    job.on_keep = [&, keep = std::move(job.on_keep)](const Session& session) {
      ran.kept.push_back(session.position());
      keep(session);
    };
  }
  const auto admission = scheduler.Submit(std::move(job));
  EXPECT_EQ(admission.verdict, Verdict::kTaken) << admission.reason;
  id = admission.id;
  submitted.set_value();
  ran.result = ended.get_future().get();
  return ran;
}

std::unique_ptr<Scheduler> MakeScheduler(const SchedulerOptions& options) {
  auto made = Scheduler::Create(Micro(), options);
  EXPECT_TRUE(made.ok()) << made.status().message();
  return std::move(*made);
}

std::unique_ptr<PrefixCache> MakeCache(const PrefixCacheOptions& options) {
  auto made = PrefixCache::Create(Micro(), options);
  EXPECT_TRUE(made.ok()) << made.status().message();
  return std::move(*made);
}

TEST(CachedJob, KeepsOnTheWayAndAtTheEnd) {
  auto scheduler = MakeScheduler({.context = 2000});
  auto cache = MakeCache({.interval = 256});
  const Ids prompt = Random(700, 1);
  const SamplerOptions sampling{.temperature = 0.7f, .seed = 3};
  const Ran cold = RunJob(*scheduler, nullptr, {.prompt = prompt, .max_tokens = 40, .sampling = sampling});
  const Ran first =
      RunJob(*scheduler, cache.get(), {.prompt = prompt, .max_tokens = 40, .sampling = sampling});
  EXPECT_EQ(first.ids, cold.ids);
  EXPECT_EQ(first.kept, (std::vector<int64_t>{256, 512, 688}));
  EXPECT_EQ(first.result.reused, 0u);
  const Ran again =
      RunJob(*scheduler, cache.get(), {.prompt = prompt, .max_tokens = 40, .sampling = sampling});
  EXPECT_EQ(again.ids, cold.ids);
  EXPECT_EQ(again.result.reused, 688u);
  // The next turn goes on from the answer's end.
  Ids next = prompt;
  next.insert(next.end(), first.ids.begin(), first.ids.end());
  const Ids question = Random(30, 2);
  next.insert(next.end(), question.begin(), question.end());
  const Ran turn = RunJob(*scheduler, cache.get(), {.prompt = next, .max_tokens = 10, .sampling = sampling});
  EXPECT_EQ(turn.result.reused, 736u);  // 700 + 40 less the last token, which no pass has seen, on the grid
  EXPECT_EQ(turn.ids,
            RunJob(*scheduler, nullptr, {.prompt = next, .max_tokens = 10, .sampling = sampling}).ids);
}

// An answer that is broken off after some tokens, or a prompt on its way, costs at most an interval to ask for again.
TEST(CachedJob, ARetryAfterAnAbortIsWarm) {
  const SamplerOptions sampling{.temperature = 0};
  const Ids prompt = Random(900, 5);
  auto scheduler = MakeScheduler({.context = 2000, .most_prompt_rows = 64});
  const Ids cold =
      RunJob(*scheduler, nullptr, {.prompt = prompt, .max_tokens = 30, .sampling = sampling}).ids;
  for (const int64_t stop_at : {10, 70, 700, -1, -300, -800}) {
    SCOPED_TRACE(stop_at);
    auto cache = MakeCache({.interval = 256});
    // One at a time: no pass is larger than a piece.
    const Ran broken = RunJob(*scheduler, cache.get(),
                              {.prompt = prompt, .max_tokens = 1000, .sampling = sampling}, stop_at);
    EXPECT_EQ(broken.result.end, JobEnd::kCancelled);
    const Ran again =
        RunJob(*scheduler, cache.get(), {.prompt = prompt, .max_tokens = 30, .sampling = sampling});
    EXPECT_EQ(again.ids, cold);
    const uint64_t came = stop_at > 0 ? 900u : static_cast<uint64_t>(-stop_at);
    EXPECT_GE(again.result.reused + 16, std::min<uint64_t>(came, 900));
  }
}

TEST(CachedJob, WhatOpenSaysIsHeld) {
  auto scheduler = MakeScheduler({.sessions = 2, .context = 500});
  const Ids prompt = Random(100, 1);
  const SamplerOptions greedy{.temperature = 0};
  // An error ends the job, a session of something else too, and so does an exception.
  Job job{.prompt = prompt, .max_tokens = 2, .sampling = greedy};
  job.open = [](int64_t) -> Result<Opening> { return Status(Code::kIo, "no such luck"); };
  Ran ran = RunJob(*scheduler, nullptr, std::move(job));
  EXPECT_EQ(ran.result.end, JobEnd::kFailed);
  EXPECT_EQ(ran.result.status.message(), "no such luck");
  job = {.prompt = prompt, .max_tokens = 2, .sampling = greedy};
  job.open = [](int64_t context) -> Result<Opening> {
    Opening opening;
    auto session = Session::Create(Micro(), {.context = context});
    EXPECT_TRUE(session->Append(Random(50, 2), LogitRows::kNone, {}).ok());
    opening.session.emplace(std::move(*session));
    return opening;
  };
  EXPECT_EQ(RunJob(*scheduler, nullptr, std::move(job)).result.end, JobEnd::kFailed);
  job = {.prompt = prompt, .max_tokens = 2, .sampling = greedy};
  job.open = [](int64_t) -> Result<Opening> { throw std::runtime_error("thrown"); };
  EXPECT_EQ(RunJob(*scheduler, nullptr, std::move(job)).result.end, JobEnd::kFailed);
  // Positions that are no places of the prompt are passed over; the context is the prompt and the answer.
  std::vector<int64_t> kept;
  int64_t asked = 0;
  job = {.prompt = prompt, .max_tokens = 2, .sampling = greedy};
  job.open = [&](int64_t context) -> Result<Opening> {
    asked = context;
    return Opening{.keep_at = {-5, 0, 7, 7, 48, 100, 3000}};
  };
  job.on_keep = [&](const Session& session) { kept.push_back(session.position()); };
  EXPECT_EQ(RunJob(*scheduler, nullptr, std::move(job)).result.end, JobEnd::kLength);
  EXPECT_EQ(kept, (std::vector<int64_t>{7, 48}));
  EXPECT_EQ(asked, 102);
}

// A job that a state makes fail takes the state with it, and the next is served from the beginning.
TEST(CachedJob, ABadStateDoesNotOutliveItsRequest) {
  auto scheduler = MakeScheduler({.context = 500});
  auto cache = MakeCache({});
  const Ids prompt = Random(200, 1);
  const SamplerOptions greedy{.temperature = 0};
  const Ids cold = RunJob(*scheduler, nullptr, {.prompt = prompt, .max_tokens = 5, .sampling = greedy}).ids;
  RunJob(*scheduler, cache.get(), {.prompt = prompt, .max_tokens = 5, .sampling = greedy});
  ASSERT_EQ(cache->Find(prompt).tokens, 192u);
  // The state goes bad while the job has it.
  Job job{.prompt = prompt, .max_tokens = 5, .sampling = greedy};
  GoOnFromCache(*cache, {}, job);
  job.open = [open = std::move(job.open)](int64_t context) {
    auto opening = open(context);
    auto& state = *opening->session->impl().state;
    for (const auto& part : state.Parts(opening->session->position(), 0)) {
      std::vector<float> floats(static_cast<size_t>(part.rows * part.width), std::nanf(""));
      EXPECT_TRUE(state.Write(part, floats.data()).ok());
    }
    return opening;
  };
  std::promise<JobResult> ended;
  job.on_end = [&, then = std::move(job.on_end)](JobResult result) {
    const JobEnd end = result.end;
    const Status status = result.status;
    then(std::move(result));
    JobResult said;
    said.end = end, said.status = status;
    ended.set_value(std::move(said));
  };
  ASSERT_EQ(scheduler->Submit(std::move(job)).verdict, Verdict::kTaken);
  const JobResult result = ended.get_future().get();
  EXPECT_EQ(result.end, JobEnd::kFailed);
  EXPECT_NE(result.status.message().find("NaN"), std::string::npos) << result.status.message();
  EXPECT_EQ(cache->Find(prompt).tokens, 0u);
  EXPECT_EQ(RunJob(*scheduler, cache.get(), {.prompt = prompt, .max_tokens = 5, .sampling = greedy}).ids,
            cold);
}

}  // namespace
}  // namespace glint::serve
