#include "serve/own_endpoints.h"

#include <fmt/core.h>

#include <future>
#include <limits>
#include <mutex>
#include <utility>

#include "base/json.h"
#include "serve/api_error.h"
#include "serve/cache_metrics.h"
#include "serve/fields.h"
#include "serve/json_out.h"
#include "serve/openai_chat.h"
#include "serve/openai_completions.h"

namespace glint::serve {
namespace {

using Ids = std::vector<int32_t>;

void Refuse(const Call& call, const ApiError& error) { SendError(call, error); }
ApiError ErrorOf(const Status& status) {
  ApiError error = FromStatus(status);
  if (status.code() == Code::kNotFound) error.status = 404, error.code = "not_found";
  return error;
}
void Refuse(const Call& call, const Status& status) { Refuse(call, ErrorOf(status)); }

// Of endpoints that are about text.
bool HasTokenizer(const Call& call) {
  if (call.service->model().has_tokenizer()) return true;
  Refuse(call, ApiError{400, "This model has no tokenizer.", "", "unsupported_value"});
  return false;
}

std::string Metrics(const OwnEndpoints& own, const Call& call) {
  PrometheusText page;
  WriteBuild(own.version, call.service != nullptr ? call.service->model_id() : "", page);
  WriteProcess(page);
  page.One("glint_ready", MetricType::kGauge,
           "1 if requests are answered, 0 while the model loads or the server ends.",
           uint64_t{call.service != nullptr});
  if (own.http) WriteHttp(own.http(), page);
  if (call.service != nullptr) {
    WriteScheduler(call.service->stats(), page);
    if (const PrefixCache* cache = call.service->cache()) WriteCache(cache->stats(), page);
  }
  if (own.requests != nullptr) own.requests->Write(page);
  if (own.log != nullptr) {
    const LogCounters log = own.log->Counters();
    page.One("glint_log_events_total", MetricType::kCounter, "Events written to the log.", log.written);
    page.One("glint_log_dropped_events_total", MetricType::kCounter,
             "Events that the log lost: its disk was full, or nobody read it.", log.dropped);
  }
  return page.Take();
}

// {"content": text, "parse_special": false, "with_pieces": false}; the names are llama.cpp's.
void Tokenize(const Call& call) {
  if (!HasTokenizer(call)) return;
  const Parsed<Json> root = ParseBody(call.request.body, Dialect::kOpenAi);
  if (const auto* error = std::get_if<ApiError>(&root)) return Refuse(call, *error);
  Trouble trouble;
  Fields fields(trouble, std::get<Json>(root), "");
  const std::string content = fields.RequireString("content").value_or("");
  const bool special = fields.Bool("parse_special").value_or(false),
             pieces = fields.Bool("with_pieces").value_or(false);
  fields.Ignore({"model"});
  fields.RefuseOthers();
  if (!trouble.ok()) return Refuse(call, *trouble.error);
  const Tokenizer& tokenizer = call.service->model().tokenizer();
  const Ids ids = tokenizer.Encode(content, special);
  JsonOut out;
  out.Begin('{').Integer("count", uint64_t{ids.size()}).Key("tokens").Begin('[');
  for (const int32_t id : ids) {
    if (pieces) {
      out.Begin('{').Integer("id", int64_t{id}).String("piece", ToUtf8(*tokenizer.Decode({&id, 1}))).End('}');
    } else {
      out.Integer(id);
    }
  }
  SendJson(*call.reply, out.End(']').End('}').Take());
}

// An array of ids below `vocab`.
Ids ReadIds(const Json& list, int64_t vocab, std::string_view path, Trouble& trouble) {
  Ids ids;
  for (size_t i = 0; i < list.items().size() && trouble.ok(); ++i) {
    const auto id = list.items()[i].Get<int64_t>("");
    if (!id.ok() || *id < 0 || *id >= vocab) {
      trouble.Say(trouble.Item(path, i), fmt::format("Token ids are whole numbers from 0 to {}.", vocab - 1),
                  "invalid_value");
    } else {
      ids.push_back(static_cast<int32_t>(*id));
    }
  }
  return ids;
}

// {"tokens": [ids]} -> {"content": text}
void Detokenize(const Call& call) {
  if (!HasTokenizer(call)) return;
  const Parsed<Json> root = ParseBody(call.request.body, Dialect::kOpenAi);
  if (const auto* error = std::get_if<ApiError>(&root)) return Refuse(call, *error);
  Trouble trouble;
  Fields fields(trouble, std::get<Json>(root), "");
  const Json* list = fields.Array("tokens");
  if (list == nullptr && trouble.ok()) trouble.Missing("tokens");
  const Tokenizer& tokenizer = call.service->model().tokenizer();
  const Ids ids = list != nullptr ? ReadIds(*list, tokenizer.size(), "tokens", trouble) : Ids();
  fields.Ignore({"model"});
  fields.RefuseOthers();
  if (!trouble.ok()) return Refuse(call, *trouble.error);
  const auto text = tokenizer.Decode(ids);
  if (!text.ok()) return Refuse(call, text.status());
  SendJson(*call.reply, JsonOut().Begin('{').String("content", ToUtf8(*text)).End('}').Take());
}

// The body of a chat completion, or of a completion where it has a prompt; the model may be left out.
Parsed<GenerationRequest> ReadRequest(const Call& call) {
  Parsed<Json> root = ParseBody(call.request.body, Dialect::kOpenAi);
  if (auto* error = std::get_if<ApiError>(&root)) return std::move(*error);
  auto members = std::get<Json>(root).members();
  const Json& object = std::get<Json>(root);
  if (object.Find("model") == nullptr)
    members.push_back({"model", Json(Json::Data(call.service->model_id()))});
  const std::string body = ToText(Json(Json::Data(std::move(members))));
  const RequestLimits& limits = call.service->limits();
  Parsed<GenerationRequest> parsed =
      object.Find("prompt") != nullptr ? ParseOpenAiCompletion(body, limits) : ParseOpenAiChat(body, limits);
  const auto* request = std::get_if<GenerationRequest>(&parsed);
  if (request != nullptr && !call.service->Serves(request->model)) return UnknownModel(request->model);
  return parsed;
}

Parsed<Ids> OnePrompt(const Call& call, const GenerationRequest& request) {
  auto prompts = call.service->Prompts(request);
  if (auto* error = std::get_if<ApiError>(&prompts)) return std::move(*error);
  auto& all = std::get<0>(prompts);
  if (all.size() != 1) return ApiError{400, "One prompt at a time.", "prompt", "invalid_value"};
  return std::move(all.front());
}

// A chat's body -> {"prompt": what the model reads, "tokens": [ids], "count"}
void ApplyTemplate(const Call& call) {
  if (!HasTokenizer(call)) return;
  const Parsed<GenerationRequest> parsed = ReadRequest(call);
  if (const auto* error = std::get_if<ApiError>(&parsed)) return Refuse(call, *error);
  const Parsed<Ids> prompt = OnePrompt(call, std::get<GenerationRequest>(parsed));
  if (const auto* error = std::get_if<ApiError>(&prompt)) return Refuse(call, *error);
  const Ids& ids = std::get<Ids>(prompt);
  const auto text = call.service->model().tokenizer().Decode(ids);
  if (!text.ok()) return Refuse(call, text.status());
  JsonOut out;
  out.Begin('{')
      .String("prompt", ToUtf8(*text))
      .Integer("count", uint64_t{ids.size()})
      .Key("tokens")
      .Begin('[');
  for (const int32_t id : ids) out.Integer(id);
  SendJson(*call.reply, out.End(']').End('}').Take());
}

void WriteSession(const NamedSession& s, JsonOut& out) {
  out.Begin('{').String("object", "session").String("name", s.name).Integer("tokens", s.tokens);
  out.Integer("bytes", s.bytes).Integer("modified", s.modified).End('}');
}

// Sequences kept by name. What is saved is made by the scheduler, among the answers that it makes at the same time.
class SessionRoutes {
 public:
  explicit SessionRoutes(const OwnEndpoints& own) : own_(own) {}

