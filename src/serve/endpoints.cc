#include "serve/endpoints.h"

#include <fmt/core.h>

#include <algorithm>
#include <ctime>
#include <optional>
#include <utility>

#include "base/hash.h"
#include "base/json.h"
#include "serve/anthropic_messages.h"
#include "serve/api_error.h"
#include "serve/json_out.h"
#include "serve/openai_chat.h"
#include "serve/openai_completions.h"
#include "serve/page.h"

namespace glint::serve {
namespace {

// Adds headers to whatever answer is given.
class WithHeaders final : public Reply {
 public:
  WithHeaders(std::shared_ptr<Reply> reply, HttpHeaders headers)
      : reply_(std::move(reply)), headers_(std::move(headers)) {}
  void Send(int status, HttpHeaders headers, std::string body) override {
    reply_->Send(status, All(std::move(headers)), std::move(body));
  }
  bool Start(int status, HttpHeaders headers) override {
    return reply_->Start(status, All(std::move(headers)));
  }
  bool Write(std::string_view piece) override { return reply_->Write(piece); }
  void Finish() override { reply_->Finish(); }
  size_t Backlog() const override { return reply_->Backlog(); }
  bool Gone() const override { return reply_->Gone(); }
  void OnGone(std::function<void()> callback) override { reply_->OnGone(std::move(callback)); }

 private:
  HttpHeaders All(HttpHeaders headers) const {
    headers.insert(headers.end(), headers_.begin(), headers_.end());
    return headers;
  }
  const std::shared_ptr<Reply> reply_;
  const HttpHeaders headers_;
};

// Tells of the answer when it is whole, or when nobody can add to it any more.
class Watched final : public Reply {
 public:
  Watched(std::shared_ptr<Reply> reply, const HttpRequest& request, const std::string& id,
          const std::function<void(const HttpAnswered&)>& tell)
      : reply_(std::move(reply)), tell_(tell) {
    answer_.id = id;
    answer_.method = request.method, answer_.path = request.path, answer_.peer = request.peer;
  }
  ~Watched() override { Tell(); }
  void SetRoute(std::string_view route) { answer_.route = route; }  // before the handler runs

  void Send(int status, HttpHeaders headers, std::string body) override {
    int none = 0;
    if (status_.compare_exchange_strong(none, status) && status >= 400) answer_.error = ErrorMessage(body);
    reply_->Send(status, std::move(headers), std::move(body));
    Tell();
  }
  bool Start(int status, HttpHeaders headers) override {
    int none = 0;
    status_.compare_exchange_strong(none, status);
    return reply_->Start(status, std::move(headers));
  }
  bool Write(std::string_view piece) override { return reply_->Write(piece); }
  void Finish() override {
    reply_->Finish();
    Tell();
  }
  size_t Backlog() const override { return reply_->Backlog(); }
  bool Gone() const override { return reply_->Gone(); }
  void OnGone(std::function<void()> callback) override { reply_->OnGone(std::move(callback)); }

 private:
  static std::string ErrorMessage(const std::string& body) {
    if (body.size() > 10'000) return {};
    const auto json = ParseJson(body, "an error");
    const auto message = json.ok() ? json->Get<std::string>("error.message") : json.status();
    return message.ok() ? *message : std::string();
  }
  void Tell() {
    if (told_.exchange(true)) return;
    answer_.status = status_ != 0 ? status_.load() : reply_->Gone() ? 499 : 500;
    answer_.seconds = std::chrono::duration<double>(Clock::now() - began_).count();
    tell_(answer_);
  }

  const std::shared_ptr<Reply> reply_;
  const std::function<void(const HttpAnswered&)>& tell_;
  const Clock::time_point began_ = Clock::now();
  HttpAnswered answer_;
  std::atomic<int> status_{0};
  std::atomic<bool> told_{false};
};

std::vector<std::string_view> Segments(std::string_view path) {
  std::vector<std::string_view> segments;
  for (size_t at = 1; at <= path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    segments.push_back(path.substr(at, end - at));
    at = end + 1;
  }
  return segments;
}

bool Matches(std::string_view pattern, std::string_view path, std::vector<std::string>& parts) {
  const auto wanted = Segments(pattern), given = Segments(path);
  parts.clear();
  if (wanted.size() != given.size()) return false;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] == "{}") {
      parts.emplace_back(given[i]);
    } else if (wanted[i] != given[i]) {
      return false;
    }
  }
  return true;
}

// One of the APIs: how its requests are read and its responses written.
struct Api {
  Parsed<GenerationRequest> (*parse)(std::string_view body, const RequestLimits& limits);
  std::unique_ptr<ResponseWriter> (*writer)(const GenerationRequest& request, ResponseNames names);
};

std::string ErrorBody(ApiForm form, const ApiError& error, std::string_view request_id) {
  return form == ApiForm::kAnthropic ? AnthropicErrorBody(error, request_id) : OpenAiErrorBody(error);
}

