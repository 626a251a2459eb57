#include "serve/service.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <ctime>
#include <map>
#include <mutex>
#include <random>
#include <utility>

#include "base/no_room.h"
#include "serve/answering.h"
#include "serve/api_error.h"
#include "serve/cached_job.h"
#include "serve/delivery.h"
#include "serve/prompts.h"
#include "serve/rules.h"

namespace glint::serve {
namespace {

using Ids = std::vector<int32_t>;

double Seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

// To the microsecond.
double Milliseconds(double seconds) { return std::round(seconds * 1e6) / 1e3; }

// Numbers that nobody can guess.
uint64_t Random64() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

// A work under way. The jobs' callbacks own it.
struct Running {
  struct Choice {
    uint64_t job = 0;
    std::unique_ptr<Answering> answering;
    std::optional<Outcome> outcome;
    Clock::time_point last;  // token
    bool begun = false;
    // Where turns are remembered: what the model was given, what it sampled, and what that says.
    Ids prompt, sampled;
    Message said;
  };

  RequestInfo info;
  GenerationRequest request;
  std::shared_ptr<Response> response;
  std::vector<Choice> choices;  // of the scheduler's thread, but for `job`
  Clock::time_point began;
  std::function<void(std::vector<int32_t> tokens)> on_sequence;
  Ids sequence;                      // for on_sequence; of the scheduler's thread
  size_t ended = 0;                  // choices; of the scheduler's thread
  std::atomic<bool> failed = false;  // one has, and the others are being cancelled

  std::mutex mutex;  // of `jobs` and `cancelled`
  std::vector<uint64_t> jobs;
  bool cancelled = false;
};

// Adds to a message what events say.
void Take(const std::vector<AnswerEvent>& events, Message& said) {
  using Kind = AnswerEvent::Kind;
  for (const AnswerEvent& event : events) {
    if (event.kind == Kind::kReasoning) said.reasoning += event.text;
    if (event.kind == Kind::kText) said.content += event.text;
    if (event.kind == Kind::kCallBegin) said.tool_calls.push_back({.name = event.text, .arguments = ""});
    if (event.kind == Kind::kCallArguments && !said.tool_calls.empty())
      said.tool_calls.back().arguments += event.text;
  }
}

ApiError Overflow(const GenerationRequest& request, ApiForm form, uint64_t prompt, uint64_t wanted,
                  uint64_t context) {
  if (form == ApiForm::kAnthropic) return AnthropicContextOverflow(prompt, wanted, context);
  ApiError error = OpenAiContextOverflow(prompt, wanted, context);
  if (!request.prompts.empty()) error.param = "prompt";
  return error;
}

}  // namespace

struct Service::Impl {
  Impl(const Model& of, ServiceOptions chosen)
      : model(of), options(std::move(chosen)), rules(of), delivery(options.keepalive) {}

  const Model model;
  const ServiceOptions options;
  RequestLimits limits;
  std::string model_id, fingerprint;
  int64_t created = 0;
  std::atomic<uint64_t> next_id{1};
  Rules rules;

  std::mutex mutex;  // of `running`
  std::map<uint64_t, std::weak_ptr<Running>> running;

  std::unique_ptr<PrefixCache> cache;    // null: none
  std::unique_ptr<SampledTurns> turns;   // likewise
  Delivery delivery;                     // outlives the scheduler, whose callbacks post to it
  std::unique_ptr<Scheduler> scheduler;  // ends first

