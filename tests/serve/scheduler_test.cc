// Many jobs at once: each gets the ids that a session and a sampler give it alone; what goes wrong with one touches no other.
#include "serve/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <future>
#include <mutex>
#include <random>
#include <stdexcept>
#include <thread>

#include "engine/model_impl.h"
#include "tests/engine/reference.h"
#include "tests/support/sanitizers.h"

namespace glint::serve {
namespace {

using Verdict = Admission::Verdict;

const Model& Micro() {
  static const Model model = test::MustOpen(test::HfDirectory("micro"), {.device = "cpu", .threads = 2});
  return model;
}

const Model& Stories() {
  static const Model model =
      test::MustOpen(GLINT_SOURCE_DIR "/models/stories/stories.gguf", {.device = "cpu", .threads = 2});
  return model;
}

std::unique_ptr<Scheduler> Make(const Model& model, const SchedulerOptions& options = {}) {
  auto scheduler = Scheduler::Create(model, options);
  EXPECT_TRUE(scheduler.ok()) << scheduler.status().message();
  return std::move(*scheduler);
}

std::vector<int32_t> Ids(size_t n, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::vector<int32_t> ids(n);
  for (auto& id : ids) id = static_cast<int32_t>(rng() % 256);
  return ids;
}

// What a job gave. Its callbacks write it; Result waits for the end.
struct Answer {
  std::vector<int32_t> ids;
  std::vector<uint64_t> progress;
  std::promise<JobResult> ended;
  std::future<JobResult> end = ended.get_future();
  std::function<bool()> also = {};  // after each token
  std::atomic<uint64_t> id = 0;

