#include "serve/answering.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "serve/logprobs.h"

namespace glint::serve {

using Kind = AnswerEvent::Kind;

Result<std::unique_ptr<Answering>> Answering::Create(const Model& model, const GenerationRequest& request,
                                                     const AnswerRules& rules,
                                                     std::span<const int32_t> prompt, uint64_t seed) {
  std::unique_ptr<Answering> made(new Answering(model));
  made->rules_ = rules;
  made->logprobs_ = request.logprobs;
  made->sampling_ = request.sampler;
  made->sampling_.seed = seed;
  for (const int32_t id : rules.banned)
    made->sampling_.logit_bias.emplace_back(id, -std::numeric_limits<float>::infinity());
  // Also where the scheduler's own sampler draws: what is wrong with the options shows here.
  auto sampler = Sampler::Create(made->sampling_, model.usable_vocab());
  if (!sampler.ok()) return sampler.status();
  if (made->chooses()) {
    sampler->Observe(prompt);
    made->sampler_.emplace(*std::move(sampler));
  }
  const bool raw = !request.prompts.empty();
  made->echo_ = request.echo;
  if (request.echo) made->prompt_.assign(prompt.begin(), prompt.end());
  if (!model.has_tokenizer()) {
    if (!request.stop.empty())
      return Status(Code::kUnsupported, "stop: this model has no tokenizer, so its answers have no text");
    return made;
  }
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
  made->parser_.emplace(*std::move(parser));
  if (made->logprobs_) made->stream_.emplace(model.tokenizer().Stream(false));
  return made;
}

std::span<const int32_t> Answering::stop_ids() const {
  return parser_ ? model_.tokenizer().stop_ids() : std::span<const int32_t>();
}

// Ids for people to read, where there is no text.
void Answering::PushId(int32_t id, AnswerStep& step) {
  AnswerEvent event{Kind::kText};
  event.text = fmt::format("{}{}", first_ ? "" : " ", id);
  first_ = false;
  step.events.push_back(std::move(event));
  if (logprobs_) step.tokens.push_back(std::move(chosen_));
}

std::string Answering::BytesOf(int32_t id) const {
  if (!parser_) return std::to_string(id);
  auto bytes = model_.tokenizer().Decode(std::span(&id, 1), true);
  return bytes.ok() ? *std::move(bytes) : "";  // padding, which has none
}

Result<int32_t> Answering::ChooseBy(std::span<const float> logits) {
  if (!rules_.constrain()) return sampler_->Sample(logits);
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  masked_.assign(logits.begin(), logits.end());
  if (!matcher_ && parser_ && parser_->in_reasoning()) {
    // It must come to the answer.
    for (const int32_t id : stop_ids()) masked_[static_cast<size_t>(id)] = kNever;
    return sampler_->Sample(masked_);
  }
  if (!matcher_) matcher_.emplace(rules_.answer);
  mask_.resize(rules_.answer->vocabulary().mask_words());
  matcher_->Mask(mask_);
  const bool may_call = rules_.calls != nullptr && matcher_->accepted() == 0;
  if (may_call) mask_[static_cast<size_t>(rules_.call_mark) / 64] |= uint64_t{1} << (rules_.call_mark % 64);
  grammar::ApplyMask(mask_, masked_);
  const auto id = sampler_->Sample(masked_);
  // A request that bans what ends its answer gets one that ends all the same.
  if (!id.ok() && matcher_->IsComplete() && !stop_ids().empty()) return stop_ids().front();
  if (!id.ok()) return id;
  if (may_call && *id == rules_.call_mark) {
    matcher_.emplace(rules_.calls);
    rules_.calls = nullptr;
  }
  if (!matcher_->Accept(*id))
    return Status(Code::kInternal, fmt::format("token {} has no place in the grammar that chose it", *id));
  return id;
}

TokenLogprob Answering::LogprobOf(std::span<const float> logits, int32_t id) const {
  const auto row = LogprobsOf(logits.first(static_cast<size_t>(model_.usable_vocab())), id, *logprobs_);
  TokenLogprob token{BytesOf(id), row.logprob};
  for (const auto& [other, logprob] : row.top) token.top.push_back({BytesOf(other), logprob});
  return token;
}

Result<int32_t> Answering::Choose(std::span<const float> logits) {
  auto id = ChooseBy(logits);
  if (id.ok() && logprobs_) chosen_ = LogprobOf(logits, *id);
  return id;
}

std::string Answering::EchoText() const {
  std::string text;
  if (parser_) {
    TextStream stream = model_.tokenizer().Stream(true);
    for (const int32_t id : prompt_) text += stream.Push(id);
    return text + stream.Finish();
  }
  for (const int32_t id : prompt_) text += fmt::format("{} ", id);
  return text;
}

std::optional<AnswerStep> Answering::Echo() {
  if (!echo_ || wants_prompt_rows()) return {};
  AnswerEvent event;
  event.text = EchoText();
  AnswerStep step;
  step.events.push_back(std::move(event));
  return step;
}

std::optional<AnswerStep> Answering::Echo(size_t position, std::span<const float> logits) {
  if (position == 0) prompt_tokens_.push_back({BytesOf(prompt_[0]), {}});  // it follows nothing
  if (position + 1 < prompt_.size()) {
    prompt_tokens_.push_back(LogprobOf(logits, prompt_[position + 1]));
    return {};
  }
  AnswerEvent event;
  event.text = EchoText();
  AnswerStep step;
  step.events.push_back(std::move(event));
  step.tokens = std::move(prompt_tokens_);
  return step;
}

// Puts a token of the answer's text behind those that wait for their text to come out.
void Answering::Keep(int32_t id) {
  said_ += stream_->Push(id).size();
  pending_.push_back({std::move(chosen_), said_});
}

// Those whose text the step's events complete.
void Answering::Attach(AnswerStep& step) {
  for (const AnswerEvent& event : step.events) {
    if (event.kind == Kind::kCallEnd && !event.broken) {  // what became a call is no text any more
      pending_.clear();
      out_ = said_;
    }
    if (event.kind != Kind::kText) continue;
    out_ += event.text.size();
    size_t complete = 0;
    while (complete < pending_.size() && pending_[complete].end <= out_) ++complete;
    for (size_t i = 0; i < complete; ++i) step.tokens.push_back(std::move(pending_[i].token));
    pending_.erase(pending_.begin(), pending_.begin() + static_cast<ptrdiff_t>(complete));
    out_ = std::min(out_, said_);  // tags that are spelled out were not counted
  }
}

Result<bool> Answering::Push(int32_t id, AnswerStep& step) {
  if (!parser_) {
    PushId(id, step);
    return true;
  }
  const bool before = parser_->in_reasoning();
  const Status status = parser_->Push(id, step.events);
  if (!status.ok()) return status;
  const bool reasoning = before || parser_->in_reasoning();
  reasoning_ += reasoning;
  if (logprobs_) {
    if (reasoning) {
      stream_->Push(id);
    } else {
      Keep(id);
    }
    Attach(step);
  }
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
    if (logprobs_) {
      said_ += stream_->Finish().size();
      if (!pending_.empty()) pending_.back().end = said_;
      Attach(step);
    }
  }
  if (!parser_->stop_string().empty()) reason_ = FinishReason::kStopString;
  return {};
}

std::string Answering::stop_string() const { return parser_ ? std::string(parser_->stop_string()) : ""; }

}  // namespace glint::serve
