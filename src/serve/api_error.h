// Errors in the form that each API's clients look for.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "glint/status.h"
#include "serve/generation.h"

namespace glint::serve {

// {"error":{"message","type","param","code"}}
std::string OpenAiErrorBody(const ApiError& error);
// {"type":"error","error":{"type","message"},"request_id"}; request_id null if empty.
std::string AnthropicErrorBody(const ApiError& error, std::string_view request_id = {});

// Errors that are found after a request was read, for both APIs.
ApiError UnknownModel(std::string_view model);
// `prompt` tokens and `wanted` new ones do not fit in `context`; both APIs' wordings, since clients look for them to shorten a
// conversation.
ApiError OpenAiContextOverflow(uint64_t prompt, uint64_t wanted, uint64_t context);
ApiError AnthropicContextOverflow(uint64_t prompt, uint64_t wanted, uint64_t context);
ApiError Overloaded(uint32_t retry_after_s);
// What the engine, the template or the grammar said: what the caller did wrong is 400, all else 500.
ApiError FromStatus(const Status& status, std::string_view param = {});

}  // namespace glint::serve
