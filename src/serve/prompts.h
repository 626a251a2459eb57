// What a request's answers begin from, as token ids.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "glint/model.h"
#include "serve/generation.h"
#include "serve/prefix_cache.h"
#include "serve/sampled_turns.h"

namespace glint::serve {

// A conversation is one prompt; the completions API's prompts are as many as they are. Special tokens spelled in a person's text stay text.
// turns: null, or what the model sampled earlier: a turn that a client sends back becomes the same tokens again.
// 400: the template or the tokenizer can't do it, or a prompt is empty.
Parsed<std::vector<std::vector<int32_t>>> EncodePrompts(const Model& model, const GenerationRequest& request,
                                                        SampledTurns* turns = nullptr);

// Places of a prompt at which it pays to keep it: where the first turn begins, since other conversations have the system prompt and the
// tools before it as well; and where the last turn of the user's begins, for who edits it. None without a tokenizer.
std::vector<PrefixCache::Position> PlacesToKeep(const Model& model, std::span<const int32_t> prompt);

}  // namespace glint::serve