  Job Into(Job job) {
    job.on_token = [this](int32_t token) {
      ids.push_back(token);
      return !also || also();
    };
    job.on_progress = [this](uint64_t done, uint64_t) { progress.push_back(done); };
    job.on_end = [this](JobResult result) { ended.set_value(std::move(result)); };
    return job;
  }
  void Submit(Scheduler& scheduler, Job job) {
    const auto admission = scheduler.Submit(Into(std::move(job)));
    ASSERT_EQ(admission.verdict, Verdict::kTaken) << admission.reason;
    id = admission.id;
  }
  JobResult Result() { return end.get(); }
};

// The same without a scheduler.
std::vector<int32_t> Solo(const Model& model, const std::vector<int32_t>& prompt,
                          const SamplerOptions& sampling, int64_t tokens,
                          const std::vector<int32_t>& stop_ids = {}) {
  auto session = Session::Create(model, {.context = static_cast<int64_t>(prompt.size()) + tokens});
  auto sampler = Sampler::Create(sampling, model.usable_vocab());
  EXPECT_TRUE(session.ok() && sampler.ok());
  sampler->Observe(prompt);
  std::vector<float> logits(static_cast<size_t>(model.vocab_size()));
  std::vector<int32_t> ids, next = prompt;
  while (static_cast<int64_t>(ids.size()) < tokens) {
    EXPECT_TRUE(session->Append(next, LogitRows::kLast, logits).ok());
    const auto id = sampler->Sample(logits);
    EXPECT_TRUE(id.ok());
    if (!id.ok() || std::find(stop_ids.begin(), stop_ids.end(), *id) != stop_ids.end()) break;
    ids.push_back(*id);
    next = {*id};
  }
  return ids;
}

SamplerOptions AnySampling(std::mt19937_64& rng, int64_t vocab) {
  SamplerOptions s{.temperature = 0};
  if (rng() % 3 == 0) return s;
  s.temperature = 0.5f + static_cast<float>(rng() % 10) / 10;
  s.seed = rng();
  if (rng() % 2 == 0) s.top_p = 0.9f;
  if (rng() % 3 == 0) s.top_k = 20;
  if (rng() % 3 == 0) s.repetition_penalty = 1.3f;
  if (rng() % 3 == 0) s.frequency_penalty = 0.4f;
  if (rng() % 3 == 0) s.logit_bias = {{static_cast<int32_t>(rng() % static_cast<uint64_t>(vocab)), 2.0f}};
  return s;
}

// Jobs of all kinds from several threads, some cancelled on the way.
void Company(const Model& model, int jobs, size_t longest, int64_t most_tokens,
             const SchedulerOptions& options) {
  const std::string given = test::FromEnvironment("GLINT_SEED");
  const uint64_t seed = given.empty() ? std::random_device{}() : std::stoull(given);
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  SCOPED_TRACE("GLINT_SEED=" + std::to_string(seed));
  std::mt19937_64 rng(seed);
  struct One {
    Job job;
    size_t cancel_at = 0;  // tokens; 0: never
    bool take_at = false;  // ended by on_token in place of Cancel
    Answer answer;
  };
  std::deque<One> all(static_cast<size_t>(jobs));
  for (One& one : all) {
    one.job.prompt = Ids(1 + rng() % (rng() % 3 == 0 ? longest : 20), rng());
    one.job.sampling = AnySampling(rng, model.usable_vocab());
    one.job.max_tokens = static_cast<int64_t>(1 + rng() % static_cast<uint64_t>(most_tokens));
    one.job.client = std::to_string(rng() % 3);
    if (rng() % 3 == 0) one.job.stop_ids = Ids(20, rng());
    if (rng() % 5 == 0) one.cancel_at = 1 + rng() % 4;
    one.take_at = rng() % 2 == 0;
  }
  auto scheduler = Make(model, options);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = t; i < all.size(); i += 3) {
        One& one = all[i];
        one.answer.also = [&one, &s = *scheduler] {
          if (one.answer.ids.size() != one.cancel_at) return true;
          if (one.take_at) return false;
          while (one.answer.id == 0) std::this_thread::yield();  // Submit has not returned yet
          s.Cancel(one.answer.id);
          return true;
        };
        Job copy;
        copy.prompt = one.job.prompt, copy.sampling = one.job.sampling, copy.max_tokens = one.job.max_tokens;
        copy.client = one.job.client, copy.stop_ids = one.job.stop_ids;
        const auto admission = scheduler->Submit(one.answer.Into(std::move(copy)));
        EXPECT_EQ(admission.verdict, Verdict::kTaken) << admission.reason;
        one.answer.id = admission.id;
        if (i % 4 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(3));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE("job " + std::to_string(i));
    One& one = all[i];
    const JobResult result = one.answer.Result();
    EXPECT_NE(result.end, JobEnd::kFailed) << result.status.message();
    auto want = Solo(model, one.job.prompt, one.job.sampling, one.job.max_tokens, one.job.stop_ids);
    if (one.cancel_at > 0 && one.cancel_at <= want.size()) {
      // The last token may have ended it by itself.
      if (one.cancel_at < static_cast<size_t>(one.job.max_tokens) || one.take_at) {
        EXPECT_EQ(result.end, one.take_at ? JobEnd::kTaken : JobEnd::kCancelled);
      }
      want.resize(one.cancel_at);
    } else {
      EXPECT_EQ(result.end,
                static_cast<int64_t>(want.size()) == one.job.max_tokens ? JobEnd::kLength : JobEnd::kStop);
    }
    EXPECT_EQ(one.answer.ids, want);
    EXPECT_EQ(result.generated, one.answer.ids.size());
    ASSERT_TRUE(result.session.has_value());
    // What the session holds is a beginning of prompt and answer.
    auto history = one.job.prompt;
    history.insert(history.end(), want.begin(), want.end());
    const auto held = result.session->tokens();
    ASSERT_LE(held.size(), history.size());
    EXPECT_TRUE(std::equal(held.begin(), held.end(), history.begin()));
    EXPECT_GE(held.size() + 1, history.size());
  }
  const auto stats = scheduler->stats();
  EXPECT_EQ(stats.ended, static_cast<uint64_t>(jobs));
  EXPECT_GT(stats.shared_passes, 0u);
  EXPECT_EQ(stats.running, 0u);
}

TEST(Scheduler, AnswersAreThoseOfSoloRuns) {
  Company(Micro(), test::kThreadSanitizer ? 15 : 60, 300, 40, {.sessions = 6, .context = 400});
  Company(Micro(), test::kThreadSanitizer ? 6 : 30, 300, 40,
          {.sessions = 16, .context = 400, .most_prompt_rows = 16});
}

TEST(Scheduler, AnswersOfTheTrainedModelAreThoseOfSoloRuns) {
  if (test::kThreadSanitizer) GTEST_SKIP() << "takes minutes there";
  Company(Stories(), 12, 120, 16, {.sessions = 8, .context = 200});
}

TEST(Scheduler, WhatIsWrongWithOneTouchesNoOther) {
  auto scheduler = Make(Micro(), {.context = 100});
  const auto prompt = Ids(30, 1);
  const SamplerOptions greedy{.temperature = 0};
  Answer good[2], banned, throws_late, throws_end, refuses, wild, throws_progress;
  good[0].Submit(*scheduler, {.prompt = prompt, .max_tokens = 30, .sampling = greedy});
  SamplerOptions none = greedy;
  for (int32_t id = 0; id < 256; ++id) none.logit_bias.emplace_back(id, -INFINITY);
  banned.Submit(*scheduler, {.prompt = prompt, .max_tokens = 30, .sampling = none});
  throws_late.also = [&]() -> bool {
    if (throws_late.ids.size() == 3) throw std::runtime_error("no more");
    return true;
  };
  throws_late.Submit(*scheduler, {.prompt = prompt, .max_tokens = 30, .sampling = greedy});
  refuses.Submit(*scheduler, {.prompt = prompt, .max_tokens = 30, .choose = [](auto) -> Result<int32_t> {
                                return Status(Code::kBadInput, "the grammar allows nothing");
                              }});
  wild.Submit(*scheduler,
              {.prompt = prompt, .max_tokens = 30, .choose = [](auto) -> Result<int32_t> { return 100000; }});
  Job job = throws_progress.Into({.prompt = prompt, .max_tokens = 30, .sampling = greedy});
  job.on_progress = [](uint64_t, uint64_t) { throw 7; };
  ASSERT_EQ(scheduler->Submit(std::move(job)).verdict, Verdict::kTaken);
  job = throws_end.Into({.prompt = prompt, .max_tokens = 3, .sampling = greedy});
  job.on_end = [&](JobResult result) {
    throws_end.ended.set_value(std::move(result));
    throw std::runtime_error("at the end");
  };
  ASSERT_EQ(scheduler->Submit(std::move(job)).verdict, Verdict::kTaken);
  good[1].Submit(*scheduler, {.prompt = prompt, .max_tokens = 30, .sampling = greedy});

  const auto fails = [](Answer& answer, Code code, const char* why, size_t tokens) {
    const JobResult result = answer.Result();
    EXPECT_EQ(result.end, JobEnd::kFailed);
    EXPECT_EQ(result.status.code(), code);
    EXPECT_NE(result.status.message().find(why), std::string::npos) << result.status.message();
    EXPECT_EQ(answer.ids.size(), tokens);
    EXPECT_FALSE(result.session.has_value());
  };
  fails(banned, Code::kBadInput, "no id is left", 0);
  fails(throws_late, Code::kInternal, "no more", 3);
  fails(refuses, Code::kBadInput, "the grammar allows nothing", 0);
  fails(wild, Code::kInternal, "100000", 0);
  fails(throws_progress, Code::kInternal, "threw", 0);
  EXPECT_EQ(throws_end.Result().end, JobEnd::kLength);
  const auto want = Solo(Micro(), prompt, greedy, 30);
  for (Answer& answer : good) {
    EXPECT_EQ(answer.Result().end, JobEnd::kLength);
    EXPECT_EQ(answer.ids, want);
  }
}

TEST(Scheduler, RefusesWhatCouldNeverRun) {
  auto scheduler = Make(Micro(), {.context = 50});
  const auto bad = [&](Job job, const char* why) {
    job.on_end = [](JobResult) { ADD_FAILURE() << "a refused job ended"; };
    const auto admission = scheduler->Submit(std::move(job));
    EXPECT_EQ(admission.verdict, Verdict::kBad);
    EXPECT_NE(admission.reason.find(why), std::string::npos) << admission.reason;
  };
  bad({.prompt = {}}, "empty");
  bad({.prompt = Ids(50, 1)}, "the context of 50");
  bad({.prompt = {1, 256}}, "token 1 of the prompt is id 256");
  bad({.prompt = {-1}}, "id -1");
  bad({.prompt = {1}, .max_tokens = -1}, "max_tokens is -1");
  bad({.prompt = {1}, .sampling = {.temperature = -1}}, "temperature");
  auto session = Session::Create(Micro(), {.context = 20});
  ASSERT_TRUE(session.ok() && session->Append(Ids(5, 1), LogitRows::kNone, {}).ok());
  auto fork = session->Fork(), third = session->Fork();
  bad({.prompt = Ids(5, 1), .session = std::move(*session)}, "beginning");
  bad({.prompt = Ids(9, 2), .session = std::move(*fork)}, "beginning");
  bad({.prompt = Ids(20, 1), .session = std::move(*third)}, "no room");
  EXPECT_EQ(scheduler->stats().refused, 9u);
  for (const auto& options :
       {SchedulerOptions{.sessions = 0}, SchedulerOptions{.sessions = 100000}, SchedulerOptions{.context = 1},
        SchedulerOptions{.context = 1 << 30}, SchedulerOptions{.queue = 0},
        SchedulerOptions{.stall = std::chrono::seconds(0)}})
    EXPECT_EQ(Scheduler::Create(Micro(), options).status().code(), Code::kBadInput);
}

// Holds the scheduler's thread in a callback until opened.
struct Gate {
  std::promise<void> reached, open;
  bool passed = false;
  bool operator()() {
    if (!std::exchange(passed, true)) {
      reached.set_value();
      open.get_future().wait();
    }
    return true;
  }
};

TEST(Scheduler, CancelledJobsGetNoFurtherToken) {
  auto scheduler = Make(Micro(), {.sessions = 3, .context = 1000, .most_prompt_rows = 64});
  const SamplerOptions greedy{.temperature = 0};
  Answer first, victim, prompt_only, queued;
  Gate gate;
  first.also = [&] { return gate(); };
  first.Submit(*scheduler, {.prompt = Ids(5, 1), .max_tokens = 20, .sampling = greedy});
  gate.reached.get_future().wait();
  victim.Submit(*scheduler, {.prompt = Ids(5, 2), .max_tokens = 500, .sampling = greedy});
  prompt_only.Submit(*scheduler, {.prompt = Ids(900, 3), .max_tokens = 50, .sampling = greedy});
  queued.Submit(*scheduler, {.prompt = Ids(5, 4), .max_tokens = 50, .sampling = greedy});
  size_t had = 0;
  first.also = [&] {
    if (first.ids.size() == 6) {  // the victim's row is in the same pass, behind this one's
      had = victim.ids.size();
      for (Answer* a : {&victim, &prompt_only, &queued}) scheduler->Cancel(a->id);
    }
    return true;
  };
  gate.open.set_value();
  for (Answer* a : {&victim, &prompt_only, &queued}) {
    const auto result = a->Result();
    EXPECT_EQ(result.end, JobEnd::kCancelled);
    EXPECT_EQ(result.session.has_value(), a != &queued) << "work done is handed back";
  }
  EXPECT_EQ(victim.ids.size(), had);
  EXPECT_GT(had, 0u);
  EXPECT_TRUE(prompt_only.ids.empty());
  EXPECT_LT(prompt_only.progress.back(), 900u) << "it ended inside its prompt";
  EXPECT_EQ(first.Result().end, JobEnd::kLength);
  scheduler->Cancel(first.id);
  scheduler->Cancel(12345);
}

TEST(Scheduler, DeadlinesEndWhatRunsAndWhatWaits) {
  std::atomic<int> minutes = 0;
  const auto now = [&] { return Clock::time_point(std::chrono::minutes(100 + minutes)); };
  auto scheduler = Make(Micro(), {.sessions = 2, .context = 600, .now = now});
  const auto at = [&](int m) { return Clock::time_point(std::chrono::minutes(100 + m)); };
  const SamplerOptions greedy{.temperature = 0};
  Answer first, runs, waits, late;
  Gate gate;
  first.also = [&] { return gate(); };
  first.Submit(*scheduler, {.prompt = Ids(5, 1), .max_tokens = 20, .sampling = greedy, .deadline = at(50)});
  gate.reached.get_future().wait();
  runs.Submit(*scheduler, {.prompt = Ids(5, 2), .max_tokens = 500, .sampling = greedy, .deadline = at(5)});
  waits.Submit(*scheduler, {.prompt = Ids(5, 3), .max_tokens = 5, .sampling = greedy, .deadline = at(5)});
  late.Submit(*scheduler, {.prompt = Ids(5, 4), .max_tokens = 5, .sampling = greedy, .deadline = at(9)});
  first.also = [&] {
    if (first.ids.size() == 6) minutes = 5;
    return true;
  };
  gate.open.set_value();
  EXPECT_EQ(runs.Result().end, JobEnd::kDeadline);
  const JobResult waited = waits.Result();
  EXPECT_EQ(waited.end, JobEnd::kDeadline);
  EXPECT_FALSE(waited.session.has_value());
  EXPECT_EQ(waited.queue_s, 300.0);
  EXPECT_EQ(late.Result().end, JobEnd::kLength);
  EXPECT_EQ(first.Result().end, JobEnd::kLength);
}

TEST(Scheduler, RefusesWhenTooManyWait) {
  auto scheduler = Make(Micro(), {.sessions = 1, .context = 100, .queue = 3, .queue_per_client = 2});
  const SamplerOptions greedy{.temperature = 0};
  Answer first, waits[3];
  Gate gate;
  first.also = [&] { return gate(); };
  first.Submit(*scheduler, {.prompt = Ids(5, 1), .max_tokens = 4, .sampling = greedy, .client = "a"});
  gate.reached.get_future().wait();
  const auto job = [&](const char* client) {
    return Job{.prompt = Ids(5, 2), .max_tokens = 4, .sampling = greedy, .client = client};
  };
  waits[0].Submit(*scheduler, job("a"));
  waits[1].Submit(*scheduler, job("a"));
  auto refused = scheduler->Submit(job("a"));
  EXPECT_EQ(refused.verdict, Verdict::kFull);
  EXPECT_NE(refused.reason.find("of this client"), std::string::npos);
  waits[2].Submit(*scheduler, job("b"));
  refused = scheduler->Submit(job("c"));
  EXPECT_EQ(refused.verdict, Verdict::kFull);
  EXPECT_GE(refused.retry_after_s, 1);
  EXPECT_EQ(scheduler->stats().waiting, 3u);
  EXPECT_EQ(scheduler->stats().running, 1u);
  gate.open.set_value();
  for (Answer& a : waits) EXPECT_EQ(a.Result().end, JobEnd::kLength);
  EXPECT_EQ(first.Result().end, JobEnd::kLength);
  Answer again;
  again.Submit(*scheduler, job("a"));
  EXPECT_EQ(again.Result().end, JobEnd::kLength);
}

TEST(Scheduler, TheQueueTakesTurns) {
  auto scheduler = Make(Micro(), {.sessions = 1, .context = 100});
  std::vector<std::string> order;
  Answer first;
  Gate gate;
  std::promise<void> done;
  first.also = [&] { return gate(); };
  first.Submit(*scheduler,
               {.prompt = Ids(5, 1), .max_tokens = 2, .sampling = {.temperature = 0}, .client = "a"});
  gate.reached.get_future().wait();
  const auto submit = [&](const char* client, int priority, size_t prompt) {
    Job job{.prompt = Ids(prompt, 2),
            .max_tokens = 2,
            .sampling = {.temperature = 0},
            .client = client,
            .priority = priority};
    job.on_end = [&order, &done, client](JobResult) {
      order.emplace_back(client);
      if (order.size() == 7) done.set_value();
    };
    ASSERT_EQ(scheduler->Submit(std::move(job)).verdict, Verdict::kTaken);
  };
  for (int i = 0; i < 3; ++i) submit("a", 0, 40);
  submit("b", 0, 10), submit("b", 0, 10), submit("b", 0, 10);
  submit("a", 1, 40);
  gate.open.set_value();
  done.get_future().wait();
  // First the one of priority. `b` came when `a` had got 5 tokens, and has smaller jobs.
  EXPECT_EQ(order, (std::vector<std::string>{"a", "b", "b", "b", "a", "a", "a"}));
}

TEST(Scheduler, PromptsGoOnBesideDecodesInPieces) {
  auto scheduler = Make(Micro(), {.sessions = 4, .context = 1000, .most_prompt_rows = 32});
  const SamplerOptions greedy{.temperature = 0};
  Answer decodes, prompt, small;
  Gate gate;
  decodes.also = [&] { return gate(); };
  decodes.Submit(*scheduler, {.prompt = Ids(5, 1), .max_tokens = 200, .sampling = greedy});
  gate.reached.get_future().wait();
  prompt.Submit(*scheduler, {.prompt = Ids(700, 2), .max_tokens = 3, .sampling = greedy});
  small.Submit(*scheduler, {.prompt = Ids(30, 3), .max_tokens = 3, .sampling = greedy});
  std::vector<uint64_t> at_token;  // of the long prompt
  size_t prompt_when_small_ended = 0;
  decodes.also = [&] {
    at_token.push_back(prompt.progress.empty() ? 0 : prompt.progress.back());
    return true;
  };
  small.also = [&] {
    prompt_when_small_ended = prompt.progress.empty() ? 0 : prompt.progress.back();
    return true;
  };
  gate.open.set_value();
  EXPECT_EQ(prompt.Result().end, JobEnd::kLength);
  EXPECT_EQ(small.Result().end, JobEnd::kLength);
  EXPECT_EQ(decodes.Result().end, JobEnd::kLength);
  for (size_t i = 1; i < at_token.size(); ++i) EXPECT_LE(at_token[i] - at_token[i - 1], 32u) << i;
  EXPECT_LE(scheduler->stats().prompt_rows_beside_decodes, 32u);
  EXPECT_LT(prompt_when_small_ended, 300u) << "a short prompt does not wait for a long one";
  EXPECT_EQ(prompt.ids, Solo(Micro(), Ids(700, 2), greedy, 3));
  EXPECT_EQ(small.ids, Solo(Micro(), Ids(30, 3), greedy, 3));
  EXPECT_EQ(decodes.ids, Solo(Micro(), Ids(5, 1), greedy, 200));
}

// A backend that says at will that it has no memory.
class Crowded final : public plan::Backend {
 public:
  explicit Crowded(std::unique_ptr<plan::Backend> real) : real_(std::move(real)) {}
  std::string_view name() const override { return real_->name(); }
  std::span<const plan::Lever> levers() const override { return real_->levers(); }
  MemoryRoom Room() const override {
    ++asked;
    return full ? MemoryRoom{0, "the test"} : real_->Room();
  }
  uint64_t StateBytes(int64_t capacity, bool mtp) const override { return real_->StateBytes(capacity, mtp); }
  Result<std::unique_ptr<plan::SequenceState>> NewState(int64_t capacity, bool mtp) override {
    return real_->NewState(capacity, mtp);
  }
  Status Run(const plan::Plan& plan, const plan::Batch& batch, const plan::Observer& observer) override {
    return real_->Run(plan, batch, observer);
  }
  Status RunTimed(const plan::Plan& plan, const plan::Batch& batch, std::span<plan::StepTime> times,
                  double* whole) override {
    return real_->RunTimed(plan, batch, times, whole);
  }
  Result<plan::Limits> MeasureLimits(const Progress& progress) override {
    return real_->MeasureLimits(progress);
  }
  Result<std::unique_ptr<plan::Execution>> Begin(const plan::Plan& plan, const plan::Batch& batch) override {
    return real_->Begin(plan, batch);
  }
  std::atomic<bool> full = false;
  mutable std::atomic<int> asked = 0;

