// A reply without a socket, and a writer that keeps what it is told.
#pragma once
#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "serve/generation.h"
#include "serve/http.h"

namespace glint::serve {

class FakeReply final : public Reply {
 public:
  void Send(int status, HttpHeaders headers, std::string body) override {
    const std::lock_guard lock(mutex_);
    status_ = status, headers_ = std::move(headers), text_ = std::move(body), over_ = true;
    on_gone_ = nullptr;
    changed_.notify_all();
  }
  bool Start(int status, HttpHeaders headers) override {
    const std::lock_guard lock(mutex_);
    status_ = status, headers_ = std::move(headers);
    changed_.notify_all();
    return !gone_;
  }
  bool Write(std::string_view piece) override {
    const std::lock_guard lock(mutex_);
    text_ += piece;
    changed_.notify_all();
    return !gone_;
  }
  void Finish() override {
    const std::lock_guard lock(mutex_);
    over_ = true;
    on_gone_ = nullptr;
    changed_.notify_all();
  }
  size_t Backlog() const override { return 0; }
  bool Gone() const override {
    const std::lock_guard lock(mutex_);
    return gone_;
  }
  void OnGone(std::function<void()> callback) override {
    {
      const std::lock_guard lock(mutex_);
      if (over_) return;
      if (!gone_) {
        on_gone_ = std::move(callback);
        return;
      }
    }
    callback();
  }

  // The client closes its side.
  void Leave() {
    std::function<void()> callback;
    {
      const std::lock_guard lock(mutex_);
      gone_ = true;
      callback = std::exchange(on_gone_, nullptr);
    }
    if (callback) callback();
  }
  bool Listening() const {
    const std::lock_guard lock(mutex_);
    return on_gone_ != nullptr;
  }
  // Waits for the end; false if none comes for a minute.
  bool Wait() {
    return WaitFor([this] { return over_; });
  }
  bool WaitForText(const std::string& part) {
    return WaitFor([&] { return text_.find(part) != std::string::npos; });
  }
  int status() const { return Locked(status_); }
  std::string text() const { return Locked(text_); }
  std::string Header(std::string_view name) const {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, value] : headers_)
      if (key == name) return value;
    return "";
  }

 private:
  template <class T>
  T Locked(const T& value) const {
    const std::lock_guard lock(mutex_);
    return value;
  }
  template <class Done>
  bool WaitFor(Done done) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::minutes(5), done);
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int status_ = 0;
  HttpHeaders headers_;
  std::string text_;
  bool over_ = false, gone_ = false;
  std::function<void()> on_gone_;
};

// All that a writer was told of one choice.
struct Said {
  std::string reasoning, text;
  std::vector<ToolCall> calls;
  std::vector<std::string> pieces;  // of the text
  std::vector<TokenLogprob> tokens;
  Outcome outcome;
  bool operator==(const Said& other) const {
    return reasoning == other.reasoning && text == other.text && outcome.reason == other.outcome.reason &&
           outcome.stop == other.outcome.stop && outcome.usage.completion == other.outcome.usage.completion;
  }
};

struct Collected {
  Usage begun;
  std::vector<Said> choices;
  std::optional<ApiError> error;
};

class Collector final : public ResponseWriter {
 public:
  Collector(size_t choices, std::promise<Collected> done) : done_(std::move(done)) {
    all_.choices.resize(choices);
  }
  std::string Begin(const Usage& usage) override {
    all_.begun = usage;
    return "begin ";
  }
  std::string Event(size_t choice, const AnswerEvent& event,
                    const std::vector<TokenLogprob>& tokens) override {
    Said& said = all_.choices.at(choice);
    said.tokens.insert(said.tokens.end(), tokens.begin(), tokens.end());
    switch (event.kind) {
      case AnswerEvent::Kind::kReasoning:
        said.reasoning += event.text;
        break;
      case AnswerEvent::Kind::kText:
        said.text += event.text;
        said.pieces.push_back(event.text);
        break;
      case AnswerEvent::Kind::kCallBegin:
        said.calls.push_back({event.text, ""});
        break;
      case AnswerEvent::Kind::kCallArguments:
        said.calls.back().arguments += event.text;
        break;
      default:
        break;
    }
    return event.text;
  }
  std::string Finish(size_t choice, const Outcome& outcome) override {
    all_.choices.at(choice).outcome = outcome;
    return {};
  }
  std::string End() override {
    done_.set_value(all_);
    return " end";
  }
  std::string Fail(const ApiError& error) override {
    all_.error = error;
    done_.set_value(all_);
    return " fail";
  }
  std::string KeepAlive(const Progress& progress) override {
    return ": " + std::to_string(progress.done) + "/" + std::to_string(progress.total) + " ";
  }

 private:
  Collected all_;
  std::promise<Collected> done_;
};

}  // namespace glint::serve
