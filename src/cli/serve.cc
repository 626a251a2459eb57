// glint serve: the model behind HTTP.
#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <system_error>

#include "cli/cache_options.h"
#include "cli/interrupt.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/sampling_options.h"
#include "cli/subcommand.h"
#include "cli/terminal.h"
#include "cli/version.h"
#include "serve/endpoints.h"
#include "serve/http.h"
#include "serve/log.h"
#include "serve/metrics.h"
#include "serve/named_sessions.h"
#include "serve/own_endpoints.h"
#include "serve/page.h"
#include "serve/response_routes.h"
#include "serve/service.h"
#include "serve/watch.h"

namespace glint::cli {
namespace {

constexpr uint64_t kMemoryForResponses = uint64_t{256} << 20;  // without --data-dir
constexpr int64_t kContext = 32768;  // without --ctx, within what the model was made for

struct ServeOptions {
  ModelChoice model;
  CacheChoice cache;
  std::optional<std::string> host, key_file, certificate, key, cors, data;
  std::vector<std::string> keys, aliases;
  std::optional<int64_t> port, responses, context, sessions, queue, stall_ms;
  std::optional<double> timeout_s, drain_s, keepalive_s;
  std::optional<std::string> log_format, log_level, log_file, session_dir;
  bool log_content = false;
};

std::chrono::milliseconds Milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
}

// One key a line; empty lines and what follows a '#' at a line's beginning are nothing.
Result<std::vector<std::string>> ReadKeys(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return Status(Code::kIo, fmt::format("--api-key-file: {} can't be read", path));
  std::vector<std::string> keys;
  for (std::string line; std::getline(in, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.empty() && line[0] != '#') keys.push_back(line);
  }
  if (keys.empty()) return Status(Code::kBadFile, fmt::format("--api-key-file: {} holds no key", path));
  return keys;
}

Result<serve::HttpOptions> HttpSettings(const ServeOptions& o) {
  serve::HttpOptions http;
  http.host = o.host.value_or("127.0.0.1");
  http.port = static_cast<uint16_t>(o.port.value_or(8080));
  http.tls_certificate = o.certificate.value_or("");
  http.tls_key = o.key.value_or("");
  http.api_keys = o.keys;
  if (o.key_file) {
    const auto keys = ReadKeys(*o.key_file);
    if (!keys.ok()) return keys.status();
    http.api_keys.insert(http.api_keys.end(), keys->begin(), keys->end());
  }
  if (const char* key = std::getenv("GLINT_API_KEY"); key != nullptr && *key != '\0')
    http.api_keys.emplace_back(key);
  http.sign_in_page = serve::PageText();
  http.sign_in_headers = serve::PageHeaders();
  http.preflights = o.cors.has_value();
  // Reading a long conversation takes a thread's time; others go on beside it.
  http.handler_threads = 4;
  return http;
}

const std::vector<std::pair<std::string_view, serve::LogLevel>> kLogLevels{
    {"debug", serve::LogLevel::kDebug},
    {"info", serve::LogLevel::kInfo},
    {"warning", serve::LogLevel::kWarning},
    {"error", serve::LogLevel::kError}};

Result<std::unique_ptr<serve::Log>> OpenLog(const ServeOptions& o) {
  serve::LogOptions log;
  log.json = o.log_format == "json";
  log.path = o.log_file.value_or("");
  for (const auto& [name, level] : kLogLevels)
    if (o.log_level == name) log.least = level;
  return serve::Log::Create(std::move(log));
}

std::atomic<serve::Log*> g_log{nullptr};  // of a signal's handler

// While it lives, SIGHUP opens the log's file anew.
class LogOnHangup {
 public:
  explicit LogOnHangup(serve::Log* log) {
    g_log = log;
    OnHangup([] {
      if (serve::Log* const log_now = g_log) log_now->Reopen();
    });
  }
  ~LogOnHangup() { g_log = nullptr; }
  LogOnHangup(const LogOnHangup&) = delete;
  LogOnHangup& operator=(const LogOnHangup&) = delete;
};

Result<serve::ServiceOptions> ServiceSettings(const ServeOptions& o, const Model& model) {
  serve::ServiceOptions service;
  service.scheduler.context =
      o.context.value_or(model.context_length() > 0 ? std::min(kContext, model.context_length()) : kContext);
  if (o.sessions) service.scheduler.sessions = static_cast<int>(*o.sessions);
  if (o.queue) service.scheduler.queue = static_cast<int>(*o.queue);
  if (o.stall_ms) service.scheduler.stall = std::chrono::milliseconds(*o.stall_ms);
  service.aliases = o.aliases;
  if (o.timeout_s) service.timeout = Milliseconds(*o.timeout_s);
  if (o.keepalive_s) service.keepalive = Milliseconds(*o.keepalive_s);
  const auto sampling = SamplingChoice().Resolve(model);
  if (!sampling.ok()) return sampling.status();
  service.sampler = *sampling;
  auto cache = o.cache.Resolve();
  if (!cache.ok()) return cache.status();
  service.cache = *std::move(cache);
  return service;
}

// Of responses that clients may go on from; null if none are kept.
Result<std::shared_ptr<serve::ResponseStore>> OpenResponses(const ServeOptions& o) {
  serve::ResponseStoreOptions options;
  if (o.responses) options.max_responses = static_cast<uint64_t>(*o.responses);
  if (options.max_responses == 0) return std::shared_ptr<serve::ResponseStore>();
  if (o.data) {
    if (::mkdir(o.data->c_str(), 0700) != 0 && errno != EEXIST)
      return Status(Code::kIo, fmt::format("--data-dir: {} can't be made: {}", TerminalText(*o.data),
                                           std::generic_category().message(errno)));
    options.path = *o.data + "/responses.sqlite";
  } else {
    options.max_bytes = kMemoryForResponses;
  }
  auto store = serve::ResponseStore::Open(options);
  if (!store.ok()) return Status(store.status().code(), "--data-dir: " + store.status().message());
  if (!(*store)->notice().empty()) PrintError(fmt::format("glint serve: {}\n", (*store)->notice()));
  return std::shared_ptr<serve::ResponseStore>(std::move(*store));
}

Result<int> Serve(const ServeOptions& o) {
  const auto settings = HttpSettings(o);
  if (!settings.ok()) return settings.status();
  auto opened = OpenLog(o);
  if (!opened.ok()) return opened.status();
  const std::unique_ptr<serve::Log> log = *std::move(opened);
  const auto warn = [&log](std::string_view event, const std::string& line) {
    log->Write(serve::LogLevel::kWarning, event, {{"what", line}});
  };
  std::optional<LogOnHangup> hangup;
  if (o.log_file) hangup.emplace(log.get());
  serve::RequestMetrics metrics;
  serve::Watch watch(&metrics, log.get(), o.log_content);
  serve::OwnEndpoints offers;
  if (o.session_dir) {
    auto sessions = serve::NamedSessions::Open(*o.session_dir);
    if (!sessions.ok()) return sessions.status();
    offers.sessions = *std::move(sessions);
  }
  const bool near =
      settings->host == "localhost" || settings->host == "::1" || settings->host.starts_with("127.");
  const bool keyless = settings->api_keys.empty();
  serve::Endpoints endpoints(
      {.answered = [&watch](const serve::HttpAnswered& answer) { watch.Answered(answer); },
       .cors_origin = o.cors.value_or(""),
       .guard = {.own_pages = keyless, .local_names = keyless && near}});
  auto responses = OpenResponses(o);
  if (!responses.ok()) return responses.status();
  serve::AddResponseRoutes(endpoints, *std::move(responses),
                           [warn](const std::string& line) { warn("responses", line); });
  auto created = serve::HttpServer::Create(*settings);
  if (!created.ok()) return created.status();
  if (!near && keyless)
    PrintError("glint serve: note: without --api-key, whoever reaches this machine may ask\n");
  // Declared after what it calls: it ends first.
  const std::unique_ptr<serve::HttpServer> server = *std::move(created);
  offers.version = ThisBuild().version, offers.requests = &metrics, offers.log = log.get();
  offers.http = [&server] { return server->Counters(); };
  serve::AddOwnEndpoints(std::move(offers), endpoints);
  server->Serve([&endpoints](const serve::HttpRequest& request, std::shared_ptr<serve::Reply> reply) {
    endpoints.Handle(request, std::move(reply));
  });

  const auto model = o.model.Open(
      false, true, [&endpoints](uint64_t done, uint64_t total) { endpoints.SetLoading(done, total); });
  if (!model.ok()) return model.status();
  auto options = ServiceSettings(o, *model);
  if (!options.ok()) return options.status();
  options->observer = &watch;
  if (options->cache) options->cache->log = [warn](const std::string& line) { warn("cache", line); };
  auto made = serve::Service::Create(*model, *options);
  if (!made.ok()) return made.status();
  const std::shared_ptr<serve::Service> service = *std::move(made);
  endpoints.SetService(service);
  const Status said = Print(fmt::format("listening on {} (model {}, context {}, {} sessions)\n",
                                        server->url(), TerminalText(service->model_id()),
                                        options->scheduler.context, options->scheduler.sessions));
  if (!said.ok() && !said.message().empty()) return said;
  log->Write(serve::LogLevel::kInfo, "listening",
             {{"url", server->url()},
              {"model", service->model_id()},
              {"context", options->scheduler.context},
              {"sessions", int64_t{options->scheduler.sessions}}});

  WaitReadable(-1);  // until a signal comes; a second one ends the process at once
  const auto limit = Milliseconds(o.drain_s.value_or(30));
  const auto until = serve::Clock::now() + limit;
  const uint64_t left = service->stats().running + service->stats().waiting;
  log->Write(serve::LogLevel::kInfo, "ending",
             {{"answers", left}, {"seconds", static_cast<double>(limit.count()) / 1e3}});
  endpoints.SetService(nullptr);
  const bool whole = server->Drain(limit);
  service->Drain(until);
  if (!whole) log->Write(serve::LogLevel::kWarning, "cut_off", {{"what", std::string("answers under way")}});
  return 0;
}

}  // namespace

