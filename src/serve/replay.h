// Prompts that begin with the very tokens that an earlier sequence had.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "glint/tokenizer.h"

namespace glint::serve {

// The same text can be cut into tokens in several ways, and a model does not always draw the one that encoding its text gives: rendered
// again, a conversation may differ in tokens from the sequence that the model has read and written, and whoever looks for that sequence
// (prefix caches) finds less of it. Gives `rendered` with the tokens of `history` in place of its own for as long as both say the same:
// stretches between marks (control tokens, those of reasoning and calls) are taken from one or the other as a whole, and marks have to be the
// same. What the prompt says is not changed, byte for byte, nor which of it is a mark.
std::vector<int32_t> WithHistory(const Tokenizer& tokenizer, std::span<const int32_t> history,
                                 std::vector<int32_t> rendered);

}  // namespace glint::serve
