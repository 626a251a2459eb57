// What chat completions and legacy completions share.
#pragma once
#include <string>
#include <vector>

#include "serve/fields.h"
#include "serve/generation.h"
#include "serve/json_out.h"

namespace glint::serve {

// temperature, top_p, top_k, min_p, the penalties, logit_bias, seed, stop, n, stream, stream_options; and the fields of both APIs that
// say who asks and what may be kept, which have no effect.
void ReadOpenAiCommon(Fields& fields, Trouble& trouble, const RequestLimits& limits,
                      GenerationRequest& request);

// One SSE frame without a name.
std::string DataFrame(std::string_view json);
inline constexpr std::string_view kDoneFrame = "data: [DONE]\n\n";
// A comment, which clients skip.
std::string CommentFrame(const Progress& progress);
std::string OpenAiErrorFrames(const ApiError& error);

void WriteUsage(const Usage& usage, JsonOut& out);
void WriteTimings(const Outcome& outcome, JsonOut& out);
// A probability of 0 has a logarithm that JSON can't say: -9999, as the API does.
double ClampLogprob(double logprob);

// The outcomes of all choices as one: each prompt counts once, though it has `n` choices; times are the longest.
Outcome Together(const std::vector<Outcome>& choices, size_t n);

}  // namespace glint::serve
