// What OpenAI's APIs share.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/fields.h"
#include "serve/generation.h"
#include "serve/json_out.h"

namespace glint::serve {

// model, temperature, top_p, top_k, min_p, the penalties, logit_bias, seed, stop.
void ReadOpenAiSampling(Fields& fields, Trouble& trouble, const RequestLimits& limits,
                        GenerationRequest& request);
// All these, n, stream, stream_options; and the fields of both APIs that say who asks and what may be kept, which have no effect.
void ReadOpenAiCommon(Fields& fields, Trouble& trouble, const RequestLimits& limits,
                      GenerationRequest& request);

// The model knows three efforts; "none" is a turn whose reasoning is closed before it begins.
std::optional<std::string> ReadEffort(Fields& fields, std::string_view key);
void SetEffort(std::string_view effort, GenerationRequest& request);

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
// {"token","logprob","bytes","top_logprobs"} of each, commas between them.
std::string LogprobEntries(const std::vector<TokenLogprob>& tokens);

// The outcomes of all choices as one: each prompt counts once, though it has `n` choices; times are the longest.
Outcome Together(const std::vector<Outcome>& choices, size_t n);

}  // namespace glint::serve