 private:
  std::unique_ptr<plan::Backend> real_;
};

TEST(Scheduler, WhatFindsNoRoomWaitsForAnotherToEnd) {
  const Model model = test::MustOpen(test::HfDirectory("micro"), {.device = "cpu", .threads = 1});
  auto crowded = std::make_unique<Crowded>(std::move(model.impl()->backend));
  Crowded& backend = *crowded;
  model.impl()->backend = std::move(crowded);
  auto scheduler = Make(model, {.context = 100});
  const SamplerOptions greedy{.temperature = 0};
  Answer first, second, third, nobody;
  Gate gate;
  first.also = [&] { return gate(); };
  first.Submit(*scheduler, {.prompt = Ids(5, 1), .max_tokens = 10, .sampling = greedy});
  gate.reached.get_future().wait();
  backend.full = true;
  backend.asked = 0;
  second.Submit(*scheduler, {.prompt = Ids(5, 2), .max_tokens = 10, .sampling = greedy});
  third.Submit(*scheduler, {.prompt = Ids(5, 3), .max_tokens = 10, .sampling = greedy});
  first.also = [&] {
    if (first.ids.size() == 10) {
      EXPECT_EQ(backend.asked, 1) << "nothing has changed since";
      EXPECT_EQ(scheduler->stats().waiting, 2u);
      EXPECT_TRUE(second.ids.empty());
      backend.full = false;
    }
    return true;
  };
  gate.open.set_value();
  EXPECT_EQ(first.Result().end, JobEnd::kLength);
  EXPECT_EQ(second.Result().end, JobEnd::kLength);
  EXPECT_EQ(third.Result().end, JobEnd::kLength);
  EXPECT_EQ(second.ids, Solo(Micro(), Ids(5, 2), greedy, 10));
  backend.full = true;
  nobody.Submit(*scheduler, {.prompt = Ids(5, 4), .max_tokens = 10, .sampling = greedy});
  const JobResult result = nobody.Result();
  EXPECT_EQ(result.end, JobEnd::kFailed) << "nobody is there to wait for";
  EXPECT_EQ(result.status.code(), Code::kNoRoom);
}

TEST(Scheduler, GoesOnFromTheSessionOfAnEarlierJob) {
  auto scheduler = Make(Micro(), {.context = 300});
  const SamplerOptions sampling{.temperature = 0.8f, .seed = 5};
  Answer first, next;
  auto history = Ids(100, 1);
  first.Submit(*scheduler, {.prompt = history, .sampling = sampling, .on_end = {}});
  JobResult result = first.Result();
  EXPECT_EQ(result.end, JobEnd::kLength);
  EXPECT_EQ(first.ids.size(), 200u) << "to the end of the context";
  ASSERT_TRUE(result.session.has_value());
  ASSERT_TRUE(result.session->RewindTo(288).ok());
  history.insert(history.end(), first.ids.begin(), first.ids.begin() + 188);
  history.push_back(7);
  next.Submit(
      *scheduler,
      {.prompt = history, .session = std::move(result.session), .max_tokens = 8, .sampling = sampling});
  result = next.Result();
  EXPECT_EQ(result.reused, 288u);
  EXPECT_EQ(next.progress, std::vector<uint64_t>{289});
  EXPECT_EQ(next.ids, Solo(Micro(), history, sampling, 8));
  EXPECT_EQ(scheduler->stats().reused, 288u);
  EXPECT_EQ(scheduler->stats().prefilled, 101u);
}

TEST(Scheduler, DrainsAndEnds) {
  const SamplerOptions greedy{.temperature = 0};
  Answer quick, endless, waits;
  {
    auto scheduler = Make(Micro(), {.sessions = 1, .context = 4000});
    quick.Submit(*scheduler, {.prompt = Ids(5, 1), .max_tokens = 5, .sampling = greedy});
    scheduler->Drain(Clock::now() + std::chrono::hours(1));
    EXPECT_EQ(quick.end.wait_for(std::chrono::seconds(0)), std::future_status::ready);
    EXPECT_EQ(scheduler->Submit({.prompt = {1}}).verdict, Verdict::kClosing);
  }
  auto scheduler = Make(Micro(), {.sessions = 1, .context = 4000});
  endless.Submit(*scheduler, {.prompt = Ids(5, 1), .sampling = greedy});
  waits.Submit(*scheduler, {.prompt = Ids(5, 1), .sampling = greedy});
  scheduler->Drain(Clock::now());
  EXPECT_EQ(endless.Result().end, JobEnd::kCancelled);
  EXPECT_EQ(waits.Result().end, JobEnd::kCancelled);
  EXPECT_EQ(quick.Result().end, JobEnd::kLength);
  Answer dropped;
  scheduler = Make(Micro(), {.sessions = 1, .context = 4000});
  dropped.Submit(*scheduler, {.prompt = Ids(5, 1), .sampling = greedy});
  scheduler.reset();
  EXPECT_EQ(dropped.Result().end, JobEnd::kCancelled);
}

}  // namespace
}  // namespace glint::serve
