#include "serve/delivery.h"

#include <algorithm>
#include <utility>

namespace glint::serve {
namespace {

// No proxy may gather a stream's events, nor keep them.
HttpHeaders StreamHeaders() {
  return {{"Content-Type", "text/event-stream; charset=utf-8"},
          {"Cache-Control", "no-cache"},
          {"X-Accel-Buffering", "no"}};
}

HttpHeaders JsonHeaders(uint32_t retry_after_s = 0) {
  HttpHeaders headers{{"Content-Type", "application/json"}};
  if (retry_after_s > 0) headers.emplace_back("Retry-After", std::to_string(retry_after_s));
  return headers;
}

}  // namespace

void Response::Post(std::function<void(Response&)> step) {
  const std::lock_guard lock(delivery_->mutex_);
  if (state_ == State::kHeld) {
    early_.push_back(std::move(step));
  } else if (state_ == State::kBegun) {
    delivery_->steps_.push_back({shared_from_this(), std::move(step)});
    delivery_->changed_.notify_one();
  }
}

void Response::Abandon() {
  std::vector<std::function<void(Response&)>> dropped;
  const std::lock_guard lock(delivery_->mutex_);
  state_ = State::kAbandoned;
  dropped.swap(early_);
}

void Response::Write(const std::string& bytes) {
  if (stream_) {
    if (bytes.empty() || reply_ == nullptr) return;
    reply_->Write(bytes);
    written_ = Clock::now();
  } else {
    body_ += bytes;
  }
}

void Response::Close() {
  over_ = true;
  reply_.reset();
  for (const auto& callback : std::exchange(on_done_, {})) callback();
  std::erase_if(delivery_->live_, [this](const auto& other) { return other.get() == this; });
}

void Response::Begin(const Usage& usage) {
  auto begin = [usage](Response& r) {
    if (r.stream_ && r.reply_ != nullptr) {
      r.reply_->Start(200, StreamHeaders());
      r.written_ = Clock::now();
      r.delivery_->live_.push_back(r.shared_from_this());
    }
    r.Write(r.writer_->Begin(usage));
  };
  const std::lock_guard lock(delivery_->mutex_);
  state_ = State::kBegun;
  delivery_->steps_.push_back({shared_from_this(), std::move(begin)});
  for (auto& step : std::exchange(early_, {}))
    delivery_->steps_.push_back({shared_from_this(), std::move(step)});
  delivery_->changed_.notify_one();
}

void Response::Events(size_t choice, std::vector<AnswerEvent> events, std::vector<TokenLogprob> tokens) {
  if (events.empty()) return;
  Post([choice, events = std::move(events), tokens = std::move(tokens)](Response& r) {
    if (r.over_) return;
    static const std::vector<TokenLogprob> kNone;
    // Tokens go with the last text among the events: they are those whose text it completes.
    size_t last = events.size();
    for (size_t i = 0; i < events.size(); ++i)
      if (events[i].kind == AnswerEvent::Kind::kText) last = i;
    std::string bytes;
    for (size_t i = 0; i < events.size(); ++i)
      bytes += r.writer_->Event(choice, events[i], i == last ? tokens : kNone);
    r.Write(bytes);
  });
}

void Response::Finish(size_t choice, Outcome outcome) {
  Post([choice, outcome = std::move(outcome)](Response& r) {
    if (r.over_) return;
    r.Write(r.writer_->Finish(choice, outcome));
    if (--r.unfinished_ > 0) return;
    r.Write(r.writer_->End());
    if (r.reply_ != nullptr) {
      if (r.stream_) {
        r.reply_->Finish();
      } else {
        r.reply_->Send(200, JsonHeaders(), std::move(r.body_));
      }
    }
    r.Close();
  });
}

void Response::Fail(ApiError error) {
  Post([error = std::move(error)](Response& r) {
    if (r.over_) return;
    std::string last = r.writer_->Fail(error);
    if (r.reply_ != nullptr) {
      if (r.stream_) {
        r.reply_->Write(last);
        r.reply_->Finish();
      } else {
        r.reply_->Send(error.status, JsonHeaders(error.retry_after_s), std::move(last));
      }
    }
    r.Close();
  });
}

void Response::SetProgress(size_t choice, Progress progress) {
  Post([choice, progress](Response& r) { r.progress_[choice] = progress; });
}

void Response::OnDone(std::function<void()> callback) {
  Post([callback = std::move(callback)](Response& r) {
    if (r.over_) {
      callback();
    } else {
      r.on_done_.push_back(callback);
    }
  });
}

Delivery::Delivery(std::chrono::milliseconds keepalive) : keepalive_(keepalive), thread_([this] { Run(); }) {}

Delivery::~Delivery() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    changed_.notify_one();
  }
  thread_.join();
}

std::shared_ptr<Response> Delivery::Open(std::unique_ptr<ResponseWriter> writer, std::shared_ptr<Reply> reply,
                                         bool stream, std::vector<Progress> progress) {
  auto response = std::make_shared<Response>();
  response->delivery_ = this;
  response->writer_ = std::move(writer);
  response->reply_ = std::move(reply);
  response->stream_ = stream;
  response->unfinished_ = progress.size();
  response->progress_ = std::move(progress);
  return response;
}

void Delivery::KeepAlive(Clock::time_point now) {
  for (const auto& response : live_) {
    if (now - response->written_ < keepalive_) continue;
    Progress all;
    for (const Progress& one : response->progress_) {
      all.done += one.done;
      all.total += one.total;
    }
    response->Write(response->writer_->KeepAlive(all));
    response->written_ = now;  // also of a writer that has nothing to say
  }
}

void Delivery::Run() {
  std::deque<Step> steps;
  Clock::time_point next = Clock::now() + keepalive_;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      const auto ready = [this] { return ending_ || !steps_.empty(); };
      if (live_.empty()) {
        changed_.wait(lock, ready);
      } else {
        changed_.wait_until(lock, next, ready);
      }
      if (ending_ && steps_.empty()) return;
      steps.swap(steps_);
    }
    for (; !steps.empty(); steps.pop_front()) {
      const Step& step = steps.front();
      try {
        step.run(*step.response);
      } catch (
          ...) {  // no memory for a piece: the connection breaks off, so that its client sees that something is missing
        step.response->Close();
      }
    }
    const Clock::time_point now = Clock::now();
    if (now < next) continue;
    KeepAlive(now);
    // A quarter: silence is noticed soon after it has lasted.
    next = now + std::max(keepalive_ / 4, std::chrono::milliseconds(1));
  }
}

}  // namespace glint::serve