void Generate(const Api& api, const Call& call) {
  Service& service = *call.service;
  Parsed<GenerationRequest> parsed = api.parse(call.request.body, service.limits());
  if (const auto* error = std::get_if<ApiError>(&parsed)) return SendError(call, *error);
  Work work;
  work.request = std::get<GenerationRequest>(std::move(parsed));
  if (!service.Serves(work.request.model)) return SendError(call, UnknownModel(work.request.model));
  work.form = call.form;
  work.endpoint = call.request.path;
  work.client = ClientOf(call.request);
  work.names = service.NewNames(work.request.model);
  work.names.id = call.id;
  work.writer = api.writer(work.request, work.names);
  work.reply = call.reply;
  const Parsed<uint64_t> taken = service.Run(std::move(work));
  if (const auto* error = std::get_if<ApiError>(&taken)) SendError(call, *error);
}

void CountTokens(const Call& call) {
  const Parsed<GenerationRequest> parsed =
      ParseAnthropicCountTokens(call.request.body, call.service->limits());
  if (const auto* error = std::get_if<ApiError>(&parsed)) return SendError(call, *error);
  const auto& request = std::get<GenerationRequest>(parsed);
  if (!call.service->Serves(request.model)) return SendError(call, UnknownModel(request.model));
  const auto prompts = call.service->Prompts(request);
  if (const auto* error = std::get_if<ApiError>(&prompts)) return SendError(call, *error);
  uint64_t tokens = 0;
  for (const auto& prompt : std::get<0>(prompts)) tokens += prompt.size();
  SendJson(*call.reply, AnthropicCountTokensBody(tokens));
}

// "2026-11-30T22:00:00Z"
std::string Rfc3339(int64_t seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm utc{};
  gmtime_r(&time, &utc);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc)};
}

// As both APIs describe a model; each client skips what it does not know.
void WriteModel(const Service& service, std::string_view id, ApiForm form, JsonOut& out) {
  const int64_t context = service.options().scheduler.context;
  out.Begin('{').String("id", id);
  if (form == ApiForm::kAnthropic) {
    out.String("type", "model").String("display_name", id).String("created_at", Rfc3339(service.created()));
    out.String("lifecycle", "active").Integer("max_input_tokens", context).Integer("max_tokens", context);
  } else {
    out.String("object", "model").Integer("created", service.created()).String("owned_by", "glint");
    out.Integer("max_model_len", context);  // vLLM's name, which clients look for to know how much fits
  }
  out.End('}');
}

void ListModels(const Call& call) {
  std::vector<std::string> ids{call.service->model_id()};
  for (const std::string& alias : call.service->options().aliases) ids.push_back(alias);
  JsonOut out;
  out.Begin('{');
  if (call.form == ApiForm::kOpenAi) out.String("object", "list");
  out.Key("data").Begin('[');
  for (const std::string& id : ids) WriteModel(*call.service, id, call.form, out);
  out.End(']');
  if (call.form == ApiForm::kAnthropic)
    out.Key("has_more").Bool(false).String("first_id", ids.front()).String("last_id", ids.back());
  SendJson(*call.reply, out.End('}').Take());
}

void ShowModel(const Call& call) {
  const std::string& id = call.parts.at(0);
  if (!call.service->Serves(id)) return SendError(call, UnknownModel(id));
  JsonOut out;
  WriteModel(*call.service, id, call.form, out);
  SendJson(*call.reply, out.Take());
}

}  // namespace

ApiForm FormOf(const HttpRequest& request) {
  const bool anthropic = request.path == "/v1/messages" || request.path.starts_with("/v1/messages/") ||
                         request.HasHeader("anthropic-version");
  return anthropic ? ApiForm::kAnthropic : ApiForm::kOpenAi;
}

void SendJson(Reply& reply, std::string body, int status) {
  reply.Send(status, {{"Content-Type", "application/json"}}, std::move(body));
}

void SendError(Reply& reply, ApiForm form, const ApiError& error, std::string_view request_id) {
  HttpHeaders headers{{"Content-Type", "application/json"}};
  if (error.retry_after_s > 0) headers.emplace_back("Retry-After", std::to_string(error.retry_after_s));
  reply.Send(error.status, std::move(headers), ErrorBody(form, error, request_id));
}

void SendError(const Call& call, const ApiError& error) {
  SendError(*call.reply, call.form, error, "req_" + call.id);
}

std::string ClientOf(const HttpRequest& request) {
  // Of this process alone, so that what stands in logs says nothing of the key.
  static const std::string salt = RandomName();
  const std::string_view key =
      request.HasHeader("authorization") ? request.Header("authorization") : request.Header("x-api-key");
  const std::string address = request.peer.substr(0, request.peer.rfind(':'));
  if (key.empty()) return address;
  Hasher hasher;
  hasher.AddText(salt);
  hasher.AddText(key);
  return fmt::format("{} {:08x}", address, static_cast<uint32_t>(hasher.Value().low));
}

Endpoints::Endpoints(EndpointOptions options) : options_(std::move(options)) { AddOwnRoutes(); }

void Endpoints::Add(Route route) { routes_.push_back(std::move(route)); }

