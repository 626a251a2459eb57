// OpenAI's responses: POST /v1/responses, and what is asked of those that are kept.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "serve/generation.h"
#include "serve/response_items.h"
#include "serve/response_store.h"

namespace glint::serve {

struct ResponsesRequest {
  GenerationRequest
      generation;        // messages: the instructions, the conversation that it goes on from, its input
  bool store = true;     // whether the response is kept
  std::string previous;  // id of the response that it goes on from; empty: none
  // Of `previous`: its items, as a JSON array, and its tokens, if they were kept; the messages after the first `old_messages` are what
  // this request adds to them. (Instructions hold for one response: with tokens, the caller has to see that the prompt begins so.)
  std::string before = "[]";
  std::vector<int32_t> previous_tokens;
  size_t old_messages = 0;
  std::vector<ResponseItem> input;  // its own
  // What the response says of its request, in order: members and their JSON.
  std::vector<std::pair<std::string, std::string>> echo;
  bool reasoning_as_summary = false;  // the client asked for summaries: the reasoning stands where one would
  bool sealed_reasoning = false;      // include has reasoning.encrypted_content
};

// The whole body is checked, unknown fields are refused, and so are tools that run on the server. Beyond OpenAI's own fields: top_k,
// min_p, repetition_penalty, presence_penalty, frequency_penalty, seed, stop, logit_bias. `store` may be null: then nothing is kept,
// and no id names anything.
Parsed<ResponsesRequest> ParseOpenAiResponses(std::string_view body, const RequestLimits& limits,
                                              ResponseStore* store);

// Is given the response when it is complete, before the client hears so, and says whether it is kept. `tokens` are the caller's to add.
// Responses that fail, or that nobody waited for, are not offered.
using KeepResponse = std::function<bool(StoredResponse& response)>;

// Streams have OpenAI's named events. `keep` empty: nothing is kept. `names.id`: letters and digits; should be NewResponseKey().
std::unique_ptr<ResponseWriter> MakeOpenAiResponsesWriter(ResponsesRequest request, ResponseNames names,
                                                          KeepResponse keep);

// What is asked of responses that are kept. `query`: pairs as they came. `store` may be null.
using QueryPairs = std::vector<std::pair<std::string, std::string>>;
Parsed<std::string> OpenAiResponseBody(ResponseStore* store, std::string_view id, const QueryPairs& query);
Parsed<std::string> OpenAiDeleteResponse(ResponseStore* store, std::string_view id);
// A page: limit (1 to 100, else 20), order (asc, else desc), after (an item's id).
Parsed<std::string> OpenAiInputItems(ResponseStore* store, std::string_view id, const QueryPairs& query);
// Always an error: no response runs that a client doesn't wait for.
ApiError OpenAiCancelResponse(ResponseStore* store, std::string_view id);

}  // namespace glint::serve
