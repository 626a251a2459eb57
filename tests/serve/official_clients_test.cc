// The official openai and anthropic clients as referees: what they send is read, and what is written they take, types checked strictly.
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "serve/anthropic_messages.h"
#include "serve/api_error.h"
#include "serve/openai_chat.h"
#include "serve/openai_completions.h"
#include "serve/openai_responses.h"
#include "tests/serve/api_test_support.h"

namespace glint::serve {
namespace {

namespace fs = std::filesystem;

std::string Read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

class OfficialClients : public testing::Test {
 protected:
  void SetUp() override {
    if (std::string_view(GLINT_PYTHON).empty()) GTEST_SKIP() << "GLINT_PYTHON is not set: no clients";
    folder_ = fs::temp_directory_path() / ("glint_clients_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
    const int status = Referee("requests");
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << Read(folder_ / "log");
    ASSERT_EQ(status, 0) << Read(folder_ / "log");
  }
  void TearDown() override {
    if (!folder_.empty()) fs::remove_all(folder_);
  }

  int Referee(const std::string& mode) {
    const std::string log = (folder_ / "log").string();
    const std::string command = "'" GLINT_PYTHON "' '" GLINT_SOURCE_DIR "/tests/serve/referee_clients.py' " +
                                mode + " '" + folder_.string() + "' >'" + log + "' 2>&1";
    return std::system(command.c_str());
  }
  std::string Request(const std::string& name) { return Read(folder_ / (name + ".json")); }
  void Answer(const std::string& name, int status, bool stream, const std::string& body) {
    std::ofstream(folder_ / (name + ".txt"), std::ios::binary)
        << status << "\n"
        << (stream ? "text/event-stream" : "application/json") << "\n"
        << body;
  }

  // The request of a case, and the answer that a model gave.
  template <class Parse, class Make>
  void Serve(const std::string& name, Parse parse, Make make, const std::vector<AnswerEvent>& events,
             const std::vector<TokenLogprob>& tokens = {}) {
    SCOPED_TRACE(name);
    const GenerationRequest request = Accept(parse, Request(name));
    const auto writer = make(request, TestNames());
    std::string all = writer->Begin(TestOutcome().usage);
    all += writer->KeepAlive({1, 2});
    for (const AnswerEvent& event : events) {
      all += writer->Event(0, event,
                           event.kind == AnswerEvent::Kind::kText ? tokens : std::vector<TokenLogprob>());
      all += writer->KeepAlive({2, 2});
    }
    all += writer->Finish(0, TestOutcome());
    all += writer->End();
    Answer(name, 200, request.stream, all);
  }

  // The same of responses, which a store keeps.
  ResponsesRequest ReadResponses(const std::string& name) {
    Parsed<ResponsesRequest> parsed = ParseOpenAiResponses(Request(name), TestLimits(), nullptr);
    if (const auto* error = std::get_if<ApiError>(&parsed)) {
      ADD_FAILURE() << name << ": " << error->message << "\n" << Request(name);
      return {};
    }
    return std::get<ResponsesRequest>(std::move(parsed));
  }
  void ServeResponses(const std::string& name, const std::vector<AnswerEvent>& events, const Outcome& outcome,
                      const std::vector<TokenLogprob>& tokens = {}, ResponseStore* store = nullptr) {
    ResponsesRequest request = ReadResponses(name);
    const bool stream = request.generation.stream;
    KeepResponse keep;
    if (store != nullptr) keep = [store](StoredResponse& response) { return store->Put(response).ok(); };
    const auto writer = MakeOpenAiResponsesWriter(std::move(request), TestNames(), keep);
    std::string all = writer->Begin(outcome.usage);
    for (const AnswerEvent& event : events) {
      all += writer->KeepAlive({1, 2});
      all += writer->Event(0, event,
                           event.kind == AnswerEvent::Kind::kText ? tokens : std::vector<TokenLogprob>());
    }
    all += writer->Finish(0, outcome);
    Answer(name, 200, stream, all + writer->End());
  }
  void Answer(const std::string& name, const Parsed<std::string>& body) {
    if (const auto* error = std::get_if<ApiError>(&body)) {
      Answer(name, error->status, false, OpenAiErrorBody(*error));
    } else {
      Answer(name, 200, false, std::get<std::string>(body));
    }
  }

  fs::path folder_;
};

TEST_F(OfficialClients, SendWhatIsReadAndTakeWhatIsWritten) {
  std::vector<AnswerEvent> events{Reasoning("h"), Reasoning("m"), Text("hello")};
  for (auto& e : Call(0, "get", {"{\"q\":", "1}"})) events.push_back(e);
  const std::vector<TokenLogprob> tokens{{"hello", -0.5, {{"hello", -0.5}}}};

  Serve("chat_whole", ParseOpenAiChat, MakeOpenAiChatWriter, events, tokens);
  Serve("chat_stream", ParseOpenAiChat, MakeOpenAiChatWriter, events);
  Serve("chat_accumulated", ParseOpenAiChat, MakeOpenAiChatWriter, events);
  Serve("completion_whole", ParseOpenAiCompletion, MakeOpenAiCompletionWriter, {Text("hello")}, tokens);
  Serve("completion_stream", ParseOpenAiCompletion, MakeOpenAiCompletionWriter, {Text("hel"), Text("lo")});
  Serve("messages_whole", ParseAnthropicMessages, MakeAnthropicMessagesWriter, events);
  Serve("messages_stream", ParseAnthropicMessages, MakeAnthropicMessagesWriter, events);

  const GenerationRequest chat = Accept(ParseOpenAiChat, Request("chat_turn"));
  ASSERT_EQ(chat.messages.size(), 3u);
  EXPECT_EQ(chat.messages[2].content, "r");
  const GenerationRequest messages = Accept(ParseAnthropicMessages, Request("messages_turn"));
  ASSERT_EQ(messages.messages.size(), 3u);
  EXPECT_EQ(messages.messages[1].tool_calls.at(0).arguments, R"({"q":"007"})");
  EXPECT_EQ(Accept(ParseAnthropicCountTokens, Request("count_tokens")).chat.tools.size(), 1u);
  Answer("count_tokens", 200, false, AnthropicCountTokensBody(12));

  const auto refused = [&](const Parsed<GenerationRequest>& parsed) {
    const auto* error = std::get_if<ApiError>(&parsed);
    EXPECT_NE(error, nullptr);
    return error != nullptr ? *error : ApiError{};
  };
  const ApiError chat_error = refused(ParseOpenAiChat(Request("chat_error"), TestLimits()));
  Answer("chat_error", chat_error.status, false, OpenAiErrorBody(chat_error));
  const ApiError message_error = refused(ParseAnthropicMessages(Request("messages_error"), TestLimits()));
  Answer("messages_error", message_error.status, false, AnthropicErrorBody(message_error));
  const ApiError unknown = UnknownModel(Accept(ParseOpenAiChat, Request("chat_unknown_model")).model);
  Answer("chat_unknown_model", unknown.status, false, OpenAiErrorBody(unknown));
  Answer("chat_busy", Overloaded(1).status, false, OpenAiErrorBody(Overloaded(1)));

  const auto broken = [&](const std::string& name, auto parse, auto make) {
    const auto writer = make(Accept(parse, Request(name)), TestNames());
    std::string all = writer->Begin({});
    all += writer->Event(0, Text("hello"), {});
    all += writer->Fail({500, "the device failed"});
    Answer(name, 200, true, all);
  };
  broken("chat_broken_stream", ParseOpenAiChat, MakeOpenAiChatWriter);
  broken("messages_broken_stream", ParseAnthropicMessages, MakeAnthropicMessagesWriter);

  const auto store = std::move(ResponseStore::Open({})).value();
  ServeResponses("responses_whole", events, TestOutcome(), tokens, store.get());
  ServeResponses("responses_stream", events, TestOutcome());
  ServeResponses("responses_accumulated", events, TestOutcome());
  ServeResponses("responses_incomplete", {Text("hel")}, TestOutcome(FinishReason::kLength));
  const auto turn = ReadResponses("responses_turn").generation.messages;
  ASSERT_EQ(turn.size(), 3u);
  EXPECT_EQ(turn[1].tool_calls.at(0).id, "c");
  const auto gone = ParseOpenAiResponses(Request("responses_error"), TestLimits(), store.get());
  ASSERT_TRUE(std::holds_alternative<ApiError>(gone));
  Answer("responses_error", Parsed<std::string>(std::get<ApiError>(gone)));
  const auto failing =
      MakeOpenAiResponsesWriter(ReadResponses("responses_broken_stream"), TestNames(), nullptr);
  Answer("responses_broken_stream", 200, true,
         InOrder({failing->Begin({}), failing->Event(0, Text("hel"), {}),
                  failing->Fail({500, "the device failed"})}));
  Answer("responses_retrieve", OpenAiResponseBody(store.get(), "resp_X1", {}));
  Answer("responses_missing", OpenAiResponseBody(store.get(), "resp_1", {}));
  Answer("responses_cancel", Parsed<std::string>(OpenAiCancelResponse(store.get(), "resp_X1")));
  Answer("responses_delete", OpenAiDeleteResponse(store.get(), "resp_X1"));
  StoredResponse listed;
  listed.id = "resp_X1";
  listed.input =
      R"([{"id":"msg_X1i00000","type":"message","status":"completed","content":[{"type":"input_text","text":"hi"}],"role":"user"},)"
      R"({"id":"rs_X1i00001","type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"hm"}],"status":"completed"},)"
      R"({"id":"fc_X1i00002","type":"function_call","status":"completed","arguments":"{}","call_id":"c","name":"get"}])";
  ASSERT_TRUE(store->Put(listed).ok());
  Answer("responses_input_items",
         OpenAiInputItems(store.get(), "resp_X1", {{"order", "asc"}, {"limit", "2"}}));

  EXPECT_EQ(Referee("responses"), 0) << Read(folder_ / "log");
}

}  // namespace
}  // namespace glint::serve