  void List(const Call& call) {
    if (!Has(call)) return;
    const auto all = own_.sessions->List();
    if (!all.ok()) return Refuse(call, all.status());
    JsonOut out;
    out.Begin('{').String("object", "list").Key("data").Begin('[');
    for (const NamedSession& s : *all) WriteSession(s, out);
    SendJson(*call.reply, out.End(']').End('}').Take());
  }

  // With ?ids=1 the tokens too.
  void Show(const Call& call) {
    if (!Has(call)) return;
    const auto found = own_.sessions->Find(call.parts.at(0));
    if (!found.ok()) return Refuse(call, found.status());
    if (call.request.Query("ids") != "1") return Send(call, *found);
    const auto ids = own_.sessions->Tokens(call.parts.at(0));
    if (!ids.ok()) return Refuse(call, ids.status());
    JsonOut out;
    out.Begin('{').String("name", found->name).Key("ids").Begin('[');
    for (const int32_t id : *ids) out.Integer(id);
    SendJson(*call.reply, out.End(']').End('}').Take());
  }

  void Save(const Call& call) {
    if (!Has(call) || !GoodName(call, call.parts.at(0), "name")) return;
    const Parsed<GenerationRequest> parsed = ReadRequest(call);
    if (const auto* error = std::get_if<ApiError>(&parsed)) return Refuse(call, *error);
    Parsed<Ids> prompt = OnePrompt(call, std::get<GenerationRequest>(parsed));
    if (const auto* error = std::get_if<ApiError>(&prompt)) return Refuse(call, *error);
    Make(call, std::get<Ids>(std::move(prompt)), call.parts.at(0));
  }

