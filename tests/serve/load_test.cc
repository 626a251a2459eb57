// The load and its client against servers that behave in known ways.
#include "serve/load.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "base/json.h"
#include "serve/http_client.h"
#include "serve/json_out.h"

namespace glint::serve {
namespace {

using namespace std::chrono_literals;

TEST(HttpUrl, IsReadOrRefused) {
  const auto read = [](std::string_view text) {
    const auto url = ParseHttpUrl(text);
    return url.ok() ? url->host + "|" + std::to_string(url->port) + "|" + url->base
                    : "no: " + url.status().message();
  };
  EXPECT_EQ(read("http://127.0.0.1:8080"), "127.0.0.1|8080|");
  EXPECT_EQ(read("127.0.0.1:8080/"), "127.0.0.1|8080|");
  EXPECT_EQ(read("http://host/api/v2/"), "host|80|/api/v2");
  EXPECT_EQ(read("http://[::1]:90/x"), "::1|90|/x");
  EXPECT_EQ(read("http://[::1]"), "::1|80|");
  for (const char* bad :
       {"", "http://", "https://a", "ftp://a", "http://a:", "http://a:0", "http://a:65536", "http://a:b",
        "http://[::1", "http://[::1]x", "http://a b", "http://a/b\r\nX: y", ":80"})
    EXPECT_TRUE(read(bad).starts_with("no: ")) << bad << " " << read(bad);
}

TEST(SseReader, GivesTheSameEventsHoweverCut) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  const std::string stream =
      ": hello\ndata: one\n\nevent: x\ndata:two\ndata: more\nid: 7\n\n\n\ndata\n\r\ndata: \r\n\r\ndata: "
      "three\rdata: 3\r\rdata: lost";
  const std::vector<std::string> wanted{"one", "two\nmore", "", "", "three\n3"};
  for (int repeat = 0; repeat < 200; ++repeat) {
    SseReader reader;
    std::vector<std::string> got;
    for (size_t at = 0; at < stream.size();) {
      const size_t n = std::min<size_t>(1 + rng() % 9, stream.size() - at);
      EXPECT_TRUE(reader.Feed(stream.substr(at, n), [&](std::string_view data) {
        got.emplace_back(data);
        return true;
      }));
      at += n;
    }
    ASSERT_EQ(got, wanted);
  }
  SseReader reader;
  EXPECT_FALSE(reader.Feed("data: a\n\ndata: b\n\n", [](std::string_view data) { return data != "a"; }));
}

class Server {
 public:
  explicit Server(HttpHandler handler, std::chrono::milliseconds idle = 75s) {
    HttpOptions options;
    options.idle_timeout = idle;
    options.handler_threads = 8;
    auto made = HttpServer::Create(std::move(options));
    EXPECT_TRUE(made.ok());
    server_ = *std::move(made);
    server_->Serve(std::move(handler));
  }
  HttpUrl url() const { return *ParseHttpUrl(server_->url()); }
  HttpServer& http() { return *server_; }

 private:
  std::unique_ptr<HttpServer> server_;
};

TEST(HttpClient, ReadsBodiesOfEveryForm) {
  Server server([](const HttpRequest& request, const std::shared_ptr<Reply>& reply) {
    if (request.path == "/stream") {
      reply->Start(200, {{"Content-Type", "text/plain"}});
      for (int i = 0; i < 50; ++i)
        reply->Write(std::string(static_cast<size_t>(i), 'a' + static_cast<char>(i % 26)));
      return reply->Finish();
    }
    reply->Send(request.path == "/bad" ? 404 : 200, {{"X-Seen", std::string(request.Header("x-mine"))}},
                request.body);
  });
  std::string stream;
  for (int i = 0; i < 50; ++i) stream.append(static_cast<size_t>(i), static_cast<char>('a' + i % 26));
  HttpClient client(server.url(), 20s);
  for (int i = 0; i < 3; ++i) {
    const std::string body(static_cast<size_t>(i) * 100'000, 'x');
    const auto whole = client.Ask("POST", "/", {{"X-Mine", "7"}}, body);
    ASSERT_TRUE(whole.ok()) << whole.status().message();
    EXPECT_EQ(whole->status, 200);
    EXPECT_EQ(whole->body, body);
    EXPECT_EQ(whole->Header("x-SEEN"), "7");
    const auto streamed = client.Ask("GET", "/stream", {}, "");
    ASSERT_TRUE(streamed.ok()) << streamed.status().message();
    EXPECT_EQ(streamed->body, stream);
    std::string pieces;
    const auto bad = client.Ask("POST", "/bad", {}, "why", [&](std::string_view piece) {
      pieces += piece;
      return true;
    });
    ASSERT_TRUE(bad.ok());
    EXPECT_EQ(bad->body, "why");  // of an error the body is whole
    EXPECT_EQ(pieces, "");
    EXPECT_EQ(client.Ask("HEAD", "/", {}, "")->body, "");
  }
  EXPECT_EQ(server.http().Counters().accepted, 1u);  // all of that through one connection
}

TEST(HttpClient, ComesAgainWhereTheServerHasClosed) {
  Server server([](const HttpRequest&, const std::shared_ptr<Reply>& reply) { reply->Send(200, {}, "x"); },
                1ms);
  HttpClient client(server.url(), 20s);
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(client.Ask("GET", "/", {}, "").ok());
    for (int j = 0; j < 4000 && server.http().Counters().connections > 0; ++j)
      std::this_thread::sleep_for(1ms);
  }
  EXPECT_EQ(server.http().Counters().accepted, 5u);
}

TEST(HttpClient, SaysWhoIsNotThere) {
  HttpUrl nobody;
  {
    Server server([](const HttpRequest&, const std::shared_ptr<Reply>&) {});
    nobody = server.url();
  }
  const auto answer = HttpClient(nobody, 1s).Ask("GET", "/", {}, "");
  ASSERT_FALSE(answer.ok());
  EXPECT_NE(answer.status().message().find("can't connect"), std::string::npos) << answer.status().message();
}

// A model whose answer is a function of the request, a token every millisecond.
struct Model {
  std::atomic<int> running = 0, most = 0, asked = 0;
  std::atomic<bool> wrong_in_company = false;
  int refuse_every = 0;  // requests: 429
  int cut_every = 0;     // streams that end in the middle
  std::mutex mutex;
  std::vector<std::string> bodies;
  std::atomic<int> left = 0;

