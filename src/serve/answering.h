// One answer while it is made: which token comes next, and what it says.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "glint/answer.h"
#include "glint/model.h"
#include "glint/sampler.h"
#include "serve/generation.h"
#include "serve/rules.h"
#include "serve/scheduler.h"

namespace glint::serve {

// What one step of an answer says.
struct AnswerStep {
  std::vector<AnswerEvent> events;
  std::vector<TokenLogprob> tokens;  // those whose text is complete with the last text event
};

// Made for one choice. One thread at a time: the scheduler's.
class Answering {
 public:
  // `seed`: of this choice. kBadInput: options of the sampler or the parser that are out of range.
  static Result<std::unique_ptr<Answering>> Create(const Model& model, const GenerationRequest& request,
                                                   const AnswerRules& rules, std::span<const int32_t> prompt,
                                                   uint64_t seed);

  // Whether Choose is needed; if not, a sampler with these options, which knows the prompt, chooses the same.
  bool chooses() const { return rules_.constrain() || logprobs_.has_value(); }
  const SamplerOptions& sampling() const { return sampling_; }
  std::span<const int32_t> stop_ids() const;

  // Of a request that wants its prompt back: the prompt as the answer's first text. With log probabilities it comes once their logits were
  // given, those after each token of the prompt in order; else at once, with none.
  bool wants_prompt_rows() const { return echo_ && logprobs_.has_value(); }
  std::optional<AnswerStep> Echo();
  std::optional<AnswerStep> Echo(size_t position, std::span<const float> logits);

  // The next token from its logits, by the rules and the sampler. To be followed by Push, or by End for a stop id.
  Result<int32_t> Choose(std::span<const float> logits);
  // The next token was chosen. False: the answer is complete with it.
  Result<bool> Push(int32_t id, AnswerStep& step);
  // No token follows; why is in `result`.
  Status End(const JobResult& result, AnswerStep& step);

  uint64_t reasoning_tokens() const { return reasoning_; }
  FinishReason reason() const { return reason_; }
  std::string stop_string() const;

 private:
  // A token whose text is not out yet.
  struct Pending {
    TokenLogprob token;
    uint64_t end = 0;  // where its text ends, in bytes of all text
  };

  explicit Answering(const Model& model) : model_(model) {}
  std::string EchoText() const;
  TokenLogprob LogprobOf(std::span<const float> logits, int32_t id) const;
  void PushId(int32_t id, AnswerStep& step);
  Result<int32_t> ChooseBy(std::span<const float> logits);
  std::string BytesOf(int32_t id) const;
  void Keep(int32_t id);
  void Attach(AnswerStep& step);

  const Model model_;
  SamplerOptions sampling_;
  std::optional<AnswerParser> parser_;  // none if the model has no tokenizer; text is ids then
  bool one_call_ = false;               // the answer ends with its first call
  bool first_ = true;
  uint64_t reasoning_ = 0;
  FinishReason reason_ = FinishReason::kStop;

  // Of Choose.
  AnswerRules rules_;
  std::optional<Sampler> sampler_;
  std::optional<grammar::Matcher> matcher_;  // once the reasoning is over
  std::vector<uint64_t> mask_;
  std::vector<float> masked_;

  // Of Echo.
  bool echo_ = false;
  std::vector<int32_t> prompt_;
  std::vector<TokenLogprob> prompt_tokens_;

  // Of log probabilities.
  std::optional<uint32_t> logprobs_;
  TokenLogprob chosen_;  // by the last Choose
  std::optional<TextStream> stream_;
  uint64_t said_ = 0, out_ = 0;  // bytes of text that the tokens stand for; that events had
  std::vector<Pending> pending_;
};

}  // namespace glint::serve
