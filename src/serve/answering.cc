#include "serve/answering.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace glint::serve {

using Kind = AnswerEvent::Kind;

Result<std::unique_ptr<Answering>> Answering::Create(const Model& model, const GenerationRequest& request,
                                                     std::span<const int32_t> prompt, uint64_t seed) {
  std::unique_ptr<Answering> made(new Answering());
  made->sampling_ = request.sampler;
  made->sampling_.seed = seed;
  const bool raw = !request.prompts.empty();
  if (!model.has_tokenizer()) {
    if (!request.stop.empty())
      return Status(Code::kUnsupported, "stop: this model has no tokenizer, so its answers have no text");
    return made;
  }
  made->tokenizer_ = &model.tokenizer();
  AnswerOptions options;
  options.raw = raw;
  options.stop = request.stop;
  options.stream_arguments = request.stream;
  if (!raw) {
    options.in_reasoning = OpensReasoning(model.tokenizer(), prompt);
    if (request.tool_choice.kind != ToolChoice::Kind::kNone) options.tools = request.chat.tools;
    made->one_call_ = !options.tools.empty() && !request.tool_choice.parallel;
  }
  auto parser = AnswerParser::Create(model.tokenizer(), options);
  if (!parser.ok()) return parser.status();
  made->parser_.emplace(std::move(*parser));
  return made;
}

std::span<const int32_t> Answering::stop_ids() const {
  return tokenizer_ == nullptr ? std::span<const int32_t>() : tokenizer_->stop_ids();
}

// Ids for people to read, where there is no text.
void Answering::PushId(int32_t id, AnswerStep& step) {
  AnswerEvent event{Kind::kText};
  event.text = fmt::format("{}{}", first_ ? "" : " ", id);
  first_ = false;
  step.events.push_back(std::move(event));
}

Result<bool> Answering::Push(int32_t id, AnswerStep& step) {
  if (!parser_) {
    PushId(id, step);
    return true;
  }
  const bool before = parser_->in_reasoning();
  const Status status = parser_->Push(id, step.events);
  if (!status.ok()) return status;
  reasoning_ += before || parser_->in_reasoning();
  if (parser_->ended()) return false;
  if (!one_call_) return true;
  return std::none_of(step.events.begin(), step.events.end(),
                      [](const AnswerEvent& event) { return event.kind == Kind::kCallEnd && !event.broken; });
}

Status Answering::End(const JobResult& result, AnswerStep& step) {
  reason_ = result.end == JobEnd::kLength      ? FinishReason::kLength
            : result.end == JobEnd::kCancelled ? FinishReason::kCancelled
                                               : FinishReason::kStop;
  if (!parser_) return {};
  if (!parser_->ended()) {
    const Status status = result.end == JobEnd::kStop ? parser_->Push(result.stop_id, step.events)
                                                      : parser_->Finish(step.events);
    if (!status.ok()) return status;
  }
  if (!parser_->stop_string().empty()) reason_ = FinishReason::kStopString;
  return {};
}

std::string Answering::stop_string() const { return parser_ ? std::string(parser_->stop_string()) : ""; }

}  // namespace glint::serve
