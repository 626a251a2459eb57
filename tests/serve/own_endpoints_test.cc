// /metrics, /tokenize and its kin, /sessions, and the log of a server: through real connections.
#include "serve/own_endpoints.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <random>
#include <set>
#include <sstream>
#include <thread>

#include "base/json.h"
#include "serve/json_out.h"
#include "serve/watch.h"
#include "tests/base/temp_dir.h"
#include "tests/engine/reference.h"
#include "tests/serve/raw_client.h"

namespace glint::serve {
namespace {

const Model& Stories() {
  static const Model model =
      test::MustOpen(GLINT_SOURCE_DIR "/models/stories/stories.gguf", {.device = "cpu", .threads = 2});
  return model;
}

struct Fixture {
  const test::TempDir folder;
  std::unique_ptr<Log> log;
  RequestMetrics metrics;
  std::unique_ptr<Watch> watch;
  std::unique_ptr<Endpoints> endpoints;
  std::shared_ptr<Service> service;
  std::unique_ptr<HttpServer> server;

  explicit Fixture(bool content = false, bool with_sessions = true, bool json = true) {
    log = *Log::Create({.json = json, .path = folder.Path("log")});
    watch = std::make_unique<Watch>(&metrics, log.get(), content);
    endpoints = std::make_unique<Endpoints>(
        EndpointOptions{.answered = [this](const HttpAnswered& answer) { watch->Answered(answer); }});
    ServiceOptions options;
    options.scheduler.context = 400;
    options.observer = watch.get();
    options.cache = PrefixCacheOptions{.least_tokens = 1};
    service = *Service::Create(Stories(), std::move(options));
    server = *HttpServer::Create({});
    OwnEndpoints own;
    own.version = "1", own.requests = &metrics, own.log = log.get();
    own.http = [this] { return server->Counters(); };
    if (with_sessions) own.sessions = *NamedSessions::Open(folder.Path("sessions"));
    AddOwnEndpoints(std::move(own), *endpoints);
    endpoints->SetService(service);
    server->Serve([this](const HttpRequest& request, std::shared_ptr<Reply> reply) {
      endpoints->Handle(request, std::move(reply));
    });
  }
  ~Fixture() { server->Stop(); }

