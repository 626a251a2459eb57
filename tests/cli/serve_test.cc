// `glint serve` as it is started, asked and ended.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <optional>
#include <thread>

#include "tests/cli/program.h"
#include "tests/cli/server.h"
#include "tests/serve/raw_client.h"
#include "tests/serve/thinking_stories.h"
#include "tests/support/sanitizers.h"

namespace glint::cli {
namespace {

using serve::RawAnswer;
using serve::RawClient;
using testing::Server;

bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string Post(const std::string& path, const std::string& body, const std::string& headers = "") {
  return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\n" + headers +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

RawAnswer Ask(const Server& server, const std::string& request) {
  RawClient client(server.port());
  client.Send(request);
  return client.Answer();
}

class Serve : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!testing::HaveStories()) GTEST_SKIP() << "no embedded model";
  }
};

// tests/serve/referee_serve.py says what they ask for.
TEST_F(Serve, TheOfficialClientsAreServed) {
  if (test::kAnySanitizer) GTEST_SKIP() << "takes minutes there; the service's own tests run";
  if (std::string_view(GLINT_PYTHON).empty()) GTEST_SKIP() << "GLINT_PYTHON is not set: no clients";
  const test::TempDir folder;
  test::WriteThinkingStories(folder.Path("thinking.gguf"));
  Server stories({"--alias", "fable", "--log-level", "error"}, {"GLINT_API_KEY=secret"});
  Server thinking({"-m", folder.Path("thinking.gguf"), "--log-level", "error"}, {"GLINT_API_KEY=secret"});
  ASSERT_NE(stories.port(), 0) << stories.err();
  ASSERT_NE(thinking.port(), 0) << thinking.err();
  const std::string log = folder.Path("log");
  const std::string command = "'" GLINT_PYTHON "' '" GLINT_SOURCE_DIR "/tests/serve/referee_serve.py' " +
                              stories.url() + " " + thinking.url() + " secret >'" + log + "' 2>&1";
  const int status = std::system(command.c_str());
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << testing::ReadAll(log);
  EXPECT_EQ(status, 0) << testing::ReadAll(log);
  for (Server* server : {&stories, &thinking}) {
    server->Signal(SIGTERM);
    EXPECT_EQ(server->Wait(), 0) << server->err();
    EXPECT_EQ(server->err(), "");
  }
}

// The same words as `glint run`, since both are the model's.
TEST_F(Serve, AnswersAreThoseOfRun) {
  Server server({});
  const auto answer = Ask(
      server,
      Post(
          "/v1/chat/completions",
          R"({"model":"stories","temperature":0,"max_tokens":20,"messages":[{"role":"user","content":"Tell me a story."}]})"));
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.Header("content-type"), "application/json");
  const std::string text =
      testing::RunGlint({"run", "--chat", "Tell me a story.", "--greedy", "-n", "20"}).out;
  EXPECT_TRUE(Has(answer.body, "\"content\":\"" + text.substr(0, 40))) << answer.body << text;
}

