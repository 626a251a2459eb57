// The loop of generation, shared by run and chat.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "glint/sampler.h"
#include "glint/session.h"

namespace glint::cli {

enum class StopReason : uint8_t { kStopToken, kMaxTokens, kContextFull, kInterrupted };
std::string_view Name(StopReason reason);  // "stop", "max_tokens", "context_full", "interrupted"

struct Generation {
  std::vector<int32_t> ids;  // without the stop id
  int32_t stop_id = -1;      // the id it stopped on, if reason is kStopToken
  StopReason reason = StopReason::kMaxTokens;
  int64_t prefilled = 0;  // tokens appended before the first was sampled
  double prefill_seconds = 0;
  int64_t decoded = 0;  // steps of one token
  double decode_seconds = 0;

  double PrefillRate() const {
    return prefill_seconds > 0 ? static_cast<double>(prefilled) / prefill_seconds : 0;
  }
  double DecodeRate() const { return decode_seconds > 0 ? static_cast<double>(decoded) / decode_seconds : 0; }
};

struct GenerateOptions {
  int64_t max_tokens = -1;  // -1: until a stop id or until the context is full
  std::span<const int32_t> stop_ids;
  std::string source;                    // of the model, for the error when its logits are no numbers
  std::function<Status()> after_prompt;  // called once the prompt is in the session; may be empty
};

// Appends `prompt` to the session (with a progress bar), then samples and appends until a stop id, max_tokens, a full context or
// Ctrl-C. `on_token` gets each id as it comes; its failure ends the loop and is returned. The last sampled id is not appended
// to the session: nobody needs the logits after it. After an interruption the session holds what had been appended.
Result<Generation> Generate(Session& session, Sampler& sampler, int64_t vocab_size,
                            std::span<const int32_t> prompt, const GenerateOptions& options,
                            const std::function<Status(int32_t id)>& on_token);

}  // namespace glint::cli
