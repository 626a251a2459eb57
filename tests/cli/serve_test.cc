// `glint serve` as it is started, asked and ended.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <optional>
#include <thread>

#include "tests/cli/program.h"
#include "tests/serve/raw_client.h"
#include "tests/serve/thinking_stories.h"
#include "tests/support/sanitizers.h"

namespace glint::cli {
namespace {

using serve::RawAnswer;
using serve::RawClient;

bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// A server in a process of its own, its output in files.
class Server {
 public:
  explicit Server(std::vector<std::string> arguments, const std::vector<std::string>& environment = {}) {
    arguments.insert(arguments.begin(), "serve");
    if (std::find(arguments.begin(), arguments.end(), "--port") == arguments.end())
      arguments.insert(arguments.end(), {"--port", "0"});
    child_ = fork();
    if (child_ == 0) {
      const int out = open(folder_.Path("out").c_str(), O_CREAT | O_WRONLY, 0600);
      const int err = open(folder_.Path("err").c_str(), O_CREAT | O_WRONLY, 0600);
      dup2(out, 1), dup2(err, 2);
      testing::internal::Become(arguments, environment);
    }
    constexpr std::string_view kSaid = "listening on http://127.0.0.1:";
    while (!ended()) {
      const std::string out = testing::ReadAll(folder_.Path("out"));
      if (Has(out, "\n")) {
        EXPECT_TRUE(out.starts_with(kSaid)) << out;
        port_ = static_cast<uint16_t>(std::atoi(out.substr(kSaid.size()).c_str()));
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  ~Server() {
    if (!ended()) kill(child_, SIGKILL), Wait();
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  uint16_t port() const { return port_; }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  std::string err() const { return testing::ReadAll(folder_.Path("err")); }
  void Signal(int number) const { kill(child_, number); }
  // The exit code.
  int Wait() {
    int status = 0;
    if (!code_ && waitpid(child_, &status, 0) == child_) code_ = testing::internal::CodeOf(status);
    return code_.value_or(-1);
  }

 private:
  bool ended() {
    int status = 0;
    if (!code_ && waitpid(child_, &status, WNOHANG) == child_) code_ = testing::internal::CodeOf(status);
    return code_.has_value();
  }

  test::TempDir folder_;
  pid_t child_ = -1;
  std::optional<int> code_;
  uint16_t port_ = 0;
};

std::string Post(const std::string& path, const std::string& body, const std::string& headers = "") {
  return "POST " + path + " HTTP/1.1\r\nHost: x\r\n" + headers +
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
  Server stories({"--alias", "fable"}, {"GLINT_API_KEY=secret"});
  Server thinking({"-m", folder.Path("thinking.gguf")}, {"GLINT_API_KEY=secret"});
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
  auto answer = Ask(server, "GET /nothing HTTP/1.1\r\nHost: x\r\n" + key + "\r\n");
  EXPECT_EQ(answer.status, 404);
  EXPECT_TRUE(answer.body.starts_with("{\"error\":{\"message\":")) << answer.body;
  EXPECT_EQ(answer.Header("access-control-allow-origin"), "https://page.example");
  answer = Ask(server, "GET /v1/messages HTTP/1.1\r\nHost: x\r\n" + key + "\r\n");
  EXPECT_EQ(answer.status, 405);
  EXPECT_EQ(answer.Header("allow"), "POST");
  EXPECT_TRUE(answer.body.starts_with("{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\""))
      << answer.body;
  answer = Ask(server, "GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(answer.status, 401);
  answer = Ask(server, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(answer.status, 200);
  EXPECT_TRUE(answer.body.starts_with("{\"status\":\"ok\"")) << answer.body;
  // A page of another origin asks before it sends a key.
  answer = Ask(server,
               "OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: x\r\nOrigin: https://page.example\r\n"
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
  EXPECT_TRUE(Has(server.err(), "ending; 1 answers under way")) << server.err();
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
  EXPECT_TRUE(Has(server.err(), "cut off")) << server.err();
}

}  // namespace
}  // namespace glint::cli