TEST_F(Serve, PathsAndMethodsThatAreNotThere) {
  Server server({"--cors-origin", "https://page.example", "--api-key", "k"});
  const std::string key = "Authorization: Bearer k\r\n";
  auto answer = Ask(server, "GET /nothing HTTP/1.1\r\nHost: localhost\r\n" + key + "\r\n");
  EXPECT_EQ(answer.status, 404);
  EXPECT_TRUE(answer.body.starts_with("{\"error\":{\"message\":")) << answer.body;
  EXPECT_EQ(answer.Header("access-control-allow-origin"), "https://page.example");
  answer = Ask(server, "GET /v1/messages HTTP/1.1\r\nHost: localhost\r\n" + key + "\r\n");
  EXPECT_EQ(answer.status, 405);
  EXPECT_EQ(answer.Header("allow"), "POST");
  EXPECT_TRUE(answer.body.starts_with("{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\""))
      << answer.body;
  answer = Ask(server, "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(answer.status, 401);
  answer = Ask(server, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(answer.status, 200);
  EXPECT_TRUE(answer.body.starts_with("{\"status\":\"ok\"")) << answer.body;
  // A page of another origin asks before it sends a key.
  answer = Ask(server,
               "OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: https://page.example\r\n"
               "Access-Control-Request-Method: POST\r\n\r\n");
  EXPECT_EQ(answer.status, 204);
  EXPECT_TRUE(Has(answer.Header("access-control-allow-headers"), "Authorization"));
  EXPECT_EQ(answer.Header("access-control-allow-methods"), "POST");
}

TEST_F(Serve, APortThatIsTakenIsSaid) {
  Server server({});
  const auto o = testing::RunGlint({"serve", "--port", std::to_string(server.port())});
  EXPECT_EQ(o.code, 1);
  EXPECT_TRUE(Has(o.err, "port " + std::to_string(server.port()) + " of 127.0.0.1 is taken")) << o.err;
  EXPECT_EQ(o.out, "");
}

TEST_F(Serve, WhatCannotServeIsSaid) {
  for (const auto& [arguments, code, words] :
       std::vector<std::tuple<std::vector<std::string>, int, std::string>>{
           {{"serve", "--port", "0", "-m", "/no/such/model.gguf"}, 1, "/no/such/model.gguf"},
           {{"serve", "--port", "0", "--ctx", "100000000"}, 1, "context is 100000000"},
           {{"serve", "--port", "0", "--host", "no.such.host.invalid"}, 1, "no.such.host.invalid"},
           {{"serve", "--tls-cert", "x"}, 2, "belong together"},
           {{"serve", "--port", "0", "--api-key-file", "/no/such/file"}, 1, "/no/such/file"}}) {
    const auto o = testing::RunGlint(arguments);
    EXPECT_EQ(o.code, code) << o.err;
    EXPECT_TRUE(Has(o.err, words)) << o.err;
  }
}

constexpr const char* kLong =
    R"({"model":"stories","prompt":"Once upon a time","stream":true,"max_tokens":400,"temperature":0,"logit_bias":{"4078":-100,"4085":-100,"4087":-100}})";

TEST_F(Serve, AnswersUnderWayEndBeforeItDoes) {
  Server server({});
  RawClient client(server.port());
  client.Send(Post("/v1/completions", kLong));
  while (!Has(client.buffer(), "data: ")) ASSERT_TRUE(client.Receive());
  server.Signal(SIGTERM);
  const RawAnswer answer = client.Answer();
  EXPECT_TRUE(answer.complete);
  EXPECT_TRUE(answer.body.ends_with("data: [DONE]\n\n")) << answer.body;
  EXPECT_TRUE(Has(answer.body, "\"decode_tokens\":400")) << answer.body;
  EXPECT_EQ(server.Wait(), 0) << server.err();
  EXPECT_TRUE(Has(server.err(), " ending answers=1 seconds=30\n")) << server.err();
}

TEST_F(Serve, ASecondSignalEndsItAtOnce) {
  Server server({"--ctx", "4096"});
  RawClient client(server.port());
  std::string forever = kLong;
  forever.replace(forever.find("400"), 3, "4000");
  client.Send(Post("/v1/completions", forever));
  while (!Has(client.buffer(), "data: ")) ASSERT_TRUE(client.Receive());
  server.Signal(SIGTERM);
  while (!Has(server.err(), "ending")) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait(), 1000 + SIGTERM);
}

// The time for it is over: cut off, and said.
TEST_F(Serve, WhatDoesNotEndInTimeIsCutOff) {
  Server server({"--drain", "0"});
  RawClient client(server.port());
  std::string forever = kLong;
  forever.replace(forever.find("400"), 3, "4000");
  client.Send(Post("/v1/completions", forever));
  while (!Has(client.buffer(), "data: ")) ASSERT_TRUE(client.Receive());
  server.Signal(SIGINT);
  EXPECT_EQ(server.Wait(), 0);
  EXPECT_FALSE(client.Answer().complete);
  EXPECT_TRUE(Has(server.err(), " cut_off ")) << server.err();
}

// Values come from a file, flags win; the log is JSON lines in a file that SIGHUP opens anew; /metrics is Prometheus' format.
TEST_F(Serve, TakesAFileAndSaysWhatHappens) {
  const test::TempDir folder;
  const std::string log = folder.Path("log");
  folder.Write("c.toml", "log-file = '" + log +
                             "'\nlog-format = 'json'\nalias = ['fable']\nctx = 8\napi-key = ['k']\n");
  Server server({"--config", folder.Path("c.toml"), "--ctx", "512"});
  ASSERT_NE(server.port(), 0) << server.err();
  const std::string key = "x-api-key: k\r\n";
  const std::string body =
      R"({"model":"fable","max_tokens":4,"messages":[{"role":"user","content":"A secret fox."}]})";
  EXPECT_EQ(Ask(server, Post("/v1/chat/completions", body, key)).status, 200);
  const auto lines_with = [](const std::string& path, const std::string& part) {
    for (int i = 0; i < 4000; ++i) {
      if (Has(testing::ReadAll(path), part)) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  };
  EXPECT_TRUE(lines_with(log, "\"event\":\"request\"")) << testing::ReadAll(log);
  EXPECT_FALSE(Has(testing::ReadAll(log), "secret"));
  std::filesystem::rename(log, log + ".1");
  server.Signal(SIGHUP);
  EXPECT_EQ(Ask(server, Post("/nothing", "", key)).status, 404);
  EXPECT_TRUE(lines_with(log, "\"path\":\"/nothing\""));
  const auto page = Ask(server, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n" + key + "\r\n");
  EXPECT_EQ(page.Header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_TRUE(Has(page.body, "\nglint_usage_completion_tokens_total 4\n")) << page.body;
  EXPECT_EQ(Ask(server, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").status, 401);
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait(), 0);
  EXPECT_EQ(server.err(), "");
  // An error of the file has its line.
  folder.Write("bad.toml", "\nprot = 1\n");
  const auto bad = testing::RunGlint({"serve", "--config", folder.Path("bad.toml")});
  EXPECT_EQ(bad.code, 2);
  EXPECT_TRUE(Has(bad.err, "bad.toml:2: unknown key 'prot'; did you mean port?")) << bad.err;
  const auto printed = testing::RunGlint({"serve", "--config", folder.Path("c.toml"), "--print-config"});
  EXPECT_EQ(printed.code, 0);
  EXPECT_TRUE(Has(printed.out, "\nctx = 8  # " + folder.Path("c.toml") + ":4\n")) << printed.out;
}

}  // namespace
}  // namespace glint::cli
