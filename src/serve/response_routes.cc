#include "serve/response_routes.h"

#include <fmt/core.h>

#include <utility>

#include "serve/api_error.h"
#include "serve/json_out.h"
#include "serve/openai_responses.h"

namespace glint::serve {
namespace {

using Store = std::shared_ptr<ResponseStore>;
using Log = std::function<void(const std::string& line)>;

void SendResult(const Call& call, Parsed<std::string> body) {
  if (const auto* error = std::get_if<ApiError>(&body))
    return SendError(*call.reply, ApiForm::kOpenAi, *error);
  SendJson(*call.reply, std::get<std::string>(std::move(body)));
}

Parsed<ResponsesRequest> Read(const Call& call, ResponseStore* store) {
  Parsed<ResponsesRequest> parsed = ParseOpenAiResponses(call.request.body, call.service->limits(), store);
  if (const auto* request = std::get_if<ResponsesRequest>(&parsed)) {
    const std::string& model = request->generation.model;
    if (!call.service->Serves(model)) return UnknownModel(model);
  }
  return parsed;
}

void Create(const Call& call, const Store& store, const Log& log) {
  Service& service = *call.service;
  Parsed<ResponsesRequest> parsed = Read(call, store.get());
  if (const auto* error = std::get_if<ApiError>(&parsed))
    return SendError(*call.reply, ApiForm::kOpenAi, *error);
  auto& request = std::get<ResponsesRequest>(parsed);
  Work work;
  work.request = request.generation;
  work.request.history = std::move(request.previous_tokens);
  work.endpoint = call.request.path;
  work.client = ClientOf(call.request);
  work.names = service.NewNames(work.request.model);
  work.names.id = NewResponseKey();
  KeepResponse keep;
  if (store != nullptr && request.store) {
    const auto tokens = std::make_shared<std::vector<int32_t>>();
    work.on_sequence = [tokens](std::vector<int32_t> sequence) { *tokens = std::move(sequence); };
    keep = [store, tokens, log](StoredResponse& response) {
      response.tokens = std::move(*tokens);
      const Status kept = store->Put(response);
      if (!kept.ok() && log) log(fmt::format("the response {} is not kept: {}", response.id, kept.message()));
      return kept.ok();
    };
  }
  work.writer = MakeOpenAiResponsesWriter(std::move(request), work.names, std::move(keep));
  work.reply = call.reply;
  const Parsed<uint64_t> taken = service.Run(std::move(work));
  if (const auto* error = std::get_if<ApiError>(&taken)) SendError(*call.reply, ApiForm::kOpenAi, *error);
}

void CountTokens(const Call& call, const Store& store) {
  Parsed<ResponsesRequest> parsed = Read(call, store.get());
  if (auto* error = std::get_if<ApiError>(&parsed)) return SendResult(call, std::move(*error));
  auto& request = std::get<ResponsesRequest>(parsed);
  request.generation.history = std::move(request.previous_tokens);
  auto prompts = call.service->Prompts(request.generation);
  if (auto* error = std::get_if<ApiError>(&prompts)) return SendResult(call, std::move(*error));
  JsonOut out;
  out.Begin('{').String("object", "response.input_tokens");
  out.Integer("input_tokens", uint64_t{std::get<0>(prompts).at(0).size()}).End('}');
  SendJson(*call.reply, out.Take());
}

}  // namespace

void AddResponseRoutes(Endpoints& endpoints, std::shared_ptr<ResponseStore> store,
                       std::function<void(const std::string& line)> log) {
  const Store& s = store;
  endpoints.Add({"POST", "/v1/responses", true, [s, log](const Call& call) { Create(call, s, log); }});
  endpoints.Add(
      {"POST", "/v1/responses/input_tokens", true, [s](const Call& call) { CountTokens(call, s); }});
  // What is kept is there while the model loads, too.
  endpoints.Add({"GET", "/v1/responses/{}", false, [s](const Call& call) {
                   SendResult(call, OpenAiResponseBody(s.get(), call.parts.at(0), call.request.query));
                 }});
  endpoints.Add({"DELETE", "/v1/responses/{}", false, [s](const Call& call) {
                   SendResult(call, OpenAiDeleteResponse(s.get(), call.parts.at(0)));
                 }});
  endpoints.Add({"GET", "/v1/responses/{}/input_items", false, [s](const Call& call) {
                   SendResult(call, OpenAiInputItems(s.get(), call.parts.at(0), call.request.query));
                 }});
  endpoints.Add({"POST", "/v1/responses/{}/cancel", false, [s](const Call& call) {
                   SendResult(call, OpenAiCancelResponse(s.get(), call.parts.at(0)));
                 }});
}

}  // namespace glint::serve
