// What the three APIs have in common: the request that each is turned into, and what comes back for a response to be written from.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "glint/answer.h"
#include "glint/sampler.h"
#include "glint/tokenizer.h"

namespace glint::serve {

// A request that can't be answered. Each API writes it in its own form (api_error.h), which takes the type from the status.
struct ApiError {
  int status = 400;
  std::string message;
  std::string param = {};      // the field at fault, in the API's own path form; empty: none
  std::string code = {};       // OpenAI's; empty: none
  uint32_t retry_after_s = 0;  // of 429 and 503; 0: not said
  bool operator==(const ApiError&) const = default;
};

template <class T>
using Parsed = std::variant<T, ApiError>;

// What the answer has to be, beside free text.
struct Constraint {
  enum class Kind : uint8_t { kNone, kJsonObject, kJsonSchema };
  Kind kind = Kind::kNone;
  std::string schema = {};  // of kJsonSchema: its JSON text
  bool operator==(const Constraint&) const = default;
};

struct ToolChoice {
  enum class Kind : uint8_t {
    kAuto,
    kNone,  // the tools are rendered, so that the prompt's beginning stays what it was, but no call may be made
    kRequired,  // one call or more, and nothing else
    kNamed,     // a call of `name`, and nothing else
  };
  Kind kind = Kind::kAuto;
  std::string name = {};
  bool parallel = true;  // more than one call in an answer
  bool operator==(const ToolChoice&) const = default;
};

// A prompt of the completions API: text that is encoded as it stands, or ids.
using RawPrompt = std::variant<std::string, std::vector<int32_t>>;

struct GenerationRequest {
  std::string model;  // as asked for; whether it is served is the caller's business (UnknownModel)

  // Either a conversation, or prompts that are continued as they are.
  std::vector<Message> messages;
  ChatOptions
      chat;  // tools and reasoning effort: "low", "high", or "" for the template's default, the highest
  // Of a conversation that goes on from an earlier answer: the tokens of its sequence. The prompt has them where it says the same (replay.h).
  std::vector<int32_t> history;
  bool skip_reasoning = false;  // the prompt goes on with </think>: an answer without reasoning
  bool show_reasoning = true;   // whether the response has it
  std::vector<RawPrompt> prompts;
  bool echo = false;  // of prompts: the text begins with the prompt

  ToolChoice tool_choice;
  Constraint constraint;

  // `sampler.seed` holds if seeded; else the caller draws one.
  SamplerOptions sampler;
  bool seeded = false;
  std::optional<uint32_t> max_tokens;  // none: as many as the context has room for
  std::vector<std::string> stop;
  uint32_t n = 1;                    // answers to each prompt
  std::optional<uint32_t> logprobs;  // none: not wanted; else how many alternatives of each token
  bool stream = false;
  bool include_usage = false;  // of a stream

  // What was asked for and has no effect, in words; for the log.
  std::vector<std::string> warnings;

  // Choice p * n + i of the response is answer i to prompt p.
  size_t choices() const { return (prompts.empty() ? 1 : prompts.size()) * n; }
};

// What the fields of a request are held against.
struct RequestLimits {
  SamplerOptions sampler;  // where a request says nothing
  int32_t vocab_size = 0;  // ids of logit_bias and of prompts are below it
};

struct TokenLogprob {
  struct Top {
    std::string bytes;
    double logprob = 0;
  };
  std::string bytes;              // of the token, UTF-8 or a part of it
  std::optional<double> logprob;  // none: the first token of a prompt, which follows nothing
  std::vector<Top> top = {};      // by falling probability
};

// Tokens of one answer.
struct Usage {
  uint64_t prompt = 0;
  uint64_t cached = 0;  // of the prompt: taken from a checkpoint
  uint64_t completion = 0;
  uint64_t reasoning = 0;  // of the completion
};

struct Timings {
  double queue_ms = 0, prefill_ms = 0, decode_ms = 0;
};

struct Progress {
  uint64_t done = 0, total = 0;  // tokens of the prompt
};

enum class FinishReason : uint8_t {
  kStop,        // the model ended its turn
  kStopString,  // Outcome::stop was found
  kLength,      // max_tokens, or the context is full
  kCancelled,   // nobody waits any more
};

struct Outcome {
  FinishReason reason = FinishReason::kStop;
  std::string stop = {};
  Usage usage = {};
  Timings timings = {};
};

// Names of one response. Everything that is written is a function of these and the events, so that a response can be tested byte for
// byte.
struct ResponseNames {
  std::string id;       // letters and digits, unique; each API puts its own prefix before it
  int64_t created = 0;  // seconds since 1970
  std::string model;
  std::string fingerprint = {};  // of engine and model
};

// Turns the events of a request's answers into the bytes of its response: each call returns what is to be sent now. For a stream
// these are whole SSE frames; else all is empty until End, which returns the whole body. Order: Begin, then for each choice Event and
// in the end Finish (choices in any order between each other), then End. Fail takes the place of all that has not come yet.
//
// KeepAlive may come anywhere before End or Fail. One thread at a time.
class ResponseWriter {
 public:
  virtual ~ResponseWriter() = default;
  // `usage`: what is known of the prompt.
  virtual std::string Begin(const Usage& usage) = 0;
  // kEnd is ignored. `tokens`: those whose text the event completes, if logprobs are wanted.
  virtual std::string Event(size_t choice, const AnswerEvent& event,
                            const std::vector<TokenLogprob>& tokens) = 0;
  virtual std::string Finish(size_t choice, const Outcome& outcome) = 0;
  virtual std::string End() = 0;
  virtual std::string Fail(const ApiError& error) = 0;
  // Bytes that mean nothing, but show that the server lives. Empty if there is no stream.
  virtual std::string KeepAlive(const Progress& progress) = 0;
};

}  // namespace glint::serve
