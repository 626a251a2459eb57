// What a request's answers begin from, as token ids.
#pragma once
#include <cstdint>
#include <vector>

#include "glint/model.h"
#include "serve/generation.h"

namespace glint::serve {

// A conversation is one prompt; the completions API's prompts are as many as they are. Special tokens spelled in a person's text stay text.
// 400: the template or the tokenizer can't do it, or a prompt is empty.
Parsed<std::vector<std::vector<int32_t>>> EncodePrompts(const Model& model, const GenerationRequest& request);

}  // namespace glint::serve
