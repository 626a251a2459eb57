#include "serve/http.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <stdlib.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <mutex>
#include <random>
#include <thread>

#include "tests/serve/raw_client.h"

namespace glint::serve {
namespace {

using namespace std::chrono_literals;

// Something that a test's other thread will do.
class Event {
 public:
  void Set() {
    const std::lock_guard lock(mutex_);
    set_ = true;
    changed_.notify_all();  // under the lock: the waiter may end the event's life as soon as it can
  }
  bool Wait(std::chrono::milliseconds patience = 20s) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, patience, [this] { return set_; });
  }
  bool IsSet() { return Wait(0ms); }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool set_ = false;
};

bool Eventually(const std::function<bool()>& holds) {
  for (int i = 0; i < 4000; ++i) {
    if (holds()) return true;
    std::this_thread::sleep_for(5ms);
  }
  return false;
}

std::unique_ptr<HttpServer> Started(HttpOptions options, HttpHandler handler) {
  auto server = HttpServer::Create(std::move(options));
  EXPECT_TRUE(server.ok()) << server.status().message();
  if (!server.ok()) return nullptr;
  (*server)->Serve(std::move(handler));
  return *std::move(server);
}

// Answers with what it understood of the request.
void Echo(const HttpRequest& request, const std::shared_ptr<Reply>& reply) {
  std::string text = request.method + " " + request.path;
  for (const auto& [name, value] : request.query) text += " " + name + "=" + value;
  reply->Send(200, {{"Content-Type", "text/plain"}}, text + "|" + request.body);
}

std::string Get(std::string_view path, std::string_view more = {}) {
  return "GET " + std::string(path) + " HTTP/1.1\r\nHost: h\r\n" + std::string(more) + "\r\n";
}
std::string Post(std::string_view path, std::string_view body, std::string_view more = {}) {
  return "POST " + std::string(path) +
         " HTTP/1.1\r\nHost: h\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" +
         std::string(more) + "\r\n" + std::string(body);
}
RawAnswer Ask(HttpServer& server, std::string_view request) {
  RawClient client(server.port());
  client.Send(request);
  return client.Answer();
}

TEST(HttpServer, AnswersARequest) {
  HttpRequest seen;
  auto server = Started({}, [&](const HttpRequest& request, std::shared_ptr<Reply> reply) {
    seen = request;
    Echo(request, reply);
  });
  ASSERT_NE(server, nullptr);
  const RawAnswer answer = Ask(*server, Post("/a%20b?x=1", "body", "X-Thing: one\r\nx-thing: two\r\n"));
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "POST /a b x=1|body");
  EXPECT_EQ(answer.Header("content-type"), "text/plain");
  EXPECT_EQ(answer.Header("content-length"), "18");
  EXPECT_TRUE(answer.Header("date").ends_with(" GMT"));
  EXPECT_FALSE(answer.headers.contains("connection"));
  EXPECT_EQ(seen.Header("X-THING"), "one");
  EXPECT_TRUE(seen.HasHeader("host"));
  EXPECT_FALSE(seen.HasHeader("hos"));
  EXPECT_EQ(seen.Query("x"), "1");
  EXPECT_FALSE(seen.HasQuery("X"));
  EXPECT_TRUE(seen.peer.starts_with("127.0.0.1:")) << seen.peer;
  EXPECT_EQ(server->url(), "http://127.0.0.1:" + std::to_string(server->port()));
  EXPECT_EQ(server->Counters().requests, 1u);
}

// However the bytes of several requests are cut into packets, the same answers come in the same order.
TEST(HttpServer, KeepsTheOrderOfPipelinedRequestsHoweverCut) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  HttpOptions options;
  options.handler_threads = 4;
  auto server = Started(options, Echo);
  ASSERT_NE(server, nullptr);
  const std::string chunked =
      "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: "
      "chunked\r\n\r\n3\r\nabc\r\nA;ext=1\r\n0123456789\r\n0\r\n\r\n";
  const std::string all =
      Get("/1?a=b") + Post("/2", "two") + chunked + Get("/4") + Post("/5", "") + Get("/6");
  for (int repeat = 0; repeat < 30; ++repeat) {
    RawClient client(server->port());
    int one = 1;
    setsockopt(client.fd(), IPPROTO_TCP, 1 /* TCP_NODELAY */, &one, sizeof one);
    for (size_t at = 0; at < all.size();) {
      const size_t n = repeat == 0 ? all.size() : repeat == 1 ? 1 : 1 + rng() % 60;
      ASSERT_TRUE(client.Send(std::string_view(all).substr(at, n)));
      at += n;
      if (repeat > 1 && rng() % 4 == 0) std::this_thread::sleep_for(1ms);
    }
    for (const char* want :
         {"GET /1 a=b|", "POST /2|two", "POST /c|abc0123456789", "GET /4|", "POST /5|", "GET /6|"}) {
      const RawAnswer answer = client.Answer();
      ASSERT_EQ(answer.status, 200) << want;
      EXPECT_EQ(answer.body, want);
    }
  }
}

