// Paths, methods, states and headers; what the APIs' own handlers say is tested by their clients (tests/cli/serve_test.cc).
#include "serve/endpoints.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "tests/engine/reference.h"
#include "tests/serve/service_test_support.h"

namespace glint::serve {
namespace {

std::shared_ptr<FakeReply> Ask(const Endpoints& endpoints, const std::string& method, const std::string& path,
                               const std::string& body = "", HttpHeaders headers = {}) {
  HttpRequest request;
  request.method = method;
  request.path = path;
  request.body = body;
  request.headers = std::move(headers);
  request.peer = "127.0.0.1:5";
  auto reply = std::make_shared<FakeReply>();
  endpoints.Handle(request, reply);
  return reply;
}

std::string Field(const FakeReply& reply, const std::string& path) {
  const auto json = ParseJson(reply.text(), "answer");
  EXPECT_TRUE(json.ok()) << reply.text();
  if (!json.ok()) return "";
  const auto text = json->Get<std::string>(path);
  return text.ok() ? *text : "";
}

std::shared_ptr<Service> Stories(ServiceObserver* observer = nullptr) {
  static const Model model =
      test::MustOpen(GLINT_SOURCE_DIR "/models/stories/stories.gguf", {.device = "cpu", .threads = 2});
  auto service =
      Service::Create(model, {.scheduler = {.context = 256}, .aliases = {"fable"}, .observer = observer});
  EXPECT_TRUE(service.ok());
  return *std::move(service);
}

TEST(Endpoints, WithoutKeysOtherSitesPagesAreRefused) {
  const auto status = [](const PageGuard& guard, const std::string& cors, const std::string& host,
                         const std::string& origin) {
    Endpoints endpoints({.cors_origin = cors, .guard = guard});
    HttpHeaders headers;
    if (!host.empty()) headers.emplace_back("Host", host);
    if (!origin.empty()) headers.emplace_back("Origin", origin);
    EXPECT_NE(Ask(endpoints, "GET", "/health", "", headers)->status(), 403);
    return Ask(endpoints, "POST", "/nowhere", "{}", headers)->status();  // 404: it got as far as the paths
  };
  const PageGuard local{.own_pages = true, .local_names = true}, open{.own_pages = true}, none{};
  for (const std::string host : {"127.0.0.1:8080", "127.0.0.1", "localhost:8080", "LocalHost",
                                 "app.localhost:1", "[::1]:8080", "[::1]", ""}) {
    EXPECT_EQ(status(local, "", host, ""), 404) << host;
    if (!host.empty()) {
      EXPECT_EQ(status(local, "", host, "http://" + host), 404) << host;
    }
    EXPECT_EQ(status(local, "", host, "http://evil.example"), 403) << host;
    EXPECT_EQ(status(local, "", host, "null"), 403) << host;
  }
  for (const std::string host : {"evil.example", "evil.example:8080", "localhost.evil.example",
                                 "127.0.0.1.evil.example:8080", "notlocalhost", ":8080"}) {
    EXPECT_EQ(status(local, "", host, ""), 403) << host;
    EXPECT_EQ(status(local, "", host, "http://" + host), 403) << host;
    EXPECT_EQ(status(open, "", host, "http://" + host), 404) << host;
  }
  EXPECT_EQ(status(open, "", "lan:8080", "http://lan:8081"), 403);
  EXPECT_EQ(status(open, "", "lan:8080", "https://lan:8080"), 404);
  EXPECT_EQ(status(local, "http://app.example", "localhost:8080", "http://app.example"), 404);
  EXPECT_EQ(status(local, "http://app.example", "localhost:8080", "http://app.example.org"), 403);
  EXPECT_EQ(status(local, "*", "localhost:8080", "http://evil.example"), 404);
  EXPECT_EQ(status(none, "", "evil.example", "http://other.example"), 404);
}

TEST(Endpoints, WhileTheModelLoadsHealthSaysHowFarAndOthersWait) {
  Endpoints endpoints;
  endpoints.SetLoading(30, 120);
  auto reply = Ask(endpoints, "GET", "/health");
  EXPECT_EQ(reply->status(), 503);
  EXPECT_EQ(reply->text(), R"({"status":"loading","progress":{"done":30,"total":120}})");
  reply = Ask(endpoints, "POST", "/v1/chat/completions", "{}");
  EXPECT_EQ(reply->status(), 503);
  EXPECT_EQ(reply->Header("Retry-After"), "1");
  EXPECT_NE(Field(*reply, "error.message").find("25 %"), std::string::npos) << reply->text();
  reply = Ask(endpoints, "POST", "/v1/messages", "{}");
  EXPECT_EQ(reply->status(), 503);
  EXPECT_EQ(Field(*reply, "error.type"), "overloaded_error");

  const std::shared_ptr<Service> service = Stories();
  endpoints.SetService(service);
  EXPECT_EQ(Ask(endpoints, "GET", "/health")->status(), 200);
  EXPECT_EQ(Ask(endpoints, "GET", "/v1/models")->status(), 200);
  endpoints.SetService(nullptr);
  reply = Ask(endpoints, "GET", "/health");
  EXPECT_EQ(reply->status(), 503);
  EXPECT_EQ(Field(*reply, "status"), "ending");
  EXPECT_NE(Ask(endpoints, "GET", "/v1/models")->text().find("ending"), std::string::npos);
}

// A pass that takes its time holds up answers, and not those who ask whether the server lives.
TEST(Endpoints, HealthAnswersWhileAPassGoesOn) {
  struct Standing final : ServiceObserver {
    std::promise<void> stands, go_on;
    void Began(const RequestInfo&) override {}
    void Refused(const RequestInfo&, const ApiError&) override {}
    void FirstToken(const RequestInfo&, size_t, double) override {  // in the thread that runs passes
      stands.set_value();
      go_on.get_future().wait();
    }
    void NextToken(const RequestInfo&, size_t, double) override {}
    void ChoiceEnded(const RequestInfo&, size_t, const Outcome&) override {}
    void Ended(const RequestInfo&, const std::vector<Outcome>&, const ApiError*) override {}
  } standing;
  const std::shared_ptr<Service> service = Stories(&standing);
  Endpoints endpoints;
  endpoints.SetService(service);
  const auto answer =
      Ask(endpoints, "POST", "/v1/completions", R"({"model":"fable","prompt":"Once","max_tokens":2})");
  standing.stands.get_future().wait();
  EXPECT_EQ(Ask(endpoints, "GET", "/health")->status(), 200);
  EXPECT_EQ(Ask(endpoints, "GET", "/v1/models")->status(), 200);
  standing.go_on.set_value();
  EXPECT_TRUE(answer->Wait());
  EXPECT_EQ(answer->status(), 200);
}

TEST(Endpoints, PathsAndMethodsAreMatchedExactly) {
  Endpoints endpoints;
  std::vector<std::string> parts;
  const auto keep = [&parts](const Call& call) {
    parts = call.parts;
    SendJson(*call.reply, "{}");
  };
  endpoints.Add({"GET", "/a/{}/b/{}", false, keep});
  endpoints.Add({"DELETE", "/a/{}/b/{}", false, keep});
  EXPECT_EQ(Ask(endpoints, "GET", "/a/x y/b/..%2f")->status(), 200);
  EXPECT_EQ(parts, (std::vector<std::string>{"x y", "..%2f"}));
  EXPECT_EQ(Ask(endpoints, "HEAD", "/a/1/b/2")->status(), 200);
  for (const char* path :
       {"/x", "/a", "/a/1/b", "/a/1/b/2/c", "/a/1/c/2", "/v1", "/v1/chat/completions/x", "/V1/models"})
    EXPECT_EQ(Ask(endpoints, "GET", path)->status(), 404) << path;
  auto reply = Ask(endpoints, "POST", "/a/1/b/2");
  EXPECT_EQ(reply->status(), 405);
  EXPECT_EQ(reply->Header("Allow"), "GET, DELETE");
  reply = Ask(endpoints, "OPTIONS", "/a/1/b/2");
  EXPECT_EQ(reply->status(), 204);
  EXPECT_EQ(reply->Header("Allow"), "GET, DELETE, OPTIONS");
  EXPECT_EQ(reply->Header("Access-Control-Allow-Methods"),
            "");  // of its own origin alone, unless told otherwise
  EXPECT_EQ(Ask(Endpoints({.cors_origin = "*"}), "OPTIONS", "/health")->Header("Access-Control-Allow-Origin"),
            "*");
}

TEST(Endpoints, ThePageIsThereWhileTheModelLoads) {
  const Endpoints endpoints;
  const auto reply = Ask(endpoints, "GET", "/");
  EXPECT_EQ(reply->status(), 200);
  EXPECT_NE(reply->Header("Content-Security-Policy"), "");
  EXPECT_EQ(Ask(endpoints, "POST", "/")->status(), 405);
}

TEST(Endpoints, ErrorsHaveTheFormOfThePathAndTheRequestItsName) {
  Endpoints endpoints;
  const std::shared_ptr<Service> service = Stories();
  endpoints.SetService(service);
  auto reply = Ask(endpoints, "POST", "/v1/chat/completions", "{");
  EXPECT_EQ(reply->status(), 400);
  EXPECT_EQ(Field(*reply, "error.type"), "invalid_request_error");
  EXPECT_EQ(Field(*reply, "type"), "");
  reply = Ask(endpoints, "POST", "/v1/messages", "{");
  EXPECT_EQ(reply->status(), 400);
  EXPECT_EQ(Field(*reply, "type"), "error");
  EXPECT_EQ(Field(*reply, "request_id"), reply->Header("request-id"));
  EXPECT_EQ(Field(*Ask(endpoints, "GET", "/v1/models/x", "", {{"Anthropic-Version", "2023-06-01"}}), "type"),
            "error");
  EXPECT_EQ(Field(*Ask(endpoints, "GET", "/v1/models/x"), "error.code"), "model_not_found");
  EXPECT_EQ(Field(*Ask(endpoints, "GET", "/v1/models/fable"), "id"), "fable");

  // A whole answer is known by the name that its headers say.
  reply = Ask(endpoints, "POST", "/v1/completions", R"({"model":"fable","prompt":"Once","max_tokens":2})");
  ASSERT_TRUE(reply->Wait());
  EXPECT_EQ(reply->status(), 200);
  EXPECT_EQ("req_" + Field(*reply, "id").substr(5), reply->Header("x-request-id"));
  EXPECT_EQ(Field(*reply, "model"), "fable");
  const auto other = Ask(endpoints, "POST", "/v1/completions", R"({"model":"x","prompt":"Once"})");
  EXPECT_EQ(other->status(), 404);
  EXPECT_NE(other->Header("x-request-id"), reply->Header("x-request-id"));
}

TEST(Endpoints, ClientsAreToldApartByKeyAndAddress) {
  HttpRequest request;
  request.peer = "[2001:db8::1]:50123";
  const std::string a = ClientOf(request);
  request.peer = "[2001:db8::1]:50124";
  EXPECT_EQ(ClientOf(request), a);
  request.headers = {{"x-api-key", "secret"}};
  EXPECT_NE(ClientOf(request), a);
  EXPECT_EQ(ClientOf(request).find("secret"), std::string::npos);
  EXPECT_EQ(ClientOf(request), ClientOf(request));
  request.peer = "[2001:db8::2]:50124";
  EXPECT_NE(ClientOf(request), a);
}

}  // namespace
}  // namespace glint::serve