  void Answer(const HttpRequest& request, const std::shared_ptr<Reply>& reply) {
    if (request.path == "/v1/models") return reply->Send(200, {}, R"({"data":[{"id":"m1"},{"id":"m2"}]})");
    const int number = ++asked;
    if (refuse_every > 0 && number % refuse_every == 0)
      return SendError(*reply, 429, "too many", "", {{"Retry-After", "1"}});
    const auto body = ParseJson(request.body, "body");
    ASSERT_TRUE(body.ok());
    {
      const std::lock_guard lock(mutex);
      bodies.push_back(request.body);
    }
    const bool ids = request.path == "/v1/completions";
    const int64_t tokens = *body->Get<int64_t>("max_tokens");
    const int now = ++running;
    for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
    }
    reply->Start(200, {{"Content-Type", "text/event-stream"}});
    uint64_t state = 14695981039346656037u;
    for (const char c : request.body) state = (state ^ static_cast<uint8_t>(c)) * 1099511628211u;
    for (int64_t i = 0; i < tokens; ++i) {
      std::this_thread::sleep_for(1ms);
      state = state * 6364136223846793005u + 1442695040888963407u;
      std::string word = "w" + std::to_string(state >> 60) + " ";
      if (wrong_in_company && i == 3 && running > 1) word = "other ";
      if (!reply->Write(Chunk(ids, word, i < 2))) {
        ++left;
        break;
      }
      reply->Write(": still here\n\n");
      if (cut_every > 0 && number % cut_every == 0) return --running, reply->Finish();
    }
    reply->Write(ids ? "data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"length\"}]}\n\n"
                     : "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"length\"}]}\n\n");
    reply->Write("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":" +
                 std::to_string(tokens) +
                 ",\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\ndata: [DONE]\n\n");
    --running;
    reply->Finish();
  }
  static std::string Chunk(bool ids, const std::string& word, bool thought) {
    JsonOut out;
    out.Begin('{').Key("choices").Begin('[').Begin('{').String("object", "x");
    if (ids)
      out.String("text", word);
    else
      out.Key("delta").Begin('{').String(thought ? "reasoning_content" : "content", word).End('}');
    return "data: " + out.Null("finish_reason").End('}').End(']').End('}').Take() + "\n\n";
  }
};

struct Bench {
  Model model;
  Server server{[this](const HttpRequest& request, const std::shared_ptr<Reply>& reply) {
    model.Answer(request, reply);
  }};
  LoadOptions options;
  Bench() {
    options.url = server.url();
    options.users = 4, options.conversations = 8, options.answer = {6, 12};
  }
  LoadResult Go() {
    auto result = RunLoad(options);
    EXPECT_TRUE(result.ok()) << result.status().message();
    return *std::move(result);
  }
};

TEST(Load, AsksInCompanyAndThenAlone) {
  Bench run;
  const LoadResult result = run.Go();
  EXPECT_EQ(result.model, "m1");
  ASSERT_EQ(result.answers.size(), 8u);
  EXPECT_EQ(run.model.asked, 16);
  EXPECT_GT(run.model.most, 1);
  std::set<std::string> bodies;
  for (const LoadAnswer& a : result.answers) {
    EXPECT_EQ(a.error, "");
    EXPECT_EQ(a.check, LoadAnswer::Check::kSame);
    EXPECT_TRUE(a.text.starts_with("<think>w") && a.text.ends_with("<length>")) << a.text;
    EXPECT_EQ(a.gaps.size() + 1, a.tokens);
    EXPECT_EQ(a.prompt_tokens, 10u);
    EXPECT_EQ(a.cached_tokens, 4u);
    EXPECT_GT(a.first, 0);
    EXPECT_GE(a.whole, a.first);
    bodies.insert(a.body);
  }
  EXPECT_EQ(bodies.size(), 8u);
  Bench again;  // the same load
  const auto second = again.Go();
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(second.answers[i].body, result.answers[i].body);
}

