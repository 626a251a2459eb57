// OpenAI's legacy completions: POST /v1/completions.
#pragma once
#include <memory>
#include <string_view>

#include "serve/generation.h"

namespace glint::serve {

// Prompts are texts or lists of ids. suffix, and best_of beyond n, are refused.
Parsed<GenerationRequest> ParseOpenAiCompletion(std::string_view body, const RequestLimits& limits);

// With `echo` the caller sends the prompt as the first text event of each choice.
std::unique_ptr<ResponseWriter> MakeOpenAiCompletionWriter(const GenerationRequest& request,
                                                           ResponseNames names);

}  // namespace glint::serve
