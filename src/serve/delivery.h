// Responses on their way to clients: what answers say, from whatever thread, through each response's writer, in a thread of their own.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "serve/generation.h"
#include "serve/http.h"
#include "serve/scheduler.h"

namespace glint::serve {

class Delivery;

// One response. Nothing of it is written before Begin; what comes earlier is kept until then, so that answers may start while it is not known
// yet whether all of them can. All members from any thread; none waits.
class Response : public std::enable_shared_from_this<Response> {
 public:
  void Begin(const Usage& usage);
  // In place of Begin: nothing is ever written.
  void Abandon();
  void Events(size_t choice, std::vector<AnswerEvent> events, std::vector<TokenLogprob> tokens);
  // The end of the last choice is the end of the response.
  void Finish(size_t choice, Outcome outcome);
  // Only the first counts, and nothing counts after it.
  void Fail(ApiError error);
  void SetProgress(size_t choice, Progress progress);
  // Calls `callback` in the delivery's thread once all is written, or nothing more will be.
  void OnDone(std::function<void()> callback);

 private:
  friend class Delivery;
  void Post(std::function<void(Response&)> step);
  void Write(const std::string& bytes);
  void Close();

  Delivery* delivery_ = nullptr;
  // Under the delivery's lock.
  enum class State : uint8_t { kHeld, kBegun, kAbandoned } state_ = State::kHeld;
  std::vector<std::function<void(Response&)>> early_;  // what came before Begin

  // Of the delivery's thread.
  std::unique_ptr<ResponseWriter> writer_;
  std::shared_ptr<Reply> reply_;  // may be null
  bool stream_ = false, over_ = false;
  size_t unfinished_ = 0;
  std::string body_;  // of a response that is no stream
  std::vector<Progress> progress_;
  Clock::time_point written_;
  std::vector<std::function<void()>> on_done_;
};

// Owns the thread. A stream that was silent for `keepalive` of wall-clock time gets its writer's KeepAlive, whatever the scheduler does.
class Delivery {
 public:
  explicit Delivery(std::chrono::milliseconds keepalive);
  ~Delivery();  // after what was posted has been written
  Delivery(const Delivery&) = delete;
  Delivery& operator=(const Delivery&) = delete;

  // `reply` may be null: then the writer alone sees the answer. `progress`: of each choice, with the totals known.
  std::shared_ptr<Response> Open(std::unique_ptr<ResponseWriter> writer, std::shared_ptr<Reply> reply,
                                 bool stream, std::vector<Progress> progress);

 private:
  friend class Response;
  void Run();
  void KeepAlive(Clock::time_point now);

  const std::chrono::milliseconds keepalive_;
  std::mutex mutex_;
  std::condition_variable changed_;
  struct Step {
    std::shared_ptr<Response> response;
    std::function<void(Response&)> run;
  };
  std::deque<Step> steps_;
  bool ending_ = false;
  std::vector<std::shared_ptr<Response>> live_;  // streams; of the thread
  std::thread thread_;
};

}  // namespace glint::serve