Work DeclareServe(Options& options) {
  auto o = std::make_shared<ServeOptions>();
  options.Group("Server");
  options.Value("--host", "NAME", &o->host,
                "Address to listen on; without it 127.0.0.1, which this machine alone can reach. 0.0.0.0 is "
                "every address: set a key then");
  options.Value("--port", "N", &o->port, 0, 65535, "Port; without it 8080. 0 takes any free one");
  options.List("--api-key", "KEY", &o->keys,
               "Requests but those to /health must bring it, as 'Authorization: Bearer KEY' or 'x-api-key: "
               "KEY'; may be "
               "repeated. $GLINT_API_KEY is one too, and does not show in the list of processes");
  options.files().Reads(&o->key_file);
  options.Value("--api-key-file", "FILE", &o->key_file, "Keys, one a line");
  options.files().Reads(&o->certificate);
  options.Value("--tls-cert", "FILE", &o->certificate, "Certificate chain (PEM): the port speaks TLS alone");
  options.files().Reads(&o->key);
  options.Value("--tls-key", "FILE", &o->key, "Its private key (PEM)");
  options.Value(
      "--cors-origin", "ORIGIN", &o->cors,
      "Web pages of this origin may send requests, '*' for all; without it none but the server's own");
  options.Value("--drain", "S", &o->drain_s, 0, 86400,
                "Seconds that answers under way have after SIGTERM or Ctrl-C; without it 30");
  options.Value(
      "--data-dir", "DIR", &o->data,
      "Where responses are kept for previous_response_id (in DIR/responses.sqlite, up to 1 GiB); made if "
      "it is not there. Without it in memory, until the server ends");
  options.Value("--keep-responses", "N", &o->responses, 0, INT32_MAX,
                "Responses that are kept at most, the oldest leaving first; without it 10000. 0 keeps none");
  options.Group("Requests");
  options.List("--alias", "NAME", &o->aliases,
               "Another name that requests may call the model by; may be repeated");
  options.Value("--ctx", "N", &o->context, 2, INT32_MAX,
                "Tokens that a prompt and its answer have room for; without it 32768, within what the model "
                "was made for");
  options.Value("--sessions", "N", &o->sessions, 1, 4096, "Answers that are made at once; without it 16");
  options.Value("--queue", "N", &o->queue, 1, INT32_MAX,
                "Answers that wait for their turn at most; without it 256. Beyond, requests get 429");
  options.Value(
      "--timeout", "S", &o->timeout_s, 0.001, 1e9,
      "Seconds that a request may take, its time in the queue included; without it as long as it takes");
  options.Value("--keepalive", "S", &o->keepalive_s, 0.001, 86400,
                "Seconds of silence after which a stream says that it lives; without it 2");
  options.Value("--stall", "MS", &o->stall_ms, 1, INT32_MAX,
                "Milliseconds that those who get answers wait for others' prompts at a time; without it 250");
  o->cache.Declare(options);
  options.Value(
      "--session-dir", "DIR", &o->session_dir,
      "Where /sessions keeps sequences by name; made if it is not there. Without it there are none");
  options.Group("Log");
  options.Value("--log-format", "FORM", &o->log_format, "text or json, one line an event; without it text");
  options.Value("--log-file", "FILE", &o->log_file,
                "Append to a file, which SIGHUP opens anew; without it stderr");
  options.Value("--log-level", "LEVEL", &o->log_level, "debug, info, warning or error; without it info");
  options.Flag("--log-content", &o->log_content,
               "Prompts and answers too; without it they are nowhere in the log");
  options.Configurable();
  o->model.DeclareSource(options);
  o->model.DeclareLevers(options);
  options.Notes(
      "Speaks the OpenAI API (/v1/chat/completions, /v1/completions, /v1/responses, /v1/models) and the "
      "Anthropic API (/v1/messages, /v1/messages/count_tokens); a browser finds a chat page at /. Beside "
      "them "
      "its own /metrics, /tokenize, /detokenize, /apply-template and /sessions. /health says 503 until the "
      "model is loaded, and one line on stdout says when requests are answered. SIGTERM and Ctrl-C let "
      "answers "
      "under way end; a second signal does not.");
  options.Examples({"glint serve", "glint serve -m model.gguf --alias glm --ctx 2048 --sessions 4",
                    "glint serve --log-format json --log-file serve.log --session-dir sessions"});
  options.Check([o]() -> Status {
    if (o->certificate.has_value() != o->key.has_value())
      return {Code::kBadInput, "--tls-cert and --tls-key belong together"};
    const auto empty = [](const std::vector<std::string>& words) {
      return std::find(words.begin(), words.end(), "") != words.end();
    };
    if (empty(o->keys)) return {Code::kBadInput, "--api-key: the key is empty"};
    if (empty(o->aliases)) return {Code::kBadInput, "--alias: the name is empty"};
    if (o->log_format && o->log_format != "text" && o->log_format != "json")
      return {Code::kBadInput, fmt::format("--log-format: '{}' is not text or json", *o->log_format)};
    const bool known = std::any_of(kLogLevels.begin(), kLogLevels.end(),
                                   [&](const auto& level) { return level.first == o->log_level; });
    if (o->log_level && !known)
      return {Code::kBadInput,
              fmt::format("--log-level: '{}' is not debug, info, warning or error", *o->log_level)};
    if (o->log_file == "" || o->session_dir == "")
      return {Code::kBadInput, "--log-file and --session-dir need a name"};
    if (o->host == "") return {Code::kBadInput, "--host: the name is empty"};
    if (o->data == "") return {Code::kBadInput, "--data-dir: the name is empty"};
    if (o->cors == "") return {Code::kBadInput, "--cors-origin: the origin is empty"};
    return {};
  });
  return [o] { return Serve(*o); };
}

}  // namespace glint::cli
