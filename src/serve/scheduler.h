// Many requests on one model: each pass carries a token of everyone who decodes and a piece of the prompts that wait.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "glint/model.h"
#include "glint/sampler.h"
#include "glint/session.h"
#include "glint/status.h"

namespace glint::serve {

using Clock = std::chrono::steady_clock;  // setting the machine's time changes no deadline

struct SchedulerOptions {
  int sessions = 16;         // sequences that run at once
  int64_t context = 4096;    // tokens of a sequence, prompt and answer
  int queue = 256;           // jobs that wait at most; beyond, Submit refuses
  int queue_per_client = 0;  // of them of one client; 0: as many as there is room for
  // What users who decode may wait for a pass that also carries others' prompts. Kept by cutting prompts (pace.h); one block of the grid goes
  // on in any case, and the first passes are guesses.
  std::chrono::milliseconds stall{250};
  int64_t most_prompt_rows = 0;                 // of a pass beside decodes, at most; 0: what `stall` allows
  std::function<Clock::time_point()> now = {};  // the clock; tests have their own
};

// How a job ended.
enum class JobEnd : uint8_t {
  kStop,       // the model chose one of stop_ids
  kTaken,      // on_token returned false: who asked has what they wanted
  kLength,     // max_tokens, or the context is full
  kCancelled,  // Cancel, or the scheduler ended
  kDeadline,
  kFailed,  // `status` says why
};

struct JobResult {
  JobEnd end = JobEnd::kFailed;
  Status status = {};
  int32_t stop_id = -1;    // of kStop
  uint64_t prompt = 0;     // tokens
  uint64_t reused = 0;     // of them already in the session that the job brought along
  uint64_t generated = 0;  // tokens given to on_token
  double queue_s = 0, prefill_s = 0, decode_s = 0;
  // The sequence as far as it came, for whoever keeps prefixes: a beginning of the prompt and of the tokens generated (the last of which
  // is not in it). None if the job failed or never ran.
  std::optional<Session> session = {};
};

// What a job begins with.
struct Opening {
  std::optional<Session> session = {};  // as Job::session; none: a new one
  std::vector<int64_t> keep_at = {};    // ascending: positions of the prompt at which on_keep is called
};

// Callbacks come from the scheduler's thread, one at a time, and everybody waits for them: they hand over and return. They may call Submit and
// Cancel. An exception from one ends its job as kFailed.
struct Job {
  std::vector<int32_t> prompt;  // at least one id
  std::optional<Session> session =
      {};                  // this model's; holds a proper beginning of the prompt, and has room for all of it
  int64_t max_tokens = 0;  // of the answer, at most; 0: to the end of the context
  std::vector<int32_t> stop_ids = {};  // end the answer and are no part of it
  SamplerOptions sampling = {};        // its penalties know the prompt
  // In place of the sampler: the next id from float[vocab_size] (grammars, log probabilities). An error ends the job.
  std::function<Result<int32_t>(std::span<const float> logits)> choose = {};
  std::string client = {};  // whom the queue takes turns between
  int priority = 0;         // higher ones leave the queue first
  std::optional<Clock::time_point> deadline = {};
  std::function<bool(int32_t id)> on_token = {};                        // false: enough
  std::function<void(uint64_t done, uint64_t total)> on_progress = {};  // of the prompt, after each piece
  // The logits after token `position` of the prompt, of each in order, float[vocab_size]; the last before on_token. Not of tokens that
  // `session` holds already. Such a prompt is read in short pieces.
  std::function<void(size_t position, std::span<const float> logits)> on_prompt_row = {};
  // In place of `session`: asked when the job leaves the queue, which is when memory is taken. `context`: the room its session needs. An error
  // ends the job, but for kNoRoom while others run: then it is asked again once one of them has ended.
  std::function<Result<Opening>(int64_t context)> open = {};
  std::function<void(const Session& session)> on_keep = {};  // the session stands at one of keep_at
  std::function<void(JobResult result)> on_end = {};         // once, the last call
};

// What Submit says.
struct Admission {
  enum class Verdict : uint8_t {
    kTaken,
    kBad,      // it could never run
    kFull,     // too many wait
    kClosing,  // the scheduler takes no more
  } verdict = Verdict::kTaken;
  uint64_t id = 0;           // of a taken job: for Cancel
  std::string reason = {};   // of a refusal
  double retry_after_s = 0;  // of kFull: when there may be room
};

// Counters since the beginning, and the state now.
struct SchedulerStats {
  uint64_t waiting = 0, running = 0;
  uint64_t taken = 0, refused = 0, ended = 0, failed = 0;
  uint64_t prefilled = 0, reused = 0, decoded = 0;  // tokens
  uint64_t passes = 0, shared_passes = 0;           // shared: of more than one sequence
  uint64_t prompt_rows_beside_decodes = 0;          // the most in a pass
  double longest_stall_s = 0;                       // of passes with decodes and prompts
};

// Owns the sequences and a thread that runs them.
//
// Answers: the ids of a job are those that it gets alone on an idle scheduler, whatever the company, since no bit of its logits depends on what
// else is in a pass, and its draws are its own (seed and count).
// Order: jobs leave the queue by priority, then to the client with the fewest running, then to the one that had the fewest tokens, then
// by age. Every pass has a token of each that decodes. What room there is for prompts goes to the client that had the fewest tokens and then
// to the prompt that was looked after the longest time ago, so that a short prompt does not wait for a long one to end.
// Ends: cancelled jobs and those whose deadline has passed end before the next pass and get no further token. What goes wrong with one job
// ends that job; only where the device fails do all of a pass end.
// Memory: a job's session is made when it leaves the queue. If there is no room for it while others run, it waits for one of them to end.
// Threads: all functions from any thread; Drain and the destructor not from a callback.
class Scheduler {
 public:
  // kBadInput for options out of range.
  static Result<std::unique_ptr<Scheduler>> Create(const Model& model, const SchedulerOptions& options = {});
  ~Scheduler();  // ends what there is as kCancelled
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Only a taken job's callbacks are ever called.
  Admission Submit(Job job);
  // Nothing if the job has ended.
  void Cancel(uint64_t id);
  SchedulerStats stats() const;
  // Takes no more jobs, waits until those there are have ended, and cancels what is left at `until`.
  void Drain(Clock::time_point until);

 private:
  struct Impl;
  explicit Scheduler(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace glint::serve