TEST(HttpServer, ClosesWhereTheClientWantsIt) {
  auto server = Started({}, Echo);
  ASSERT_NE(server, nullptr);
  for (const std::string& request : {Get("/", "Connection: close\r\n"), std::string("GET / HTTP/1.0\r\n\r\n"),
                                     std::string("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")}) {
    RawClient client(server->port());
    client.Send(request);
    const RawAnswer answer = client.Answer();
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.Header("connection"), "close");
    EXPECT_TRUE(client.Ends());
  }
}

TEST(HttpServer, RefusesWhatIsNoRequest) {
  std::atomic<int> handled{0};
  HttpOptions options;
  options.max_header_bytes = 1024;
  options.max_body_bytes = 1000;
  auto server = Started(options, [&](const HttpRequest& request, std::shared_ptr<Reply> reply) {
    ++handled;
    Echo(request, reply);
  });
  ASSERT_NE(server, nullptr);
  const std::string host = "Host: h\r\n";
  const std::pair<int, std::string> cases[]{
      {400, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"},  // a TLS client
      {400, "hello\r\n\r\n"},
      {400, "GET /\r\n\r\n"},
      {400, "GET  / HTTP/1.1\r\n" + host + "\r\n"},
      {400, "GET / HTTP/1.1\r\n\r\n"},                     // no host
      {400, "GET / HTTP/1.1\r\n" + host + host + "\r\n"},  // two
      {505, "GET / HTTP/1.1\nHost: h\n\n"},                // bare line feeds: no version ends so
      {400, "GET / HTTP/1.1\r\n" + host + "a b: c\r\n\r\n"},
      {400, "GET / HTTP/1.1\r\n" + host + "a : c\r\n\r\n"},
      {400, "GET / HTTP/1.1\r\n" + host + std::string("a: \0\r\n\r\n", 8)},
      {400, "GET /../etc/passwd HTTP/1.1\r\n" + host + "\r\n"},
      {400, "GET /%00 HTTP/1.1\r\n" + host + "\r\n"},
      {400, "POST / HTTP/1.1\r\n" + host + "Content-Length: -1\r\n\r\n"},
      {400, "POST / HTTP/1.1\r\n" + host + "Content-Length: 1x\r\n\r\n"},
      {400, "POST / HTTP/1.1\r\n" + host + "Content-Length: 99999999999999999999\r\n\r\n"},
      {400, "POST / HTTP/1.1\r\n" + host + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab"},
      {400,
       "POST / HTTP/1.1\r\n" + host + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
      {400,
       "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n0\r\n\r\n"},
      {400, "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\nzz\r\n"},
      {400, "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n"},
      {501, "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"},
      {501, "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: identity\r\n\r\n"},
      {415, "POST / HTTP/1.1\r\n" + host + "Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\na"},
      {417, "POST / HTTP/1.1\r\n" + host + "Expect: a miracle\r\nContent-Length: 1\r\n\r\na"},
      {501, "CONNECT h:80 HTTP/1.1\r\n" + host + "\r\n"},
      {505, "GET / HTTP/2.0\r\n" + host + "\r\n"},
      {505, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
      {431, "GET / HTTP/1.1\r\n" + host + "a: " + std::string(1024, 'x') + "\r\n\r\n"},
      {431, "GET /" + std::string(2000, 'x') + " HTTP/1.1\r\n" + host + "\r\n"},
      {431, std::string(20'000, 'x')},
      {413, "POST / HTTP/1.1\r\n" + host + "Content-Length: 1001\r\n\r\n"},
      {413, "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n3e9\r\n"},
      {413, "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n3e8\r\n" +
                std::string(1000, 'x') + "\r\n1\r\nx\r\n0\r\n\r\n"},
  };
  for (const auto& [status, request] : cases) {
    RawClient client(server->port());
    client.Send(request);
    const RawAnswer answer = client.Answer();
    EXPECT_EQ(answer.status, status) << request.substr(0, 200) << "\n" << answer.body;
    EXPECT_TRUE(answer.body.starts_with("{\"type\": \"error\"")) << answer.body;
    EXPECT_EQ(answer.Header("connection"), "close");
    EXPECT_EQ(answer.Header("content-type"), "application/json");
    client.HalfClose();
    EXPECT_TRUE(client.Ends()) << request.substr(0, 200);
  }
  EXPECT_EQ(handled, 0);
  EXPECT_EQ(server->Counters().refused, std::size(cases));
  // The limits themselves are within.
  EXPECT_EQ(Ask(*server, Post("/", std::string(1000, 'x'))).status, 200);
  EXPECT_EQ(Ask(*server, "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n3e8\r\n" +
                             std::string(1000, 'x') + "\r\n0\r\n\r\n")
                .status,
            200);
  EXPECT_EQ(Ask(*server, Get("/", "a: " + std::string(900, 'x') + "\r\n")).status, 200);
}

// A client in the middle of sending 4 MB reads why they are not wanted, instead of a reset.
TEST(HttpServer, TellsASenderOfTooMuch) {
  HttpOptions options;
  options.max_body_bytes = 1000;
  auto server = Started(options, Echo);
  ASSERT_NE(server, nullptr);
  RawClient client(server->port());
  EXPECT_TRUE(client.Send(Post("/", std::string(size_t{4} << 20, 'x'))));
  EXPECT_EQ(client.Answer().status, 413);
}

TEST(HttpServer, AsksForBodiesThatWaitForIt) {
  HttpOptions options;
  options.max_body_bytes = 1000;
  auto server = Started(options, Echo);
  ASSERT_NE(server, nullptr);
  RawClient client(server->port());
  client.Send("POST /b HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
  EXPECT_EQ(client.Answer().status, 100);
  client.Send("body");
  EXPECT_EQ(client.Answer().body, "POST /b|body");
  client.Send("POST /b HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 1001\r\n\r\n");
  EXPECT_EQ(client.Answer().status, 413);
}

TEST(HttpServer, StreamsEachPieceAtOnce) {
  Event first_read, finished;
  auto server = Started({}, [&](const HttpRequest& request, std::shared_ptr<Reply> reply) {
    if (request.path == "/again") return Echo(request, reply);
    std::thread([&, reply] {
      EXPECT_TRUE(reply->Start(200, {{"Content-Type", "text/event-stream"}}));
      EXPECT_FALSE(reply->Start(200, {}));
      EXPECT_TRUE(reply->Write("data: 1\n\n"));
      EXPECT_TRUE(reply->Write(""));
      EXPECT_TRUE(first_read.Wait());
      EXPECT_TRUE(reply->Write("data: 2\n\n"));
      EXPECT_TRUE(reply->Write(std::string(100'000, 'x')));
      reply->Finish();
      EXPECT_FALSE(reply->Write("late"));
      reply->Send(500, {}, "late");
      finished.Set();
    }).detach();
  });
  ASSERT_NE(server, nullptr);
  RawClient client(server->port());
  client.Send(Get("/"));
  ASSERT_TRUE(client.ReceiveUntil("\r\n\r\n"));
  EXPECT_NE(client.buffer().find("Transfer-Encoding: chunked\r\n"), std::string::npos);
  client.buffer().erase(0, client.buffer().find("\r\n\r\n") + 4);
  std::string piece, rest;
  ASSERT_TRUE(client.Chunk(piece));
  EXPECT_EQ(piece, "data: 1\n\n");
  first_read.Set();
  while (client.Chunk(piece)) rest += piece;
  EXPECT_EQ(rest, "data: 2\n\n" + std::string(100'000, 'x'));
  EXPECT_TRUE(finished.Wait());
  client.Send(Get("/again"));  // on the same connection
  EXPECT_EQ(client.Answer().body, "GET /again|");
}

TEST(HttpServer, StreamsToOldClientsAndAnswersHead) {
  auto server = Started({}, [&](const HttpRequest& request, std::shared_ptr<Reply> reply) {
    if (request.path == "/whole") return reply->Send(200, {}, "12345");
    EXPECT_TRUE(reply->Start(200, {}));
    EXPECT_TRUE(reply->Write("one"));
    EXPECT_TRUE(reply->Write("two"));
    reply->Finish();
  });
  ASSERT_NE(server, nullptr);
  const RawAnswer old = Ask(*server, "GET / HTTP/1.0\r\n\r\n");
  EXPECT_EQ(old.body, "onetwo");
  EXPECT_TRUE(old.complete);
  RawClient client(server->port());
  client.Send("HEAD /whole HTTP/1.1\r\nHost: h\r\n\r\nHEAD / HTTP/1.1\r\nHost: h\r\n\r\n" + Get("/whole"));
  EXPECT_EQ(client.Answer(false).Header("content-length"), "5");
  EXPECT_EQ(client.Answer(false).Header("transfer-encoding"), "chunked");
  EXPECT_EQ(client.Answer().body, "12345");
}

// How a client may leave while nothing is written to it; each way is seen, in time for its work to be stopped.
TEST(HttpServer, SeesAClientLeave) {
  std::mutex mutex;
  std::shared_ptr<Reply> kept;
  Event* gone = nullptr;
  Event* arrived = nullptr;
  std::chrono::steady_clock::time_point when;
  auto server = Started({}, [&](const HttpRequest& request, std::shared_ptr<Reply> reply) {
    if (request.path == "/next") return Echo(request, reply);
    const std::lock_guard lock(mutex);
    if (request.path == "/stream") {
      EXPECT_TRUE(reply->Start(200, {}));
    }
    kept = reply;
    reply->OnGone([&, event = gone] {
      when = std::chrono::steady_clock::now();
      event->Set();
    });
    arrived->Set();
  });
  ASSERT_NE(server, nullptr);
  const std::pair<const char*, std::function<void(RawClient&)>> ways[]{
      {"close", [](RawClient& c) { c.Close(); }},
      {"reset", [](RawClient& c) { c.Reset(); }},
      {"half", [](RawClient& c) { c.HalfClose(); }},
      {"pipelined",
       [](RawClient& c) {
         c.Send(Get("/next"));
         c.Close();
       }},
      // More than the server reads ahead: it cannot find out by reading.
      {"flood",
       [](RawClient& c) {
         c.Send(Post("/next", std::string(100'000, 'x')));
         c.Close();
       }},
  };
  for (const char* path : {"/wait", "/stream"}) {
    for (const auto& [name, leave] : ways) {
      SCOPED_TRACE(std::string(path) + " " + name);
      Event is_gone, has_arrived, after;
      {
        const std::lock_guard lock(mutex);
        gone = &is_gone, arrived = &has_arrived;
      }
      RawClient client(server->port());
      client.Send(Get(path));
      ASSERT_TRUE(has_arrived.Wait());
      if (path == std::string("/stream")) {
        ASSERT_TRUE(client.ReceiveUntil("\r\n\r\n"));
      }
      EXPECT_FALSE(kept->Gone());
      leave(client);
      const auto left = std::chrono::steady_clock::now();
      ASSERT_TRUE(is_gone.Wait());
      RecordProperty(std::string(path + 1) + "_" + name + "_ms",
                     std::to_string(std::chrono::duration<double, std::milli>(when - left).count()));
      EXPECT_TRUE(kept->Gone());
      EXPECT_FALSE(kept->Write("more"));
      kept->OnGone([&] { after.Set(); });
      EXPECT_TRUE(after.IsSet());  // at once
      const std::lock_guard lock(mutex);
      kept.reset();
    }
  }
  EXPECT_TRUE(Eventually([&] { return server->Counters().connections == 0; }));
}

TEST(HttpServer, ForgetsTheCallbackOfAnAnsweredClient) {
  std::atomic<int> calls{0};
  auto server = Started({}, [&](const HttpRequest& request, std::shared_ptr<Reply> reply) {
    reply->OnGone([&] { ++calls; });
    Echo(request, reply);
    reply->OnGone([&] { ++calls; });
  });
  ASSERT_NE(server, nullptr);
  EXPECT_EQ(Ask(*server, Get("/")).status, 200);
  EXPECT_TRUE(Eventually([&] { return server->Counters().connections == 0; }));
  EXPECT_EQ(calls, 0);
}

// A client that only finished sending (`printf ... | nc -N`) gets its answer, pipelined ones too.
TEST(HttpServer, AnswersAHalfClosedClient) {
  auto server = Started({}, Echo);
  ASSERT_NE(server, nullptr);
  RawClient client(server->port());
  client.Send(Get("/1") + Get("/2"));
  client.HalfClose();
  EXPECT_EQ(client.Answer().body, "GET /1|");
  EXPECT_EQ(client.Answer().body, "GET /2|");
  EXPECT_TRUE(client.Ends());
}

TEST(HttpServer, LetsGoOfAReaderThatDoesNotRead) {
  HttpOptions options;
  options.max_backlog_bytes = 1 << 20;
  Event dropped, gone;
  std::atomic<size_t> most{0};
  std::atomic<uint64_t> written{0};
  auto server = Started(options, [&](const HttpRequest& request, std::shared_ptr<Reply> reply) {
    if (request.path != "/stream") return Echo(request, reply);
    std::thread([&, reply] {
      reply->OnGone([&] { gone.Set(); });
      EXPECT_TRUE(reply->Start(200, {}));
      const std::string piece(1000, 'x');
      while (reply->Write(piece)) {
        written += piece.size();
        most = std::max<size_t>(most, reply->Backlog());
      }
      dropped.Set();
    }).detach();
  });
  ASSERT_NE(server, nullptr);
  RawClient slow(server->port(), 4096);
  slow.Send(Get("/stream"));
  RawClient other(server->port());
  for (int i = 0; i < 20; ++i) {  // others are served meanwhile
    other.Send(Get("/other"));
    EXPECT_EQ(other.Answer().body, "GET /other|");
  }
  EXPECT_TRUE(dropped.Wait());
  EXPECT_TRUE(gone.Wait());
  EXPECT_LE(most, options.max_backlog_bytes + 16);
  EXPECT_GE(written, options.max_backlog_bytes - 20'000);
  EXPECT_TRUE(Eventually([&] { return server->Counters().connections == 1; }));
}

TEST(HttpServer, GivesUpAWriteThatTakesTooLong) {
  HttpOptions options;
  options.write_timeout = 100ms;
  auto server = Started(options, [&](const HttpRequest&, std::shared_ptr<Reply> reply) {
    reply->Send(200, {}, std::string(size_t{32} << 20, 'x'));
  });
  ASSERT_NE(server, nullptr);
  RawClient slow(server->port(), 4096);
  slow.Send(Get("/"));
  EXPECT_TRUE(Eventually([&] { return server->Counters().requests == 1; }));
  EXPECT_TRUE(Eventually([&] { return server->Counters().connections == 0; }));
}

TEST(HttpServer, EndsConnectionsThatOnlyWait) {
  HttpOptions options;
  options.header_timeout = options.body_timeout = options.idle_timeout = 100ms;
  auto server = Started(options, Echo);
  ASSERT_NE(server, nullptr);
  RawClient silent(server->port()), in_header(server->port()), in_body(server->port()), idle(server->port());
  in_header.Send("GET / HTTP/1.1\r\nHost:");
  in_body.Send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbo");
  idle.Send(Get("/"));
  EXPECT_EQ(idle.Answer().status, 200);
  EXPECT_TRUE(silent.Ends());
  EXPECT_TRUE(idle.Ends());
  EXPECT_EQ(in_header.Answer().status, 408);
  EXPECT_EQ(in_body.Answer().status, 408);
  // One byte now and then does not extend the time.
  RawClient dripping(server->port());
  int sent = 0;
  for (const char c : Get("/", "a: " + std::string(2000, 'x') + "\r\n")) {
    if (!dripping.Send({&c, 1})) break;
    ++sent;
    if (dripping.Receive(10ms)) break;
  }
  EXPECT_LT(sent, 1000);
  EXPECT_EQ(dripping.Answer().status, 408);
}

TEST(HttpServer, LimitsConnections) {
  HttpOptions options;
  options.max_connections = 2;
  auto server = Started(options, Echo);
  ASSERT_NE(server, nullptr);
  RawClient one(server->port()), two(server->port());
  for (auto* client : {&one, &two}) {
    client->Send(Get("/"));
    EXPECT_EQ(client->Answer().status, 200);
  }
  RawClient three(server->port());
  three.Send(Get("/"));
  const RawAnswer refused = three.Answer();
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.Header("retry-after"), "1");
  EXPECT_NE(refused.body.find("overloaded_error"), std::string::npos);
  three.Close();
  one.Close();
  EXPECT_TRUE(Eventually([&] { return server->Counters().connections == 1; }));
  EXPECT_EQ(Ask(*server, Get("/")).status, 200);
}

TEST(HttpServer, LimitsBodiesTogether) {
  HttpOptions options;
  options.max_body_bytes = 1000;
  options.max_bodies_bytes = 1500;
  auto server = Started(options, Echo);
  ASSERT_NE(server, nullptr);
  RawClient one(server->port());
  one.Send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n" + std::string(999, 'x'));
  ASSERT_TRUE(Eventually([&] { return server->Counters().bodies_bytes == 999; }));
  const RawAnswer second = Ask(*server, Post("/", std::string(900, 'y')));
  EXPECT_EQ(second.status, 503);
  EXPECT_EQ(second.Header("retry-after"), "1");
  one.Send("x");
  EXPECT_EQ(one.Answer().status, 200);
  EXPECT_TRUE(Eventually([&] { return Ask(*server, Post("/", std::string(900, 'y'))).status == 200; }));
}

// A browser's user has to have a place to give a key at; it is an error like the others, and at one path.
TEST(HttpServer, ShowsAPageToSignInAt) {
  HttpOptions options;
  options.api_keys = {"sk-first"};
  options.sign_in_page = "<p>key?";
  options.sign_in_headers = {{"Content-Type", "text/html"}, {"X-Mine", "1"}};
  auto server = Started(options, Echo);
  ASSERT_NE(server, nullptr);
  const RawAnswer page = Ask(*server, Get("/?x=1"));
  EXPECT_EQ(page.status, 401);
  EXPECT_EQ(page.body, "<p>key?");
  EXPECT_EQ(page.Header("content-type"), "text/html");
  EXPECT_EQ(page.Header("x-mine"), "1");
  EXPECT_EQ(page.Header("www-authenticate"), "Bearer");
  for (const std::string& request : {Get("/v1/models"), Get("/%2f"), Post("/", "x")}) {
    const RawAnswer refused = Ask(*server, request);
    EXPECT_NE(refused.body.find("{"), std::string::npos) << request;
    EXPECT_EQ(refused.Header("content-type"), "application/json") << request;
    EXPECT_TRUE(refused.status == 401 || refused.status == 400) << request;
  }
  EXPECT_EQ(Ask(*server, Get("/", "Authorization: Bearer sk-first\r\n")).status, 200);
}

TEST(HttpServer, WantsAKey) {
  HttpOptions options;
  options.api_keys = {"sk-first", "sk-second"};
  auto server = Started(options, Echo);
  ASSERT_NE(server, nullptr);
  for (const char* headers : {"", "Authorization: Bearer \r\n", "Authorization: Bearer sk-firs\r\n",
                              "Authorization: Bearer sk-firstx\r\n", "Authorization: sk-first\r\n",
                              "Authorization: Basic sk-first\r\n", "x-api-key: \r\n",
                              "x-api-key: SK-FIRST\r\n", "api-key: sk-first\r\n", "Cookie: sk-first\r\n"}) {
    for (const char* path :
         {"/", "/v1/models", "/metrics", "/health/../v1/models", "/healthy", "/health/x", "/Health"}) {
      const RawAnswer answer = Ask(*server, Get(path, headers));
      EXPECT_EQ(answer.status, std::string_view(path).find("..") != std::string_view::npos ? 400 : 401)
          << path << headers;
    }
    EXPECT_EQ(Ask(*server, Get("/health?x=1", headers)).status, 200);
  }
  const RawAnswer refused = Ask(*server, Get("/?key=sk-first"));
  EXPECT_EQ(refused.Header("www-authenticate"), "Bearer");
  EXPECT_NE(refused.body.find("\"code\": \"invalid_api_key\""), std::string::npos);
  for (const char* headers :
       {"Authorization: Bearer sk-first\r\n", "authorization: bearer sk-second\r\n",
        "X-Api-Key: sk-second\r\n", "Authorization: Basic x\r\nx-api-key: sk-first\r\n"})
    EXPECT_EQ(Ask(*server, Get("/v1/models", headers)).status, 200) << headers;
  // Without a key no body is taken.
  EXPECT_EQ(Ask(*server, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n").status, 401);
}

TEST(HttpServer, AnswersWhereTheHandlerDoesNot) {
  auto server = Started({}, [](const HttpRequest& request, std::shared_ptr<Reply> reply) {
    if (request.path == "/throw") throw std::runtime_error("bad \"luck\"\n");
    if (request.path == "/cut") {
      reply->Start(200, {});
      reply->Write("half");
    }
  });
  ASSERT_NE(server, nullptr);
  RawClient client(server->port());
  client.Send(Get("/drop") + Get("/throw") + Get("/cut"));
  EXPECT_EQ(client.Answer().status, 500);
  const RawAnswer thrown = client.Answer();
  EXPECT_EQ(thrown.status, 500);
  EXPECT_NE(thrown.body.find("bad \\\"luck\\\"\\u000a"), std::string::npos) << thrown.body;
  EXPECT_FALSE(client.Answer().complete);
}

TEST(HttpServer, KeepsHeadersWithinTheirLine) {
  auto server = Started({}, [](const HttpRequest&, std::shared_ptr<Reply> reply) {
    reply->Send(200, {{"X-Echo", "a\r\nSet-Cookie: b"}}, "");
  });
  ASSERT_NE(server, nullptr);
  const RawAnswer answer = Ask(*server, Get("/"));
  EXPECT_FALSE(answer.headers.contains("set-cookie"));
  EXPECT_EQ(answer.Header("x-echo"), "a  Set-Cookie: b");
}

TEST(HttpServer, AnswersUrgentPathsWhileHandlersAreBusy) {
  HttpOptions options;
  options.handler_threads = 1;
  Event busy, release;
  auto server = Started(options, [&](const HttpRequest& request, std::shared_ptr<Reply> reply) {
    if (request.path == "/slow") {
      busy.Set();
      EXPECT_TRUE(release.Wait());
    }
    Echo(request, reply);
  });
  ASSERT_NE(server, nullptr);
  RawClient slow(server->port());
  slow.Send(Get("/slow"));
  ASSERT_TRUE(busy.Wait());
  EXPECT_EQ(Ask(*server, Get("/health")).status, 200);
  release.Set();
  EXPECT_EQ(slow.Answer().status, 200);
}

TEST(HttpServer, DrainsWhatIsUnderWay) {
  std::shared_ptr<Reply> kept;
  Event arrived;
  auto server = Started({}, [&](const HttpRequest& request, std::shared_ptr<Reply> reply) {
    if (request.path == "/idle") return Echo(request, reply);
    EXPECT_TRUE(reply->Start(200, {}));
    kept = reply;
    arrived.Set();
  });
  ASSERT_NE(server, nullptr);
  RawClient idle(server->port()), running(server->port()), half(server->port());
  idle.Send(Get("/idle"));
  EXPECT_EQ(idle.Answer().status, 200);
  half.Send("GET /idle HTTP/1.1\r\n");
  running.Send(Get("/run"));
  ASSERT_TRUE(arrived.Wait());
  ASSERT_TRUE(Eventually([&] { return server->Counters().connections == 3; }));
  bool drained = false;
  std::thread drain([&] { drained = server->Drain(20s); });
  EXPECT_TRUE(idle.Ends());
  EXPECT_FALSE(RawClient(server->port()).connected());
  EXPECT_FALSE(kept->Gone());
  half.Send("Host: h\r\n\r\n");  // had begun: is answered
  const RawAnswer last = half.Answer();
  EXPECT_EQ(last.status, 200);
  EXPECT_EQ(last.Header("connection"), "close");
  EXPECT_TRUE(kept->Write("end"));
  kept->Finish();
  kept.reset();
  const RawAnswer answer = running.Answer();
  EXPECT_EQ(answer.body, "end");
  EXPECT_TRUE(answer.complete);
  half.Close();
  running.Close();
  drain.join();
  EXPECT_TRUE(drained);
}

TEST(HttpServer, CutsOffWhatDrainsTooLong) {
  std::shared_ptr<Reply> kept;
  Event arrived, gone;
  auto server = Started({}, [&](const HttpRequest&, std::shared_ptr<Reply> reply) {
    reply->OnGone([&] { gone.Set(); });
    kept = reply;
    arrived.Set();
  });
  ASSERT_NE(server, nullptr);
  RawClient client(server->port());
  client.Send(Get("/"));
  ASSERT_TRUE(arrived.Wait());
  EXPECT_FALSE(server->Drain(50ms));
  EXPECT_TRUE(gone.IsSet());
  server.reset();
  EXPECT_TRUE(client.Ends());
  // The answer outlives the server.
  EXPECT_TRUE(kept->Gone());
  EXPECT_FALSE(kept->Start(200, {}));
  kept->Send(200, {}, "nobody");
  kept.reset();
}

TEST(HttpServer, SaysWhyItCannotListen) {
  auto first = HttpServer::Create({});
  ASSERT_TRUE(first.ok());
  HttpOptions options;
  options.port = (*first)->port();
  const auto second = HttpServer::Create(options);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), Code::kIo);
  EXPECT_NE(second.status().message().find("port " + std::to_string(options.port) + " of 127.0.0.1 is taken"),
            std::string::npos)
      << second.status().message();
  const uint16_t port = options.port;
  first->reset();  // never served
  EXPECT_TRUE(HttpServer::Create(options).ok()) << port;

  const std::pair<Code, std::function<void(HttpOptions&)>> bad[]{
      {Code::kIo, [](HttpOptions& o) { o.host = "192.0.2.1"; }},
      {Code::kBadInput, [](HttpOptions& o) { o.host = "no such host"; }},
      {Code::kBadInput, [](HttpOptions& o) { o.tls_certificate = "x.pem"; }},
      {Code::kBadFile, [](HttpOptions& o) { o.tls_certificate = o.tls_key = "/no/such/file.pem"; }},
      {Code::kBadInput, [](HttpOptions& o) { o.api_keys = {""}; }},
      {Code::kBadInput, [](HttpOptions& o) { o.handler_threads = 0; }},
      {Code::kBadInput, [](HttpOptions& o) { o.max_header_bytes = 10; }},
  };
  for (const auto& [code, spoil] : bad) {
    HttpOptions o;
    spoil(o);
    const auto server = HttpServer::Create(o);
    ASSERT_FALSE(server.ok());
    EXPECT_EQ(server.status().code(), code) << server.status().message();
  }
}

// A certificate for one day, and its key, in a folder of their own.
class SelfSigned {
 public:
  SelfSigned() {
    std::string name = (std::filesystem::temp_directory_path() / "glint-http-XXXXXX").string();
    folder_ = mkdtemp(name.data());
    EVP_PKEY* key = EVP_EC_gen("P-256");
    X509* certificate = X509_new();
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 86400);
    X509_set_pubkey(certificate, key);
    X509_NAME* subject = X509_get_subject_name(certificate);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>("localhost"), -1, -1, 0);
    X509_set_issuer_name(certificate, subject);
    X509_sign(certificate, key, EVP_sha256());
    FILE* file = fopen(certificate_path().c_str(), "w");
    PEM_write_X509(file, certificate);
    fclose(file);
    file = fopen(key_path().c_str(), "w");
    PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr);
    fclose(file);
    X509_free(certificate);
    EVP_PKEY_free(key);
  }
  ~SelfSigned() { std::filesystem::remove_all(folder_); }
  std::string certificate_path() const { return folder_ / "certificate.pem"; }
  std::string key_path() const { return folder_ / "key.pem"; }

 private:
  std::filesystem::path folder_;
};

TEST(HttpServer, SpeaksTls) {
  const SelfSigned files;
  HttpOptions options;
  options.tls_certificate = files.certificate_path();
  options.tls_key = files.key_path();
  Event arrived, gone;
  std::shared_ptr<Reply> kept;
  auto server = Started(options, [&](const HttpRequest& request, std::shared_ptr<Reply> reply) {
    if (request.path != "/wait") return Echo(request, reply);
    kept = reply;
    reply->OnGone([&] { gone.Set(); });
    arrived.Set();
  });
  ASSERT_NE(server, nullptr);
  EXPECT_TRUE(server->url().starts_with("https://"));
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  ASSERT_EQ(SSL_CTX_load_verify_locations(context, files.certificate_path().c_str(), nullptr), 1);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  RawClient socket(server->port());
  SSL* tls = SSL_new(context);
  SSL_set_fd(tls, socket.fd());
  ASSERT_EQ(SSL_connect(tls), 1);
  const std::string body(100'000, 'b');
  for (int i = 0; i < 2; ++i) {
    const std::string request = Post("/tls", body);
    ASSERT_EQ(SSL_write(tls, request.data(), static_cast<int>(request.size())),
              static_cast<int>(request.size()));
    std::string text;
    char bytes[4096];
    while (!text.ends_with("|" + body)) {
      const int n = SSL_read(tls, bytes, sizeof bytes);
      ASSERT_GT(n, 0);
      text.append(bytes, static_cast<size_t>(n));
    }
    EXPECT_NE(text.find("\r\n\r\nPOST /tls|b"), std::string::npos);
  }
  const std::string wait = Get("/wait");
  SSL_write(tls, wait.data(), static_cast<int>(wait.size()));
  ASSERT_TRUE(arrived.Wait());
  socket.Close();
  EXPECT_TRUE(gone.Wait());
  kept.reset();
  SSL_free(tls);
  SSL_CTX_free(context);
  // Plain HTTP to a TLS port: the connection ends, the server goes on.
  RawClient plain(server->port());
  plain.Send(Get("/"));
  while (plain.Receive()) {
  }
  EXPECT_TRUE(Eventually([&] { return server->Counters().connections == 0; }));
}

// Many clients of every kind at once, while the server is drained: nothing is answered wrongly, nothing is left.
TEST(HttpServer, SurvivesACrowd) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  HttpOptions options;
  options.max_backlog_bytes = 100'000;
  options.max_body_bytes = 50'000;
  std::atomic<int> inside{0};
  auto server = Started(options, [&](const HttpRequest& request, std::shared_ptr<Reply> reply) {
    if (request.path == "/echo") return Echo(request, reply);
    ++inside;
    std::thread([&inside, reply] {
      reply->OnGone([&inside] { inside.load(); });
      if (reply->Start(200, {}))
        for (int i = 0; i < 50 && reply->Write(std::string(200, 'x')); ++i) {
        }
      reply->Finish();
      --inside;
    }).detach();
  });
  ASSERT_NE(server, nullptr);
  std::atomic<bool> stop{false};
  std::atomic<int> right{0}, wrong{0};
  std::vector<std::thread> clients;
  for (uint64_t thread = 0; thread < 8; ++thread) {
    clients.emplace_back([&, thread] {
      std::mt19937_64 rng(seed + thread);
      for (int round = 0; round < 60 && !stop; ++round) {
        RawClient client(server->port());
        switch (rng() % 6) {
          case 0:
          case 1: {
            const std::string body(rng() % 40'000, static_cast<char>('a' + rng() % 26));
            client.Send(Post("/echo", body));
            (client.Answer().body == "POST /echo|" + body ? right : wrong) += 1;
            break;
          }
          case 2: {
            client.Send(Get("/stream"));
            const RawAnswer answer = client.Answer();
            (answer.complete && answer.body.size() == 10'000 ? right : wrong) += 1;
            break;
          }
          case 3:
            client.Send(Get("/stream"));
            if (rng() % 2 != 0) client.Receive();
            if (rng() % 2 != 0) client.Reset();
            break;
          case 4:
            client.Send(Post("/echo", std::string(rng() % 90'000, 'x')).substr(0, rng() % 60'000));
            break;
          default:
            client.Send(std::string(rng() % 3000, static_cast<char>(rng())));
            if (rng() % 2 != 0) client.HalfClose();
        }
      }
    });
  }
  for (auto& client : clients) client.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(right, 50);
  EXPECT_TRUE(Eventually([&] { return inside == 0; }));
  server->Drain(5s);
  EXPECT_EQ(server->Counters().connections, 0u);
}

TEST(HttpError, IsJsonThatBothKindsOfClientsRead) {
  EXPECT_EQ(HttpErrorBody(404, "no \"x\"\n\xff", "model_not_found"),
            "{\"type\": \"error\", \"error\": {\"type\": \"not_found_error\", \"message\": \"no "
            "\\\"x\\\"\\u000a?\", "
            "\"param\": null, \"code\": \"model_not_found\"}}");
  EXPECT_EQ(HttpErrorBody(500, "\xc3\xa9"),
            "{\"type\": \"error\", \"error\": {\"type\": \"api_error\", \"message\": \"\xc3\xa9\", "
            "\"param\": null, "
            "\"code\": null}}");
}

}  // namespace
}  // namespace glint::serve