  // {"name": the new one's, "at": how many of its tokens; without it all}
  void Fork(const Call& call) {
    if (!Has(call)) return;
    const Parsed<Json> root = ParseBody(call.request.body, Dialect::kOpenAi);
    if (const auto* error = std::get_if<ApiError>(&root)) return Refuse(call, *error);
    auto ids = own_.sessions->Tokens(call.parts.at(0));
    if (!ids.ok()) return Refuse(call, ids.status());
    Trouble trouble;
    Fields fields(trouble, std::get<Json>(root), "");
    const std::string name = fields.RequireString("name").value_or("");
    const auto at = fields.Integer("at", 1, static_cast<int64_t>(ids->size()));
    fields.RefuseOthers();
    if (!trouble.ok()) return Refuse(call, *trouble.error);
    if (!GoodName(call, name, "name")) return;
    if (at) ids->resize(static_cast<size_t>(*at));
    Make(call, *std::move(ids), name);
  }

  void Restore(const Call& call) {
    if (!Has(call)) return;
    const auto found = own_.sessions->Find(call.parts.at(0));
    if (!found.ok()) return Refuse(call, found.status());
    PrefixCache* const cache = call.service->cache();
    if (cache == nullptr) {
      return Refuse(
          call,
          ApiError{501,
                   "This server keeps no prefixes, so that no request could go on from a restored session.",
                   "", "unsupported"});
    }
    {
      const std::unique_lock lock(one_at_a_time_, std::try_to_lock);
      if (!lock.owns_lock()) return Refuse(call, Overloaded(1));
      const auto session =
          own_.sessions->Load(call.service->model(), found->name, call.service->options().scheduler.context);
      if (!session.ok()) return Refuse(call, session.status());
      cache->Keep(*session, CacheKind::kEnd);
    }
    Send(call, *found);
  }

  void Delete(const Call& call) {
    if (!Has(call)) return;
    const Status removed = own_.sessions->Remove(call.parts.at(0));
    if (!removed.ok()) return Refuse(call, removed);
    SendJson(*call.reply,
             JsonOut().Begin('{').String("name", call.parts.at(0)).Key("deleted").Bool(true).End('}').Take());
  }

