// Anthropic's messages: POST /v1/messages and /v1/messages/count_tokens.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "serve/generation.h"

namespace glint::serve {

// The whole body is checked, unknown fields are refused; cache_control is accepted wherever the API has it. Without `thinking` the
// model reasons as it does by default, and the response leaves it out; with type "disabled" it does not reason.
Parsed<GenerationRequest> ParseAnthropicMessages(std::string_view body, const RequestLimits& limits);
// The same but for max_tokens, which is not needed.
Parsed<GenerationRequest> ParseAnthropicCountTokens(std::string_view body, const RequestLimits& limits);
std::string AnthropicCountTokensBody(uint64_t tokens);

// A response that is no stream is best parsed without AnswerOptions::stream_arguments; of a broken call it keeps the text.
std::unique_ptr<ResponseWriter> MakeAnthropicMessagesWriter(const GenerationRequest& request,
                                                            ResponseNames names);

}  // namespace glint::serve
