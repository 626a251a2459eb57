// From a request that any of the APIs was given to its answers: prompts, jobs for the scheduler, events for the response's writer.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "glint/model.h"
#include "serve/generation.h"
#include "serve/http.h"
#include "serve/prefix_cache.h"
#include "serve/sampled_turns.h"
#include "serve/scheduler.h"

namespace glint::serve {

// 20 letters and digits that nobody can guess and that do not come again.
std::string RandomName();

// How errors are written.
enum class ApiForm : uint8_t { kOpenAi, kAnthropic };

// What an observer is told of a request.
struct RequestInfo {
  uint64_t id = 0;       // counts requests of this service from 1
  std::string name;      // ResponseNames::id
  std::string endpoint;  // "/v1/chat/completions"
  std::string model;     // as asked for
  std::string client;    // whom the queue takes turns between
  bool stream = false;
  size_t choices = 1;
  uint64_t prompt_tokens = 0;  // of all prompts
  // What was asked; for logs that have been told to hold it.
  const GenerationRequest* request = nullptr;
};

// Metrics and logs. Calls come from several threads, those of one request in order; they hold up answers, so they are short. Every
// request that Began is told to have Ended, once.
class ServiceObserver {
 public:
  virtual ~ServiceObserver() = default;
  // Its prompts are known, and it is about to wait for its turn.
  virtual void Began(const RequestInfo& info) = 0;
  // It cannot be answered, whatever the load: Began was and will not be called. `info` knows what was found out until then.
  virtual void Refused(const RequestInfo& info, const ApiError& error) = 0;
  // The first token of a choice, `seconds` after Began.
  virtual void FirstToken(const RequestInfo& info, size_t choice, double seconds) = 0;
  // A later one, `seconds` after the one before.
  virtual void NextToken(const RequestInfo& info, size_t choice, double seconds) = 0;
  // What has become certain of a choice; for logs that have been told to hold it.
  virtual void Told(const RequestInfo& /*info*/, size_t /*choice*/,
                    const std::vector<AnswerEvent>& /*events*/) {}
  // A choice has ended, in order or because its client left.
  virtual void ChoiceEnded(const RequestInfo& info, size_t choice, const Outcome& outcome) = 0;
  // All have; or `error`, if it is not null, has ended them: 429 where the queue is full, 504 for a deadline.
  virtual void Ended(const RequestInfo& info, const std::vector<Outcome>& outcomes,
                     const ApiError* error) = 0;
};

struct ServiceOptions {
  SchedulerOptions scheduler = {};
  std::string model = {};                 // the id it is served as; empty: the model's own name
  std::vector<std::string> aliases = {};  // names that mean it too
  SamplerOptions sampler = {};            // where a request says nothing
  std::optional<std::chrono::milliseconds> timeout = {};  // of a request, its time in the queue included
  std::chrono::milliseconds keepalive{2000};              // silence after which a stream says that it lives
  // Beginnings of prompts that are kept for later ones, and turns as they were sampled; none: every prompt is read from its first token, and
  // turns are what their text says.
  std::optional<PrefixCacheOptions> cache = {};
  ServiceObserver* observer = nullptr;  // outlives the service
};

// A request with all that its answer needs.
struct Work {
  GenerationRequest request;
  ApiForm form = ApiForm::kOpenAi;
  std::string endpoint;
  std::string client;
  ResponseNames names;
  std::unique_ptr<ResponseWriter> writer;
  // Of a request with one answer: is given the tokens of prompt and answer once the answer is complete, before the writer hears of its end.
  // In the scheduler's thread; may be empty.
  std::function<void(std::vector<int32_t> tokens)> on_sequence = {};
  // Where the response goes: a stream if the request is one, else a whole body. None: the writer keeps what it wants, which it has seen all of
  // once End or Fail was called.
  std::shared_ptr<Reply> reply;
};

// Answers: choice i of a prompt draws with the request's seed plus i, so that each is the same alone and in company, and answer i of n the same
// as with seed + i alone. Where a request has no seed, one is drawn.
// Ends: a client that leaves ends all of its request's answers before the next pass. What goes wrong with one choice ends its request.
// Threads: all functions from any thread, the destructor and Drain from none of the service's own. Replies that were given must not call back
// once the destructor runs: stop the server first.
class Service {
 public:
  // kBadInput for options out of range.
  static Result<std::unique_ptr<Service>> Create(const Model& model, ServiceOptions options);
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  const Model& model() const;
  const ServiceOptions& options() const;
  const std::string& model_id() const;
  int64_t created() const;  // when it was made, in seconds since 1970
  bool Serves(std::string_view name) const;
  const RequestLimits& limits() const;
  // For a new response.
  ResponseNames NewNames(std::string model) const;

  // The tokens of each prompt.
  Parsed<std::vector<std::vector<int32_t>>> Prompts(const GenerationRequest& request) const;
  // Takes the work, and says the number to Cancel it by; or why not, and then neither writer nor reply were touched.
  Parsed<uint64_t> Run(Work work);
  // Ends the answers of a work where they are. Nothing if it has ended.
  void Cancel(uint64_t id);

  // Work that is no request: straight to the scheduler.
  Admission Submit(Job job);
  void CancelJob(uint64_t id);

  SchedulerStats stats() const;
  PrefixCache* cache() const;   // null: none
  SampledTurns* turns() const;  // null: none
  // Takes no more, waits for what there is, and cancels what is left at `until`; then brings the cache to the disk, for a few seconds if
  // `until` has passed.
  void Drain(Clock::time_point until);

 private:
  struct Impl;
  explicit Service(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace glint::serve