  Parsed<uint64_t> Run(Work work);
  std::optional<ApiError> Submit(const std::shared_ptr<Running>& run, const std::vector<Ids>& prompts);
  void EndWithoutTokens(Running& run, size_t choice, size_t prompt);
  void EndChoice(Running& run, size_t choice, Outcome outcome);
  std::optional<ApiError> CheckRoom(const GenerationRequest& request, ApiForm form,
                                    const std::vector<Ids>& prompts) const;
  Job MakeJob(const std::shared_ptr<Running>& run, size_t choice, Ids prompt);
  void Remember(const Running& run, const Running::Choice& choice);
  void Took(Running& run, size_t choice, int32_t id, bool& more);
  void Ended(const std::shared_ptr<Running>& run, size_t choice, JobResult result);
  void FailRun(Running& run, ApiError error);
  void CancelJobs(Running& run);
  void Forget(uint64_t id);
};

std::optional<ApiError> Service::Impl::CheckRoom(const GenerationRequest& request, ApiForm form,
                                                 const std::vector<Ids>& prompts) const {
  const auto context = static_cast<uint64_t>(options.scheduler.context);
  for (const Ids& prompt : prompts) {
    // Without a word of how many: one at least.
    const uint64_t wanted = request.max_tokens.value_or(1);
    if (prompt.size() + wanted > context) return Overflow(request, form, prompt.size(), wanted, context);
  }
  return {};
}

Job Service::Impl::MakeJob(const std::shared_ptr<Running>& run, size_t choice, Ids prompt) {
  Answering& answering = *run->choices[choice].answering;
  if (run->on_sequence) run->sequence = prompt;
  Job job;
  job.prompt = std::move(prompt);
  job.max_tokens = run->request.max_tokens.value_or(0);
  job.stop_ids.assign(answering.stop_ids().begin(), answering.stop_ids().end());
  job.sampling = answering.sampling();
  job.client = run->info.client;
  if (answering.wants_prompt_rows())
    job.on_prompt_row = [run, choice](size_t position, std::span<const float> logits) {
      if (auto step = run->choices[choice].answering->Echo(position, logits))
        run->response->Events(choice, std::move(step->events), std::move(step->tokens));
    };
  if (answering.chooses())
    job.choose = [run, choice](std::span<const float> logits) {
      return run->choices[choice].answering->Choose(logits);
    };
  if (options.timeout) job.deadline = run->began + *options.timeout;
  job.on_token = [this, run, choice](int32_t id) {
    bool more = false;
    Took(*run, choice, id, more);
    return more;
  };
  job.on_progress = [run, choice](uint64_t done, uint64_t total) {
    run->response->SetProgress(choice, {done, total});
  };
  job.on_end = [this, run, choice](JobResult result) { Ended(run, choice, std::move(result)); };
  // Rows of logits are wanted from the first token on, so there is nothing to go on from.
  if (turns != nullptr && run->request.prompts.empty()) run->choices[choice].prompt = job.prompt;
  if (cache != nullptr && !job.on_prompt_row) GoOnFromCache(*cache, PlacesToKeep(model, job.prompt), job);
  return job;
}

void Service::Impl::Took(Running& run, size_t choice, int32_t id, bool& more) {
  more = false;
  if (run.request.max_tokens == 0u) return;  // the prompt is all that was wanted
  Running::Choice& c = run.choices[choice];
  if (options.observer != nullptr) {
    const Clock::time_point now = Clock::now();
    if (!c.begun) {
      options.observer->FirstToken(run.info, choice, Seconds(now - run.began));
    } else {
      options.observer->NextToken(run.info, choice, Seconds(now - c.last));
    }
    c.last = now;
  }
  c.begun = true;
  if (run.on_sequence) run.sequence.push_back(id);
  AnswerStep step;
  const Result<bool> pushed = c.answering->Push(id, step);
  if (!c.prompt.empty()) {
    c.sampled.push_back(id);
    Take(step.events, c.said);
  }
  if (options.observer != nullptr) options.observer->Told(run.info, choice, step.events);
  run.response->Events(choice, std::move(step.events), std::move(step.tokens));
  if (!pushed.ok()) FailRun(run, {500, pushed.status().message()});
  more = pushed.ok() && *pushed;
}

// A client sends the turn back as it was told it. One that a stop string ended says less than was sampled, and one that was broken off in its
// reasoning nothing that a next turn could follow.
void Service::Impl::Remember(const Running& run, const Running::Choice& choice) {
  if (turns == nullptr || choice.prompt.empty()) return;
  const FinishReason reason = choice.answering->reason();
  const bool says = !choice.said.content.empty() || !choice.said.tool_calls.empty();
  if (reason == FinishReason::kStop || (reason == FinishReason::kLength && says && !run.failed))
    turns->Remember(choice.prompt, choice.said, choice.sampled);
}

// The first that goes wrong says why; its company is of no use then.
void Service::Impl::FailRun(Running& run, ApiError error) {
  if (run.failed.exchange(true)) return;
  if (options.observer != nullptr) options.observer->Ended(run.info, {}, &error);
  run.response->Fail(std::move(error));
  CancelJobs(run);
}

void Service::Impl::CancelJobs(Running& run) {
  std::vector<uint64_t> jobs;
  {
    const std::lock_guard lock(run.mutex);
    run.cancelled = true;
    jobs = run.jobs;
  }
  for (const uint64_t job : jobs) scheduler->Cancel(job);
}

void Service::Impl::Forget(uint64_t id) {
  const std::lock_guard lock(mutex);
  running.erase(id);
}

void Service::Impl::Ended(const std::shared_ptr<Running>& run, size_t choice, JobResult result) {
  Running::Choice& c = run->choices[choice];
  if (++run->ended == run->choices.size()) Forget(run->info.id);
  if (run->failed) return;
  if (result.end == JobEnd::kFailed) {
    const Status& status = result.status;
    ApiError error{500, status.message()};
    // Only its bans can leave a request without a token to choose.
    if (status.code() == Code::kBadInput && !run->request.sampler.logit_bias.empty())
      error = {400, status.message(), "logit_bias", "invalid_value"};
    if (status.code() == Code::kNoRoom) error = {503, status.message(), "", "", 1};
    return FailRun(*run, std::move(error));
  }
  if (result.end == JobEnd::kDeadline) {
    return FailRun(*run, {504,
                          fmt::format("The request took longer than the {} s that this server gives one.",
                                      Seconds(*options.timeout)),
                          "", "timeout"});
  }
  AnswerStep step;
  if (const Status status = c.answering->End(result, step); !status.ok())
    return FailRun(*run, {500, status.message()});
  if (!c.prompt.empty()) Take(step.events, c.said);
  if (options.observer != nullptr) options.observer->Told(run->info, choice, step.events);
  run->response->Events(choice, std::move(step.events), std::move(step.tokens));
  Outcome outcome;
  outcome.reason = c.answering->reason();
  Remember(*run, c);
  outcome.stop = c.answering->stop_string();
  const uint64_t generated = run->request.max_tokens == 0u ? 0 : result.generated;
  if (run->request.max_tokens == 0u) outcome.reason = FinishReason::kLength;
  outcome.usage = {result.prompt, result.reused, generated, c.answering->reasoning_tokens()};
  outcome.timings = {Milliseconds(result.queue_s), Milliseconds(result.prefill_s),
                     Milliseconds(result.decode_s)};
  if (run->on_sequence) run->on_sequence(std::move(run->sequence));
  EndChoice(*run, choice, std::move(outcome));
}

void Service::Impl::EndChoice(Running& run, size_t choice, Outcome outcome) {
  run.choices[choice].outcome = outcome;
  if (options.observer != nullptr) options.observer->ChoiceEnded(run.info, choice, outcome);
  if (options.observer != nullptr && run.ended == run.choices.size()) {
    std::vector<Outcome> outcomes;
    for (const Running::Choice& one : run.choices) outcomes.push_back(one.outcome.value_or(Outcome{}));
    options.observer->Ended(run.info, outcomes, nullptr);
  }
  run.response->Finish(choice, std::move(outcome));
}

// Nothing but the prompt was asked for.
void Service::Impl::EndWithoutTokens(Running& run, size_t choice, size_t prompt) {
  ++run.ended;
  EndChoice(run, choice, {.reason = FinishReason::kLength, .usage = {.prompt = prompt}});
}

// All jobs of a work, or none.
std::optional<ApiError> Service::Impl::Submit(const std::shared_ptr<Running>& run,
                                              const std::vector<Ids>& prompts) {
  {
    const std::lock_guard lock(mutex);
    running.emplace(run->info.id, run);
  }
  for (size_t i = 0; i < run->choices.size(); ++i) {
    Admission admission = scheduler->Submit(MakeJob(run, i, prompts[i / run->request.n]));
    if (admission.verdict == Admission::Verdict::kTaken) {
      bool cancelled = false;  // by an answer that failed already
      {
        const std::lock_guard lock(run->mutex);
        run->jobs.push_back(admission.id);
        cancelled = run->cancelled;
      }
      if (cancelled) scheduler->Cancel(admission.id);
      continue;
    }
    ApiError error{400, std::move(admission.reason), "", "invalid_value"};
    if (admission.verdict == Admission::Verdict::kFull)
      error = Overloaded(static_cast<uint32_t>(std::ceil(admission.retry_after_s)));
    if (admission.verdict == Admission::Verdict::kClosing) error = {503, "The server is ending.", "", "", 1};
    run->response->Abandon();
    if (!run->failed.exchange(true) && options.observer != nullptr)
      options.observer->Ended(run->info, {}, &error);
    CancelJobs(*run);
    Forget(run->info.id);
    return error;
  }
  return {};
}

Parsed<uint64_t> Service::Impl::Run(Work work) {
  auto run = std::make_shared<Running>();
  run->began = Clock::now();
  run->request = std::move(work.request);
  run->on_sequence = std::move(work.on_sequence);
  const GenerationRequest& request = run->request;
  RequestInfo& info = run->info;
  info = {next_id++,
          work.names.id,
          std::move(work.endpoint),
          request.model,
          std::move(work.client),
          request.stream,
          request.choices(),
          0,
          &request};
  const auto refuse = [&](ApiError error) -> Parsed<uint64_t> {
    if (options.observer != nullptr) options.observer->Refused(info, error);
    return error;
  };

  // Before anything is made for them: 128 answers to each of 128 prompts is something that one can ask for.
  const auto most =
      static_cast<size_t>(options.scheduler.queue) + static_cast<size_t>(options.scheduler.sessions);
  if (request.choices() > most) {
    return refuse(
        {400,
         fmt::format("{} answers are more than this server takes at once, which is {}: ask for fewer, or "
                     "in several requests.",
                     request.choices(), most),
         "n", "invalid_value"});
  }
  auto encoded = EncodePrompts(model, request, turns.get());
  if (auto* error = std::get_if<ApiError>(&encoded)) return refuse(std::move(*error));
  auto& prompts = std::get<std::vector<Ids>>(encoded);
  for (const Ids& prompt : prompts) info.prompt_tokens += prompt.size();
  if (auto error = CheckRoom(request, work.form, prompts)) return refuse(std::move(*error));

  auto compiled = rules.For(request);
  if (auto* error = std::get_if<ApiError>(&compiled)) return refuse(std::move(*error));
  const auto& answer_rules = std::get<AnswerRules>(compiled);

  const uint64_t seed = request.seeded ? request.sampler.seed : Random64();
  std::vector<Progress> progress;
  run->choices.resize(request.choices());
  for (size_t i = 0; i < run->choices.size(); ++i) {
    const Ids& prompt = prompts[i / request.n];
    auto answering = Answering::Create(model, request, answer_rules, prompt, seed + i % request.n);
    if (!answering.ok()) return refuse(FromStatus(answering.status()));
    run->choices[i].answering = *std::move(answering);
    progress.push_back({0, prompt.size()});
  }
  run->response = delivery.Open(std::move(work.writer), work.reply, request.stream, std::move(progress));
  if (options.observer != nullptr) options.observer->Began(info);
  bool prompt_rows = false;
  for (size_t i = 0; i < run->choices.size(); ++i) {
    if (auto step = run->choices[i].answering->Echo())
      run->response->Events(i, std::move(step->events), std::move(step->tokens));
    prompt_rows = prompt_rows || run->choices[i].answering->wants_prompt_rows();
  }
  if (request.max_tokens == 0u && !prompt_rows) {
    for (size_t i = 0; i < run->choices.size(); ++i) EndWithoutTokens(*run, i, prompts[i / request.n].size());
  } else if (auto error = Submit(run, prompts)) {
    return std::move(*error);
  }
  run->response->Begin({.prompt = info.prompt_tokens});
  if (work.reply != nullptr) {
    work.reply->OnGone([this, weak = std::weak_ptr(run)] {
      if (const auto left = weak.lock()) CancelJobs(*left);
    });
  }
  return info.id;
}

std::string RandomName() {
  constexpr std::string_view kLetters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  std::string name;
  for (int half = 0; half < 2; ++half) {
    uint64_t bits = Random64();
    for (int i = 0; i < 10; ++i, bits /= kLetters.size()) name += kLetters[bits % kLetters.size()];
  }
  return name;
}

Result<std::unique_ptr<Service>> Service::Create(const Model& model, ServiceOptions options) try {
  auto impl = std::make_unique<Impl>(model, std::move(options));
  auto scheduler = Scheduler::Create(model, impl->options.scheduler);
  if (!scheduler.ok()) return scheduler.status();
  impl->scheduler = *std::move(scheduler);
  if (impl->options.cache) {
    auto cache = PrefixCache::Create(model, *impl->options.cache);
    if (!cache.ok()) return cache.status();
    impl->cache = *std::move(cache);
    const std::string& folder = impl->options.cache->directory;
    auto turns = SampledTurns::Open(
        {.path = folder.empty() ? "" : fmt::format("{}/turns-{}", folder, model.fingerprint()),
         .log = impl->options.cache->log});
    if (!turns.ok()) return turns.status();
    impl->turns = *std::move(turns);
  }
  impl->model_id = impl->options.model.empty() ? model.name() : impl->options.model;
  impl->fingerprint = "fp_" + model.fingerprint().substr(0, 12);
  impl->created = std::time(nullptr);
  impl->limits.sampler = impl->options.sampler;
  impl->limits.vocab_size = static_cast<int32_t>(model.usable_vocab());
  return std::unique_ptr<Service>(new Service(std::move(impl)));
} catch (...) {
  return NoRoomOrRethrow();
}

Service::Service(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Service::~Service() = default;

const Model& Service::model() const { return impl_->model; }
const ServiceOptions& Service::options() const { return impl_->options; }
const std::string& Service::model_id() const { return impl_->model_id; }
int64_t Service::created() const { return impl_->created; }
const RequestLimits& Service::limits() const { return impl_->limits; }

bool Service::Serves(std::string_view name) const {
  const auto& aliases = impl_->options.aliases;
  return name == impl_->model_id || std::find(aliases.begin(), aliases.end(), name) != aliases.end();
}

ResponseNames Service::NewNames(std::string model) const {
  return {RandomName(), std::time(nullptr), std::move(model), impl_->fingerprint};
}

Parsed<std::vector<Ids>> Service::Prompts(const GenerationRequest& request) const {
  return EncodePrompts(impl_->model, request, impl_->turns.get());
}

Parsed<uint64_t> Service::Run(Work work) try { return impl_->Run(std::move(work)); } catch (...) {
  return ApiError{503, NoRoomOrRethrow().message(), "", "", 1};
}

void Service::Cancel(uint64_t id) {
  std::shared_ptr<Running> run;
  {
    const std::lock_guard lock(impl_->mutex);
    const auto found = impl_->running.find(id);
    if (found != impl_->running.end()) run = found->second.lock();
  }
  if (run != nullptr) impl_->CancelJobs(*run);
}

Admission Service::Submit(Job job) { return impl_->scheduler->Submit(std::move(job)); }
void Service::CancelJob(uint64_t id) { impl_->scheduler->Cancel(id); }

SchedulerStats Service::stats() const { return impl_->scheduler->stats(); }
PrefixCache* Service::cache() const { return impl_->cache.get(); }
SampledTurns* Service::turns() const { return impl_->turns.get(); }

void Service::Drain(Clock::time_point until) {
  impl_->scheduler->Drain(until);
  constexpr auto kToWrite = std::chrono::seconds(5);
  if (impl_->cache != nullptr) (void)impl_->cache->Flush(std::max(until, Clock::now() + kToWrite));
}

}  // namespace glint::serve