void Endpoints::AddOwnRoutes() {
  const auto add_api = [this](std::string path, Api api) {
    Add({"POST", std::move(path), true, [api](const Call& call) { Generate(api, call); }});
  };
  Add({"GET", "/health", false, [this](const Call& call) { Health(call); }});
  Add({"GET", "/", false, [](const Call& call) { SendPage(call.request, *call.reply); }});
  add_api("/v1/chat/completions", {ParseOpenAiChat, MakeOpenAiChatWriter});
  add_api("/v1/completions", {ParseOpenAiCompletion, MakeOpenAiCompletionWriter});
  add_api("/v1/messages", {ParseAnthropicMessages, MakeAnthropicMessagesWriter});
  Add({"POST", "/v1/messages/count_tokens", true, CountTokens});
  Add({"GET", "/v1/models", true, ListModels});
  Add({"GET", "/v1/models/{}", true, ShowModel});
}

std::shared_ptr<Service> Endpoints::service() const {
  const std::lock_guard lock(mutex_);
  return service_;
}

void Endpoints::SetLoading(uint64_t done, uint64_t total) { loaded_ = done, to_load_ = total; }

void Endpoints::SetService(std::shared_ptr<Service> service) {
  const std::lock_guard lock(mutex_);
  ending_ = service == nullptr;
  service_ = std::move(service);
}

ApiError Endpoints::WhyNot() const {
  const std::lock_guard lock(mutex_);
  if (ending_) return {503, "The server is ending.", "", "", 1};
  const uint64_t total = to_load_.load();
  std::string how_far = total > 0 ? fmt::format(": {} % are there", loaded_.load() * 100 / total) : "";
  return {503, fmt::format("The model is loading{}.", how_far), "", "", 1};
}

void Endpoints::Health(const Call& call) const {
  bool ending = false;
  {
    const std::lock_guard lock(mutex_);
    ending = ending_;
  }
  const bool ready = call.service != nullptr;
  JsonOut out;
  out.Begin('{').String("status", ready ? "ok" : ending ? "ending" : "loading");
  if (ready) {
    const SchedulerStats stats = call.service->stats();
    out.String("model", call.service->model_id());
    out.Integer("running", stats.running).Integer("waiting", stats.waiting);
  } else if (!ending) {
    out.Key("progress").Begin('{').Integer("done", loaded_.load()).Integer("total", to_load_.load()).End('}');
  }
  SendJson(*call.reply, out.End('}').Take(), ready ? 200 : 503);
}

void Endpoints::Handle(const HttpRequest& request, std::shared_ptr<Reply> reply) const {
  std::string id = RandomName();
  // Each under the name that one of the APIs' clients looks for.
  HttpHeaders headers{{"x-request-id", "req_" + id}, {"request-id", "req_" + id}};
  if (!options_.cors_origin.empty()) {
    headers.emplace_back("Access-Control-Allow-Origin", options_.cors_origin);
    headers.emplace_back("Access-Control-Expose-Headers", "*");
    headers.emplace_back("Vary", "Origin");
  }
  reply = std::make_shared<WithHeaders>(std::move(reply), std::move(headers));
  Watched* watched = nullptr;
  if (options_.answered) {
    auto wrapped = std::make_shared<Watched>(std::move(reply), request, id, options_.answered);
    watched = wrapped.get();
    reply = std::move(wrapped);
  }
  Call call{request, std::move(reply), {}, service(), FormOf(request), std::move(id)};
  if (const auto why = WhyRefused(options_.guard, request, options_.cors_origin);
      why && request.path != "/health")
    return SendError(call, {403, *why, "", "origin_not_allowed"});
  std::string allowed;
  for (const Route& route : routes_) {
    std::vector<std::string> parts;
    if (!Matches(route.pattern, request.path, parts)) continue;
    allowed += (allowed.empty() ? "" : ", ") + route.method;
    if (watched != nullptr) watched->SetRoute(route.pattern);
    if (request.method != route.method && !(request.method == "HEAD" && route.method == "GET")) continue;
    if (route.needs_service && call.service == nullptr) return SendError(call, WhyNot());
    call.parts = std::move(parts);
    return route.handle(call);
  }
  if (allowed.empty()) {
    return SendError(call, {404, fmt::format("There is nothing at {} {}.", request.method, request.path), "",
                            "not_found"});
  }
  if (request.method == "OPTIONS") {
    HttpHeaders says{{"Allow", allowed + ", OPTIONS"}};
    if (!options_.cors_origin.empty()) {
      says.emplace_back("Access-Control-Allow-Methods", allowed);
      says.emplace_back("Access-Control-Allow-Headers", "*, Authorization");
      says.emplace_back("Access-Control-Max-Age", "600");
    }
    return call.reply->Send(204, std::move(says), "");
  }
  const ApiError error{405,
                       fmt::format("{} is not allowed at {}: {} is.", request.method, request.path, allowed),
                       "", "method_not_allowed"};
  call.reply->Send(405, {{"Content-Type", "application/json"}, {"Allow", allowed}},
                   ErrorBody(call.form, error, "req_" + call.id));
}

}  // namespace glint::serve
