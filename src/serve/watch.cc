#include "serve/watch.h"

#include <algorithm>

#include "serve/json_out.h"

namespace glint::serve {
namespace {

constexpr size_t kMostContent = size_t{1} << 20;  // bytes of a prompt or an answer in the log
constexpr int kClientLeft = 499;                  // as servers have come to count those who did not wait

double Seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

std::string Cut(std::string text) {
  if (text.size() > kMostContent) text.resize(kMostContent);
  return text;
}

// A client is its address and its key: the key is nobody's business.
std::string PeerOf(const RequestInfo& info) { return info.client.substr(0, info.client.find(' ')); }

std::string Content(const GenerationRequest& request) {
  constexpr std::string_view kRoles[] = {"system", "user", "assistant", "tool"};
  JsonOut out;
  out.Begin('[');
  for (const Message& m : request.messages) {
    out.Begin('{').String("role", kRoles[static_cast<size_t>(m.role)]).String("content", ToUtf8(m.content));
    if (!m.reasoning.empty()) out.String("reasoning", ToUtf8(m.reasoning));
    for (const ToolCall& call : m.tool_calls) out.String("call " + ToUtf8(call.name), ToUtf8(call.arguments));
    out.End('}');
  }
  for (const RawPrompt& prompt : request.prompts) {
    if (const auto* text = std::get_if<std::string>(&prompt)) {
      out.String(ToUtf8(*text));
    } else {
      out.Begin('[');
      for (const int32_t id : std::get<std::vector<int32_t>>(prompt)) out.Integer(id);
      out.End(']');
    }
  }
  return Cut(out.End(']').Take());
}

}  // namespace

void Watch::Began(const RequestInfo& info) {
  metrics_.Began();
  {
    const std::lock_guard lock(mutex_);
    open_[info.id] = {.began = Clock::now(), .text = std::vector<std::string>(content_ ? info.choices : 0)};
  }
  if (log_ == nullptr || info.request == nullptr) return;
  for (const std::string& warning : info.request->warnings)
    log_->Write(LogLevel::kInfo, "warning", {{"id", info.name}, {"what", warning}});
  if (content_)
    log_->Write(LogLevel::kInfo, "prompt", {{"id", info.name}, {"content", Content(*info.request)}});
}

void Watch::Refused(const RequestInfo& info, const ApiError& error) {
  metrics_.Ended(info.endpoint, error.status, 0, false);
}

void Watch::FirstToken(const RequestInfo& info, size_t, double seconds) {
  metrics_.FirstToken(seconds);
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(info.id);
  if (found != open_.end() && found->second.first_token_s == 0) found->second.first_token_s = seconds;
}

void Watch::NextToken(const RequestInfo&, size_t, double seconds) { metrics_.NextToken(seconds); }

void Watch::Told(const RequestInfo& info, size_t choice, const std::vector<AnswerEvent>& events) {
  if (!content_) return;
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(info.id);
  if (found == open_.end() || choice >= found->second.text.size()) return;
  std::string& text = found->second.text[choice];
  for (const AnswerEvent& event : events)
    if (text.size() < kMostContent) text += event.text;
}

void Watch::ChoiceEnded(const RequestInfo& info, size_t choice, const Outcome& outcome) {
  metrics_.ChoiceEnded(outcome);
  if (!content_ || log_ == nullptr) return;
  std::string text;
  {
    const std::lock_guard lock(mutex_);
    const auto found = open_.find(info.id);
    if (found != open_.end() && choice < found->second.text.size())
      text = std::move(found->second.text[choice]);
  }
  log_->Write(LogLevel::kInfo, "answer",
              {{"id", info.name}, {"choice", uint64_t{choice}}, {"content", Cut(std::move(text))}});
}

void Watch::Ended(const RequestInfo& info, const std::vector<Outcome>& outcomes, const ApiError* error) {
  Open open{Clock::now()};
  {
    const std::lock_guard lock(mutex_);
    const auto found = open_.find(info.id);
    if (found != open_.end()) {
      open = std::move(found->second);
      open_.erase(found);
    }
  }
  const double seconds = Seconds(Clock::now() - open.began);
  const bool left = error == nullptr && !outcomes.empty() &&
                    std::all_of(outcomes.begin(), outcomes.end(),
                                [](const Outcome& o) { return o.reason == FinishReason::kCancelled; });
  const int status = error != nullptr ? error->status : left ? kClientLeft : 200;
  metrics_.Ended(info.endpoint, status, seconds, true);
  if (log_ == nullptr) return;
  LogFields fields{{"id", info.name},
                   {"peer", PeerOf(info)},
                   {"endpoint", info.endpoint},
                   {"model", info.model},
                   {"stream", info.stream},
                   {"status", int64_t{status}},
                   {"choices", uint64_t{info.choices}},
                   {"prompt_tokens", info.prompt_tokens}};
  if (error != nullptr) {
    fields.emplace_back("error", error->message);
  } else {
    Usage sum;
    Timings most;
    std::string reasons;
    for (const Outcome& o : outcomes) {
      sum.cached += o.usage.cached, sum.completion += o.usage.completion, sum.reasoning += o.usage.reasoning;
      most.queue_ms = std::max(most.queue_ms, o.timings.queue_ms);
      most.prefill_ms = std::max(most.prefill_ms, o.timings.prefill_ms);
      most.decode_ms = std::max(most.decode_ms, o.timings.decode_ms);
      if (outcomes.size() <= 16) reasons += (reasons.empty() ? "" : ",") + std::string(Name(o.reason));
    }
    fields.insert(fields.end(), {{"cached_tokens", sum.cached},
                                 {"completion_tokens", sum.completion},
                                 {"reasoning_tokens", sum.reasoning},
                                 {"finish", reasons},
                                 {"queue_ms", most.queue_ms},
                                 {"prefill_ms", most.prefill_ms},
                                 {"decode_ms", most.decode_ms}});
    if (open.first_token_s > 0) fields.emplace_back("first_token_ms", open.first_token_s * 1e3);
  }
  fields.emplace_back("total_ms", seconds * 1e3);
  log_->Write(status >= 500 ? LogLevel::kError : LogLevel::kInfo, "request", fields);
}

void Watch::Answered(const HttpAnswered& answer) {
  metrics_.Answered(answer.route, answer.status);
  if (log_ == nullptr) return;
  // While a model loads, "not yet" is what /health is asked for.
  const bool bad = answer.status >= 400 && answer.route != "/health";
  const LogLevel level = !bad                   ? LogLevel::kDebug
                         : answer.status >= 500 ? LogLevel::kWarning
                                                : LogLevel::kInfo;
  LogFields fields{
      {"id", answer.id},     {"method", answer.method},          {"path", answer.path.substr(0, 200)},
      {"peer", answer.peer}, {"status", int64_t{answer.status}}, {"ms", answer.seconds * 1e3}};
  if (!answer.error.empty()) fields.emplace_back("error", answer.error);
  log_->Write(level, "http", fields);
}

}  // namespace glint::serve
