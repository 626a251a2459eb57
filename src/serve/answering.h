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
                                                   std::span<const int32_t> prompt, uint64_t seed);

  // Whether Choose is needed; if not, a sampler with these options chooses the same.
  bool chooses() const { return false; }
  const SamplerOptions& sampling() const { return sampling_; }
  std::span<const int32_t> stop_ids() const;

  // The next token was chosen. False: the answer is complete with it.
  Result<bool> Push(int32_t id, AnswerStep& step);
  // No token follows; why is in `result`.
  Status End(const JobResult& result, AnswerStep& step);

  uint64_t reasoning_tokens() const { return reasoning_; }
  FinishReason reason() const { return reason_; }
  std::string stop_string() const;

 private:
  Answering() = default;
  void PushId(int32_t id, AnswerStep& step);

  const Tokenizer* tokenizer_ =
      nullptr;  // of the model, which outlives this; null: it has none, and text is ids
  SamplerOptions sampling_;
  std::optional<AnswerParser> parser_;
  bool one_call_ = false;  // the answer ends with its first call
  bool first_ = true;
  uint64_t reasoning_ = 0;
  FinishReason reason_ = FinishReason::kStop;
};

}  // namespace glint::serve
