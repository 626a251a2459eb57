// Any bytes as the body of each API's request. What is accepted has to be within its ranges, and the error's body, if it is refused, must
// be JSON in UTF-8. Input: the body.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/json.h"
#include "serve/anthropic_messages.h"
#include "serve/api_error.h"
#include "serve/openai_chat.h"
#include "serve/openai_completions.h"
#include "serve/openai_responses.h"

namespace {

using glint::serve::ApiError;
using glint::serve::GenerationRequest;
using glint::serve::Parsed;

void Require(bool holds) {
  if (!holds) std::abort();
}

void Check(const Parsed<GenerationRequest>& parsed, bool needs_prompts) {
  if (const auto* error = std::get_if<ApiError>(&parsed)) {
    Require(error->status == 400 && !error->message.empty());
    Require(glint::ParseJson(glint::serve::OpenAiErrorBody(*error), "error").ok());
    Require(glint::ParseJson(glint::serve::AnthropicErrorBody(*error), "error").ok());
    return;
  }
  const auto& request = std::get<GenerationRequest>(parsed);
  Require(request.n >= 1 && request.n <= 128 && request.choices() <= 128 * 128);
  Require(request.prompts.empty() != needs_prompts);
  Require(needs_prompts || !request.messages.empty());
  Require(request.sampler.temperature >= 0 && request.sampler.top_p > 0 && request.sampler.min_p < 1 &&
          request.sampler.top_k >= 0);
  for (const auto& tool : request.chat.tools) Require(glint::ParseJson(tool, "tool").ok());
  for (const auto& text : request.stop) Require(!text.empty());
  for (const auto& [id, bias] : request.sampler.logit_bias) Require(id >= 0 && id < 100 && !std::isnan(bias));
}

// A request of the responses API, too, and what it says of itself; and its items read again, as a later response does.
void CheckResponses(std::string_view body, const glint::serve::RequestLimits& limits) {
  const auto parsed = glint::serve::ParseOpenAiResponses(body, limits, nullptr);
  if (const auto* error = std::get_if<ApiError>(&parsed)) {
    // A reference to an item that is kept nowhere.
    if (error->status != 404) Check(*error, false);
    return;
  }
  const auto& request = std::get<glint::serve::ResponsesRequest>(parsed);
  Check(request.generation, false);
  for (const auto& [key, json] : request.echo) Require(glint::ParseJson(json, key, {.depth = 72}).ok());
  for (const auto& item : request.input) {
    glint::serve::JsonOut out;
    glint::serve::WriteItem(item, out);
    const auto json = glint::ParseJson(out.Take(), "item", {.depth = 72});
    Require(json.ok());
    glint::serve::Trouble trouble;
    Require(glint::serve::ReadItem(*json, "item", trouble).has_value());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  glint::serve::RequestLimits limits;
  limits.vocab_size = 100;
  Check(glint::serve::ParseOpenAiChat(body, limits), false);
  Check(glint::serve::ParseOpenAiCompletion(body, limits), true);
  Check(glint::serve::ParseAnthropicMessages(body, limits), false);
  Check(glint::serve::ParseAnthropicCountTokens(body, limits), false);
  CheckResponses(body, limits);
  return 0;
}
