// The routes of responses over the embedded model, without a socket.
#include "serve/response_routes.h"

#include <gtest/gtest.h>

#include <mutex>
#include <vector>

#include "base/json.h"
#include "serve/openai_responses.h"
#include "tests/engine/reference.h"
#include "tests/serve/service_test_support.h"

namespace glint::serve {
namespace {

const Model& Stories() {
  static const Model model =
      test::MustOpen(GLINT_SOURCE_DIR "/models/stories/stories.gguf", {.device = "cpu", .threads = 2});
  return model;
}

class ResponseRoutes : public testing::Test {
 protected:
  void Serve(ResponseStoreOptions options = {}) {
    store_ = std::move(ResponseStore::Open(std::move(options))).value();
    ServiceOptions service;
    service.scheduler.context = 600;
    service_ = std::move(Service::Create(Stories(), service)).value();
    endpoints_ = std::make_unique<Endpoints>();
    AddResponseRoutes(*endpoints_, store_, [this](const std::string& line) {
      const std::lock_guard lock(mutex_);
      lines_.push_back(line);
    });
    endpoints_->SetService(service_);
  }

  std::shared_ptr<FakeReply> Ask(const std::string& method, const std::string& path,
                                 const std::string& body = "") {
    HttpRequest request;
    request.method = method;
    request.path = path;
    request.body = body;
    auto reply = std::make_shared<FakeReply>();
    endpoints_->Handle(request, reply);
    EXPECT_TRUE(reply->Wait());
    return reply;
  }
  Json Post(const std::string& body) {
    const auto reply = Ask("POST", "/v1/responses", body);
    EXPECT_EQ(reply->status(), 200) << reply->text();
    Result<Json> json = ParseJson(reply->text(), "reply");
    EXPECT_TRUE(json.ok()) << reply->text();
    return json.ok() ? std::move(json).value() : Json();
  }

  std::mutex mutex_;
  std::vector<std::string> lines_;
  std::shared_ptr<ResponseStore> store_;
  std::shared_ptr<Service> service_;
  std::unique_ptr<Endpoints> endpoints_;
};

std::string Body(const std::string& more) {
  return R"({"model":"stories","input":"Once","max_output_tokens":24,)" + more + "}";
}

// What the model read and drew is kept, and is how the next prompt begins, though encoding the same text would give other tokens.
TEST_F(ResponseRoutes, TheNextPromptBeginsWithTheTokensThatWereDrawn) {
  Serve();
  int others = 0;
  for (int seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    const Json first = Post(Body("\"temperature\":1.5,\"seed\":" + std::to_string(seed)));
    const std::string id = first.Get<std::string>("id").value();
    const auto kept = store_->Conversation(id).value();
    ASSERT_TRUE(kept.has_value());
    EXPECT_EQ(static_cast<int64_t>(kept->tokens.size()), first.Get<int64_t>("usage.total_tokens").value());

    const auto parsed = ParseOpenAiResponses(Body("\"previous_response_id\":\"" + id + "\""),
                                             service_->limits(), store_.get());
    auto request = std::get<ResponsesRequest>(parsed);
    const auto rendered = std::get<0>(service_->Prompts(request.generation)).at(0);
    EXPECT_EQ(request.previous_tokens, kept->tokens);
    request.generation.history = request.previous_tokens;
    const auto prompt = std::get<0>(service_->Prompts(request.generation)).at(0);
    EXPECT_EQ(Stories().tokenizer().Decode(prompt).value(), Stories().tokenizer().Decode(rendered).value());
    // An answer that ends with white space is rendered without it: then only what was before can be the same.
    const std::string text =
        first.Find("output")->items().at(0).Find("content")->items().at(0).Get<std::string>("text").value();
    if (text.empty() || text.back() == ' ' || text.back() == '\n' || text.front() == ' ' ||
        text.front() == '\n')
      continue;
    ASSERT_GT(prompt.size(), kept->tokens.size());
    EXPECT_TRUE(std::equal(kept->tokens.begin(), kept->tokens.end(), prompt.begin()));
    others += prompt != rendered;
    const Json second = Post(Body("\"previous_response_id\":\"" + id + "\""));
    EXPECT_EQ(second.Get<int64_t>("usage.input_tokens").value(), static_cast<int64_t>(prompt.size()));
  }
  EXPECT_GT(others, 0);
}

TEST_F(ResponseRoutes, AnAnswerThatCannotBeKeptIsGivenAllTheSame) {
  Serve({.max_bytes = 100});
  const Json answer = Post(Body("\"temperature\":0"));
  EXPECT_FALSE(answer.Get<bool>("store").value());
  EXPECT_FALSE(answer.Find("output")->items().empty());
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_NE(lines_[0].find("is not kept: "), std::string::npos) << lines_[0];
  EXPECT_EQ(Ask("GET", "/v1/responses/" + answer.Get<std::string>("id").value())->status(), 404);
}

TEST_F(ResponseRoutes, WhatIsKeptIsThereWhileTheModelIsNot) {
  Serve();
  const std::string id = Post(Body("\"temperature\":0")).Get<std::string>("id").value();
  endpoints_->SetService(nullptr);
  EXPECT_EQ(Ask("GET", "/v1/responses/" + id)->status(), 200);
  EXPECT_EQ(Ask("GET", "/v1/responses/" + id + "/input_items")->status(), 200);
  EXPECT_EQ(Ask("POST", "/v1/responses/" + id + "/cancel")->status(), 400);
  EXPECT_EQ(Ask("POST", "/v1/responses", Body("\"temperature\":0"))->status(), 503);
  EXPECT_EQ(Ask("DELETE", "/v1/responses/" + id)->status(), 200);
  EXPECT_EQ(Ask("DELETE", "/v1/responses/" + id)->status(), 404);
  EXPECT_EQ(Ask("PUT", "/v1/responses/" + id)->status(), 405);
  EXPECT_EQ(Ask("GET", "/v1/responses/..%2f")->status(), 400);
}

// A client that leaves has no response to go on from.
TEST_F(ResponseRoutes, NothingIsKeptOfAResponseThatNobodyWaitedFor) {
  Serve();
  HttpRequest request;
  request.method = "POST";
  request.path = "/v1/responses";
  request.body =
      R"({"model":"stories","input":"Once","stream":true,"temperature":0,"max_output_tokens":500})";
  const auto reply = std::make_shared<FakeReply>();
  endpoints_->Handle(request, reply);
  ASSERT_TRUE(reply->WaitForText("response.output_text.delta"));
  reply->Leave();
  ASSERT_TRUE(reply->Wait());
  EXPECT_EQ(store_->Counts().value().responses, 0u);
}

}  // namespace
}  // namespace glint::serve