  RawAnswer Ask(const std::string& method, const std::string& path, const std::string& body = "",
                const std::string& headers = "") const {
    RawClient client(server->port());
    client.Send(method + " " + path + " HTTP/1.1\r\nHost: h\r\n" + headers +
                "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
    return client.Answer();
  }
  Json Json200(const std::string& method, const std::string& path, const std::string& body = "") const {
    const RawAnswer answer = Ask(method, path, body);
    EXPECT_EQ(answer.status, 200) << answer.body;
    const auto json = ParseJson(answer.body, path);
    EXPECT_TRUE(json.ok()) << answer.body;
    return json.ok() ? *json : Json();
  }
  // The log with all that was written so far.
  std::string Logged() {
    log->Write(LogLevel::kInfo, "mark");
    const uint64_t marked = ++marks_;
    for (int i = 0; i < 4000; ++i) {
      const std::string text = folder.Read("log");
      size_t seen = 0;
      for (size_t at = text.find("mark"); at != std::string::npos; at = text.find("mark", at + 1)) ++seen;
      if (seen >= marked) return text;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    ADD_FAILURE() << "the log does not come";
    return {};
  }

 private:
  uint64_t marks_ = 0;
};

std::string Quote(const std::string& text) { return JsonOut().String(text).Take(); }
std::string Chat(const std::string& text, int most = 6) {
  return R"({"model":"stories","temperature":0,"max_tokens":)" + std::to_string(most) +
         R"(,"messages":[{"role":"user","content":)" + Quote(text) + "}]}";
}

// The value of a sample's line.
double Sample(const std::string& page, const std::string& name) {
  const size_t at = page.find("\n" + name + " ");
  return at == std::string::npos ? -1 : std::strtod(page.c_str() + at + name.size() + 2, nullptr);
}

TEST(OwnEndpoints, MetricsAgreeWithTheAnswers) {
  Fixture f;
  const auto scrape = [&] {
    const RawAnswer page = f.Ask("GET", "/metrics");
    EXPECT_EQ(page.status, 200);
    EXPECT_EQ(page.Header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    return page.body;
  };
  const std::string before = scrape();
  EXPECT_EQ(Sample(before, "glint_decoded_tokens_total"), 0);
  EXPECT_EQ(Sample(before, "glint_ready"), 1);
  uint64_t prompt = 0, completion = 0;
  for (int i = 0; i < 3; ++i) {
    const Json answer = f.Json200("POST", "/v1/chat/completions", Chat("A fox and a hen.", 3 + i));
    prompt += *answer.Get<uint64_t>("usage.prompt_tokens");
    completion += *answer.Get<uint64_t>("usage.completion_tokens");
    scrape();  // does not disturb
  }
  EXPECT_EQ(f.Ask("POST", "/v1/chat/completions", "{}").status, 400);
  EXPECT_EQ(f.Ask("POST", "/v1/chat/completions", Chat("x", 100'000)).status, 400);
  EXPECT_EQ(f.Ask("GET", "/none").status, 404);
  const std::string after = scrape();
  EXPECT_EQ(Sample(after, "glint_usage_prompt_tokens_total"), static_cast<double>(prompt));
  EXPECT_EQ(Sample(after, "glint_prefilled_tokens_total"), static_cast<double>(prompt));
  EXPECT_EQ(Sample(after, "glint_usage_completion_tokens_total"), static_cast<double>(completion));
  EXPECT_EQ(Sample(after, "glint_time_to_first_token_seconds_count"), 3);
  EXPECT_EQ(Sample(after, "glint_time_per_output_token_seconds_count"), static_cast<double>(completion - 3));
  EXPECT_EQ(Sample(after, "glint_requests_total{endpoint=\"/v1/chat/completions\",status=\"200\"}"), 3);
  EXPECT_EQ(Sample(after, "glint_http_answers_total{route=\"/v1/chat/completions\",status=\"400\"}"), 2);
  EXPECT_EQ(Sample(after, "glint_http_answers_total{route=\"none\",status=\"404\"}"), 1);
  EXPECT_EQ(Sample(after, "glint_requests_in_progress"), 0);
  EXPECT_EQ(Sample(after, "glint_log_dropped_events_total"), 0);
  f.endpoints->SetService(nullptr);  // the page is there while the server ends, too
  EXPECT_EQ(Sample(scrape(), "glint_ready"), 0);

  if (std::string_view(GLINT_PYTHON).empty()) GTEST_SKIP() << "GLINT_PYTHON is not set: no referee";
  for (const std::string& page : {before, after}) {
    const std::string command = "'" GLINT_PYTHON "' '" GLINT_SOURCE_DIR "/tests/serve/referee_metrics.py' '" +
                                f.folder.Write("page", page) + "' >'" + f.folder.Path("said") + "' 2>&1";
    const int status = std::system(command.c_str());
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << f.folder.Read("said");
    EXPECT_EQ(status, 0) << f.folder.Read("said");
  }
}

TEST(OwnEndpoints, TextAndTokens) {
  Fixture f;
  const Tokenizer& tokenizer = Stories().tokenizer();
  const std::string text = "A fox \xf0\x9f\xa6\x8a said: <|user|> \"hi\"\n";
  for (const bool special : {false, true}) {
    const Json json =
        f.Json200("POST", "/tokenize",
                  "{\"content\":" + Quote(text) + ",\"parse_special\":" + (special ? "true" : "false") + "}");
    const auto wanted = tokenizer.Encode(text, special);
    const auto got = *json.Get<std::vector<int64_t>>("tokens");
    EXPECT_EQ(std::vector<int32_t>(got.begin(), got.end()), wanted);
    EXPECT_EQ(*json.Get<uint64_t>("count"), wanted.size());
    JsonOut body;
    body.Begin('{').Key("tokens").Begin('[');
    for (const int32_t id : wanted) body.Integer(id);
    EXPECT_EQ(*f.Json200("POST", "/detokenize", body.End(']').End('}').Take()).Get<std::string>("content"),
              text);
  }
  const Json pieces = f.Json200("POST", "/tokenize", R"({"content":"a fox","with_pieces":true})");
  EXPECT_EQ(*pieces.Find("tokens")->items().back().Get<std::string>("piece"), " fox");
  const Json prompt =
      f.Json200("POST", "/apply-template", R"({"messages":[{"role":"user","content":"hello"}]})");
  const auto ids = *tokenizer.EncodeChat(std::vector<Message>{{Role::kUser, "hello"}});
  EXPECT_EQ(*prompt.Get<uint64_t>("count"), ids.size());
  EXPECT_EQ(*prompt.Get<std::string>("prompt"), *tokenizer.Decode(ids));
  for (const auto& [path, body] :
       std::vector<std::pair<std::string, std::string>>{{"/tokenize", "{}"},
                                                        {"/tokenize", "[1"},
                                                        {"/tokenize", R"({"content":1})"},
                                                        {"/tokenize", R"({"content":"a","other":1})"},
                                                        {"/detokenize", R"({"tokens":[-1]})"},
                                                        {"/detokenize", R"({"tokens":[100000000]})"},
                                                        {"/detokenize", R"({"tokens":["a"]})"},
                                                        {"/detokenize", "{}"},
                                                        {"/apply-template", "{}"},
                                                        {"/apply-template", R"({"messages":[]})"}})
    EXPECT_EQ(f.Ask("POST", path, body).status, 400) << path << body;
}

TEST(NamedSessions, NamesAreNames) {
  for (const char* good : {"a", "A.b-c_9", "0", "a..b", "con"}) EXPECT_TRUE(ValidSessionName(good)) << good;
  EXPECT_TRUE(ValidSessionName(std::string(64, 'a')));
  for (const std::string& bad :
       {std::string(), std::string("."), std::string(".."), std::string(".a"), std::string("a/b"),
        std::string("../a"), std::string("a\\b"), std::string("a b"), std::string("a\n"),
        std::string("a\0b", 3), std::string("\xc3\xa9"), std::string("a%2fb"), std::string("~"),
        std::string("*"), std::string(65, 'a')})
    EXPECT_FALSE(ValidSessionName(bad)) << bad;
}

// A session is the sequence: what goes on from it goes on as if it had been read anew, at any place that it is forked at.
TEST(OwnEndpoints, SessionsAreKeptForkedAndRestored) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  Fixture f;
  const std::string text =
      "Once upon a time there was a fox who lived near a hen, and they were friends for a long time.";
  const auto ids = Stories().tokenizer().Encode(text);
  const Json saved = f.Json200("PUT", "/sessions/tale.1", "{\"prompt\":" + Quote(text) + "}");
  EXPECT_EQ(*saved.Get<uint64_t>("tokens"), ids.size());
  const size_t at = 1 + rng() % (ids.size() - 1);
  EXPECT_EQ(*f.Json200("POST", "/sessions/tale.1/fork", R"({"name":"part","at":)" + std::to_string(at) + "}")
                 .Get<uint64_t>("tokens"),
            at);
  f.Json200("POST", "/sessions/tale.1/fork", R"({"name":"whole"})");
  const Json list = f.Json200("GET", "/sessions");
  ASSERT_EQ(list.Find("data")->items().size(), 3u);
  EXPECT_EQ(*list.Find("data")->items()[0].Get<std::string>("name"), "part");
  const auto shown = *f.Json200("GET", "/sessions/part?ids=1").Get<std::vector<int64_t>>("ids");
  const std::vector<int32_t> part(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(at));
  EXPECT_EQ(std::vector<int32_t>(shown.begin(), shown.end()), part);

  auto loaded = Session::Load(Stories(), f.folder.Path("sessions/part.session"));
  auto fresh = Session::Create(Stories(), {.context = 400});
  ASSERT_TRUE(loaded.ok() && fresh.ok());
  std::vector<float> a(static_cast<size_t>(Stories().vocab_size())), b = a;
  ASSERT_TRUE(fresh->Append(part, LogitRows::kNone, {}).ok());
  const std::vector<int32_t> next{42};
  ASSERT_TRUE(loaded->Append(next, LogitRows::kLast, a).ok());
  ASSERT_TRUE(fresh->Append(next, LogitRows::kLast, b).ok());
  EXPECT_EQ(a, b);

  f.Json200("POST", "/sessions/tale.1/restore");
  // From the last whole block of the grid a request goes on.
  const CacheFound found = f.service->cache()->Find(ids);
  EXPECT_EQ(found.why, CacheMiss::kHit);
  EXPECT_GT(found.tokens, 0u);
  const std::string page = f.Ask("GET", "/metrics").body;
  EXPECT_NE(page.find("glint_cache_keeps_total{result=\"kept\"} 1\n"), std::string::npos) << page;
  // A chat's conversation, in the place of the one before.
  const Json chat = f.Json200("PUT", "/sessions/part", R"({"messages":[{"role":"user","content":"hello"}]})");
  EXPECT_EQ(*chat.Get<uint64_t>("tokens"),
            Stories().tokenizer().EncodeChat(std::vector<Message>{{Role::kUser, "hello"}})->size());
  f.Json200("DELETE", "/sessions/whole");
  EXPECT_EQ(f.Json200("GET", "/sessions").Find("data")->items().size(), 2u);
}

// Another server, later, has the file: what it restores is gone on from, and not only said to be there.
TEST(OwnEndpoints, RestoredSessionsAreGoneOnFrom) {
  Fixture before;
  std::string text = "Once upon a time there was a fox";
  for (int i = 0; i < 20; ++i) text += " and a hen who lived in a house";
  const uint64_t tokens =
      *before.Json200("PUT", "/sessions/tale", "{\"prompt\":" + Quote(text) + "}").Get<uint64_t>("tokens");
  Fixture after, cold;
  std::filesystem::copy(before.folder.Path("sessions/tale.session"),
                        after.folder.Path("sessions/tale.session"));
  after.Json200("POST", "/sessions/tale/restore");
  const auto body = [](const std::string& prompt) {
    return R"({"model":"stories","temperature":0,"max_tokens":6,"prompt":)" + Quote(prompt) + "}";
  };
  const auto said = [](const Json& answer) {
    return *answer.Find("choices")->items()[0].Get<std::string>("text");
  };
  const std::string more = text + " near the river, and one day";
  const Json next = after.Json200("POST", "/v1/completions", body(more));
  // But for the block of 16 that it ends in.
  EXPECT_EQ(*next.Get<uint64_t>("usage.prompt_tokens_details.cached_tokens"), tokens / 16 * 16);
  const Json fresh = cold.Json200("POST", "/v1/completions", body(more));
  EXPECT_EQ(*fresh.Get<uint64_t>("usage.prompt_tokens_details.cached_tokens"), 0u);
  EXPECT_EQ(said(next), said(fresh));
  // A place before the end of what was restored, where no state was kept.
  const std::string less = text.substr(0, text.size() - 60) + " or a mouse";
  EXPECT_EQ(said(after.Json200("POST", "/v1/completions", body(less))),
            said(cold.Json200("POST", "/v1/completions", body(less))));
}

TEST(OwnEndpoints, SessionsThatAreNotThere) {
  Fixture f;
  const std::string prompt = R"({"prompt":"a fox"})";
  f.Json200("PUT", "/sessions/good", prompt);
  f.folder.Write("sessions/damaged.session", "nonsense");
  f.folder.Write("sessions/other.txt", "nonsense");
  const auto files = [&] {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(f.folder.path()))
      names.insert(entry.path().string());
    return names;
  };
  const auto before = files();
  // Names that lead elsewhere, or would: raw, escaped, and in a body.
  for (const std::string& name :
       {std::string(".hidden"), std::string("a%20b"), std::string("..%2Fx"), std::string("%2e%2e"),
        std::string("..%5Cx"), std::string("a%00b"), std::string("%C3%A9"), std::string(65, 'a')}) {
    SCOPED_TRACE(name);
    EXPECT_EQ(f.Ask("PUT", "/sessions/" + name, prompt).status, 400);
    EXPECT_EQ(f.Ask("GET", "/sessions/" + name).status, 400);
    EXPECT_EQ(f.Ask("DELETE", "/sessions/" + name).status, 400);
    EXPECT_EQ(f.Ask("POST", "/sessions/" + name + "/fork", R"({"name":"x"})").status, 400);
  }
  for (const char* name : {"../x", "..", ".x", "/tmp/x", "a/b", "", "a\\u0000", "a b"})
    EXPECT_EQ(f.Ask("POST", "/sessions/good/fork", std::string("{\"name\":\"") + name + "\"}").status, 400)
        << name;
  EXPECT_EQ(f.Ask("GET", "/sessions/../log").status, 400);
  for (const char* at : {"0", "-1", "3000", "1.5", "\"1\""})
    EXPECT_EQ(f.Ask("POST", "/sessions/good/fork", std::string(R"({"name":"x","at":)") + at + "}").status,
              400)
        << at;
  EXPECT_EQ(f.Ask("PUT", "/sessions/x", R"({"prompt":["a","b"]})").status, 400);
  EXPECT_EQ(f.Ask("PUT", "/sessions/x", R"({"model":"who","prompt":"a"})").status, 404);
  std::string long_prompt = "{\"prompt\":\"";
  for (int i = 0; i < 500; ++i) long_prompt += "fox ";
  EXPECT_EQ(f.Ask("PUT", "/sessions/x", long_prompt + "\"}").status, 400);
  for (const char* method : {"GET", "DELETE"}) EXPECT_EQ(f.Ask(method, "/sessions/none").status, 404);
  EXPECT_EQ(f.Ask("POST", "/sessions/none/restore").status, 404);
  EXPECT_GE(f.Ask("POST", "/sessions/damaged/restore").status, 400);
  EXPECT_GE(f.Ask("GET", "/sessions/damaged").status, 400);
  EXPECT_EQ(f.Json200("GET", "/sessions").Find("data")->items().size(), 1u);
  EXPECT_EQ(files(), before);

  const Fixture without(false, false);
  EXPECT_EQ(without.Ask("GET", "/sessions").status, 501);
  EXPECT_EQ(without.Ask("PUT", "/sessions/x", prompt).status, 501);
}

TEST(Watch, LogsContentOnlyWhereItIsToldTo) {
  for (const bool content : {false, true}) {
    Fixture f(content);
    const RawAnswer answer = f.Ask("POST", "/v1/chat/completions", Chat("An unmistakable walrus."),
                                   "Authorization: Bearer hidden-key\r\n");
    ASSERT_EQ(answer.status, 200);
    const auto json = ParseJson(answer.body, "answer");
    const std::string said = *json->Find("choices")->items()[0].Get<std::string>("message.content");
    const std::string log = f.Logged();
    EXPECT_EQ(log.find("walrus") != std::string::npos, content) << log;
    EXPECT_EQ(log.find("\"event\":\"answer\",\"id\":\"") != std::string::npos, content) << log;
    EXPECT_EQ(log.find(said) != std::string::npos, content) << log;
    EXPECT_EQ(log.find("hidden-key"), std::string::npos) << log;
    for (const char* part :
         {"\"event\":\"request\"", "\"peer\":\"127.0.0.1\"", "\"status\":200", "\"completion_tokens\":6",
          "\"finish\":\"length\"", "\"endpoint\":\"/v1/chat/completions\"", "\"total_ms\":"})
      EXPECT_NE(log.find(part), std::string::npos) << part << "\n" << log;
    const std::string id = json->Get<std::string>("id")->substr(9);
    EXPECT_NE(log.find("\"id\":\"" + id + "\""), std::string::npos) << log;
  }
}

TEST(Watch, WhatHasNoEffectIsSaid) {
  Fixture f;
  std::string body = Chat("A fox.");
  body.insert(1, R"("chat_template_kwargs":{"enable_thinking":false,"think":false},)");
  EXPECT_EQ(f.Ask("POST", "/v1/chat/completions", body).status, 200);
  const std::string log = f.Logged();
  EXPECT_NE(log.find("chat_template_kwargs.think: the template has no such switch"), std::string::npos)
      << log;
  EXPECT_EQ(log.find("enable_thinking"), std::string::npos) << log;
}

TEST(Watch, StrangersCanNotForgeLines) {
  Fixture f(true, false, false);
  f.Ask("GET", "/x%20level=error%22");
  f.Ask("POST", "/v1/chat/completions",
        R"({"model":"a\n2026-01-01T00:00:00Z error forged","messages":[{"role":"user","content":"x"}]})");
  f.Ask("POST", "/v1/chat/completions", Chat("x\n2026 error \x1b[2J forged"));
  std::istringstream log(f.Logged());
  size_t http = 0;
  for (std::string line; std::getline(log, line);) {
    EXPECT_TRUE(line.starts_with("2") && line.find("Z ") == 23) << line;
    EXPECT_EQ(line.find('\x1b'), std::string::npos);
    http += line.find(" http ") != std::string::npos;
  }
  EXPECT_EQ(http, 2u);
}

}  // namespace
}  // namespace glint::serve
