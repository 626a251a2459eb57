// What a server is told of its requests, as numbers and as lines of the log.
#pragma once
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "serve/endpoints.h"
#include "serve/log.h"
#include "serve/metrics.h"
#include "serve/service.h"

namespace glint::serve {

// Events of the log (docs/operating.md): "request" when one for answers has ended, "http" for other answers that are errors, "warning" for
// what was asked for without effect, and, if content is to be logged, "prompt" and "answer".
//
// Threads: any.
class Watch final : public ServiceObserver {
 public:
  // log may be null. content: what was asked and answered goes into the log.
  Watch(RequestMetrics* metrics, Log* log, bool content) : metrics_(*metrics), log_(log), content_(content) {}

  void Began(const RequestInfo& info) override;
  void Refused(const RequestInfo& info, const ApiError& error) override;
  void FirstToken(const RequestInfo& info, size_t choice, double seconds) override;
  void NextToken(const RequestInfo& info, size_t choice, double seconds) override;
  void Told(const RequestInfo& info, size_t choice, const std::vector<AnswerEvent>& events) override;
  void ChoiceEnded(const RequestInfo& info, size_t choice, const Outcome& outcome) override;
  void Ended(const RequestInfo& info, const std::vector<Outcome>& outcomes, const ApiError* error) override;

  // EndpointOptions::answered.
  void Answered(const HttpAnswered& answer);

 private:
  struct Open {
    Clock::time_point began;
    double first_token_s = 0;            // 0: none yet
    std::vector<std::string> text = {};  // by choice, if content is logged
  };
  RequestMetrics& metrics_;
  Log* const log_;
  const bool content_;
  std::mutex mutex_;
  std::map<uint64_t, Open> open_;  // by RequestInfo::id
};

}  // namespace glint::serve
