// OpenAI's chat completions: POST /v1/chat/completions.
#pragma once
#include <memory>
#include <string_view>

#include "serve/generation.h"

namespace glint::serve {

// The whole body is checked, unknown fields are refused. Beyond OpenAI's own fields: top_k, min_p, repetition_penalty;
// chat_template_kwargs and thinking as the model's own API has them; reasoning_content (or reasoning) of assistant messages.
Parsed<GenerationRequest> ParseOpenAiChat(std::string_view body, const RequestLimits& limits);

// Reasoning comes as reasoning_content, timings as a member of their own beside the usage.
std::unique_ptr<ResponseWriter> MakeOpenAiChatWriter(const GenerationRequest& request, ResponseNames names);

}  // namespace glint::serve