 private:
  bool Has(const Call& call) const {
    if (own_.sessions) return true;
    Refuse(call, ApiError{501, "This server keeps no sessions by name: --session-dir says where it may.", "",
                          "unsupported"});
    return false;
  }
  static bool GoodName(const Call& call, std::string_view name, std::string_view param) {
    if (ValidSessionName(name)) return true;
    Refuse(call, ApiError{400,
                          "A session's name is made of letters, digits, '_', '-' and '.', up to 64 of them, "
                          "and does not begin "
                          "with '.'.",
                          std::string(param), "invalid_value"});
    return false;
  }
  static void Send(const Call& call, const NamedSession& session) {
    JsonOut out;
    WriteSession(session, out);
    SendJson(*call.reply, out.Take());
  }

  // Reads the tokens and keeps the sequence. One at a time: it holds one of the handlers' threads.
  void Make(const Call& call, Ids ids, std::string_view name) {
    const Parsed<NamedSession> made = Made(call, std::move(ids), name);
    if (const auto* error = std::get_if<ApiError>(&made)) return Refuse(call, *error);
    Send(call, std::get<NamedSession>(made));
  }
  Parsed<NamedSession> Made(const Call& call, Ids ids, std::string_view name) {
    const std::unique_lock lock(one_at_a_time_, std::try_to_lock);
    if (!lock.owns_lock()) return Overloaded(1);
    const auto context = static_cast<uint64_t>(call.service->options().scheduler.context);
    if (ids.size() + 1 > context) return OpenAiContextOverflow(ids.size(), 1, context);
    auto done = std::make_shared<std::promise<JobResult>>();
    std::future<JobResult> result = done->get_future();
    Job job;
    job.prompt = std::move(ids);
    job.max_tokens = 1;
    job.client = ClientOf(call.request);
    job.on_token = [](int32_t) { return false; };
    job.on_end = [done](JobResult ended) { done->set_value(std::move(ended)); };
    const Admission admission = call.service->Submit(std::move(job));
    if (admission.verdict == Admission::Verdict::kFull) return Overloaded(1);
    if (admission.verdict != Admission::Verdict::kTaken)
      return ApiError{503, admission.reason.empty() ? "The server is ending." : admission.reason, "", "", 1};
    call.reply->OnGone([service = std::weak_ptr(call.service), id = admission.id] {
      if (const auto alive = service.lock()) alive->CancelJob(id);
    });
    const JobResult ended = result.get();
    if (ended.end == JobEnd::kFailed) return ErrorOf(ended.status);
    if (ended.end == JobEnd::kCancelled || !ended.session)
      return ApiError{503, "It was broken off before its end.", "", "", 1};
    if (const Status saved = own_.sessions->Save(*ended.session, name); !saved.ok()) return ErrorOf(saved);
    const auto found = own_.sessions->Find(name);
    if (!found.ok()) return ErrorOf(found.status());
    return *found;
  }

  const OwnEndpoints& own_;
  std::mutex one_at_a_time_;
};

}  // namespace

void AddOwnEndpoints(OwnEndpoints given, Endpoints& endpoints) {
  const auto own = std::make_shared<const OwnEndpoints>(std::move(given));
  endpoints.Add(
      {"GET", "/metrics", false, [own](const Call& call) {
         call.reply->Send(200, {{"Content-Type", std::string(kPrometheusContentType)}}, Metrics(*own, call));
       }});
  endpoints.Add({"POST", "/tokenize", true, Tokenize});
  endpoints.Add({"POST", "/detokenize", true, Detokenize});
  endpoints.Add({"POST", "/apply-template", true, ApplyTemplate});
  const auto sessions = std::make_shared<SessionRoutes>(*own);
  const auto add = [&](std::string method, std::string pattern, void (SessionRoutes::*handle)(const Call&)) {
    endpoints.Add({std::move(method), std::move(pattern), true,
                   [own, sessions, handle](const Call& call) { (sessions.get()->*handle)(call); }});
  };
  add("GET", "/sessions", &SessionRoutes::List);
  add("GET", "/sessions/{}", &SessionRoutes::Show);
  add("PUT", "/sessions/{}", &SessionRoutes::Save);
  add("DELETE", "/sessions/{}", &SessionRoutes::Delete);
  add("POST", "/sessions/{}/fork", &SessionRoutes::Fork);
  add("POST", "/sessions/{}/restore", &SessionRoutes::Restore);
}

}  // namespace glint::serve
