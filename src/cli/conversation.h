// A conversation and the session that holds as much of it as is still right.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "glint/session.h"
#include "glint/tokenizer.h"

namespace glint::cli {

Message MakeMessage(Role role, std::string content, std::string reasoning = "");
ChatOptions WithEffort(const std::string& effort);  // "" is the template's default

// How to bring a session to a rendered conversation: keep its first `keep` tokens, then append `append`.
struct Continuation {
  int64_t keep = 0;
  std::vector<int32_t> append;
};

// The cheapest right way:
//   - the session's tokens are a prefix of the conversation's: append the rest;
//   - they are not, but what they spell is a prefix of the rendered text up to where a special token begins (a model may spell a
//     word by other tokens than the tokenizer would): append the rest of the parts;
//   - else keep the longest common prefix that ends at a position of `rewindable`; keep = 0 means start afresh.
// At least one token is always appended, so that there are logits to sample from.
Result<Continuation> PlanContinuation(const Tokenizer& tokenizer, std::span<const ChatPart> parts,
                                      std::span<const int32_t> session_tokens,
                                      std::span<const int64_t> rewindable);

// Takes the session back to its first `keep` tokens, which PlanContinuation chose.
Status TakeBack(Session& session, int64_t keep);

// Longest common prefix of two lists.
size_t CommonPrefix(std::span<const int32_t> a, std::span<const int32_t> b);

}  // namespace glint::cli