TEST(Load, SeesAnswersThatCompanyChanges) {
  for (const auto solo : {LoadOptions::Solo::kBefore, LoadOptions::Solo::kAfter}) {
    Bench run;
    run.model.wrong_in_company = true;
    run.options.solo = solo;
    size_t other = 0;
    for (const LoadAnswer& a : run.Go().answers) {
      if (a.check != LoadAnswer::Check::kOther) continue;
      ++other;
      EXPECT_NE(a.text.find("other "), std::string::npos);
      EXPECT_NE(a.alone, a.text);
    }
    EXPECT_GT(other, 0u);
  }
}

TEST(Load, CarriesConversationsOn) {
  Bench run;
  run.options.turns = 3, run.options.conversations = 4, run.options.shared = 5,
  run.options.solo = LoadOptions::Solo::kBefore;
  run.options.temperature = 0.5;
  const LoadResult result = run.Go();
  ASSERT_EQ(result.answers.size(), 12u);
  for (const LoadAnswer& a : result.answers) {
    EXPECT_EQ(a.check, LoadAnswer::Check::kSame);
    const auto body = ParseJson(a.body, "body");
    ASSERT_TRUE(body.ok());
    const auto& messages = body->Find("messages")->items();
    ASSERT_EQ(messages.size(), static_cast<size_t>(2 + 2 * a.turn));
    EXPECT_EQ(*messages[0].Get<std::string>("role"), "system");
    EXPECT_EQ(*messages.back().Get<std::string>("role"), "user");
    if (a.turn > 0) {
      EXPECT_TRUE((*messages[2].Get<std::string>("content")).starts_with("w"));
    }
    EXPECT_TRUE(body->Find("seed") != nullptr);
  }
}

TEST(Load, LeavesInTheMiddle) {
  Bench run;
  run.options.cancel = 1, run.options.answer = {60, 60};
  for (const LoadAnswer& a : run.Go().answers) {
    EXPECT_TRUE(a.left);
    EXPECT_EQ(a.check, LoadAnswer::Check::kSame);
    EXPECT_LE(a.tokens, 30u);
    EXPECT_GE(a.tokens, 1u);
  }
  for (int i = 0; i < 4000 && run.model.left < 8; ++i) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(run.model.left, 8);  // the server saw them leave; those asked alone were not left
}

TEST(Load, CountsWhatFails) {
  Bench run;
  run.options.solo = LoadOptions::Solo::kNone;
  run.model.refuse_every = 4, run.model.cut_every = 3;
  std::multiset<std::string> errors;
  for (const LoadAnswer& a : run.Go().answers) errors.insert(a.error);
  EXPECT_EQ(errors.count("HTTP 429"), 2u);
  EXPECT_EQ(errors.count("stream without end"), 2u);
  EXPECT_EQ(errors.count(""), 4u);
}

TEST(Load, ComesAtRandomTimesWhateverTheServerDoes) {
  Bench run;
  run.options.rate = 2000, run.options.conversations = 40, run.options.solo = LoadOptions::Solo::kNone;
  run.options.ids = true, run.options.vocab = 9, run.options.prompt = {3, 3}, run.options.shared = 2;
  const LoadResult result = run.Go();
  double before = 0;
  std::vector<double> gaps;
  for (const LoadAnswer& a : result.answers) {
    EXPECT_EQ(a.error, "");
    EXPECT_GE(a.began, before);
    gaps.push_back(a.began - before);
    before = a.began;
    const auto body = ParseJson(a.body, "body");
    EXPECT_EQ(body->Find("prompt")->items().size(), 5u);
  }
  // Exponential gaps: their mean is 1 / rate, within four of its standard errors, and the longest is far above it.
  EXPECT_NEAR(before / 40, 1.0 / 2000, 4.0 / 2000 / std::sqrt(40.0));
  EXPECT_GT(*std::max_element(gaps.begin(), gaps.end()), 2.0 / 2000);
}

TEST(Load, StopsWhenItIsToldTo) {
  Bench run;
  run.options.answer = {5000, 5000};
  std::atomic<int> calls = 0;
  const auto result = RunLoad(run.options, [&](uint64_t, uint64_t) { return ++calls < 2; });
  EXPECT_FALSE(result.ok());
}

TEST(Load, RefusesNoSense) {
  Bench run;
  run.options.prompt = {5, 4};
  EXPECT_FALSE(RunLoad(run.options).ok());
}

}  // namespace
}  // namespace glint::serve
